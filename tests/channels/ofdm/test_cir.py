"""The link `cir`: frequency responses of a file's impulse responses, and refused files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.channels import LINKS, PROFILES, link_options, make_link
from semcom.channels.ofdm.profiles import Profile
from semcom.channels.scene import read_scene, write_scene
from semcom.channels.users import Fades
from tests.channels.test_scene import make_scene
from tests.samples import has_mean

A = np.array([[[3.0, 4.0j, 0.0]], [[0.0, 2.0, 0.0]]])
"""Two clients, one time, three paths: powers 9 and 16 for one client, and a single path for the other."""
TAU = np.array([[0.0, 1e-6, 9.0], [1e-6, 2e-6, 9.0]])
SPACING = 15e3


@pytest.fixture
def save(tmp_path: Path):
    def write(**arrays: np.ndarray) -> str:
        path = tmp_path / "city.npz"
        np.savez(path, **arrays)
        return str(path)

    return write


def draw(link, client: int, frames: int = 1, width: int = 6, seed: int = 0) -> Tensor:
    """h of the first OFDM symbol of frames, `[frames, width]`."""
    generator = torch.Generator().manual_seed(seed)
    return link.of(client).draw([1] * frames, 2 * width, generator, torch.float64)["fading"]


def test_the_response_is_the_transform_of_the_paths(save):
    """By hand: (3 + 4j exp(-2 pi j f tau)) / 5 and exp(-2 pi j f 2 us), f counted from the fourth of 6 subcarriers."""
    link = make_link("cir", path=save(a=A, tau=TAU), subcarriers=6)
    f = SPACING * np.arange(-3, 3)
    expected = (3 + 4j * np.exp(-2j * math.pi * f * 1e-6)) / 5, np.exp(-2j * math.pi * f * 2e-6)
    for client in (0, 1):
        got = draw(link, client, frames=2)
        torch.testing.assert_close(got, torch.from_numpy(expected[client]).expand(2, 6), rtol=1e-6, atol=1e-6)
    assert link.profile.last_path_s == pytest.approx(1e-6)  # of paths with any power


def test_a_frame_has_one_time_of_its_client_each_as_often(save):
    """Three times of one path with powers 1, 4, 7 and mean 4: over a frame |h|^2 is 1/4, 1 or 7/4, equally often."""
    a = np.sqrt([[[1.0], [4.0], [7.0]]]).astype(complex)
    link = make_link("cir", path=save(a=a, tau=np.zeros((1, 1))), subcarriers=2)
    drawn = link.draw([5] * 3000, 8, torch.Generator().manual_seed(1), torch.float64)["fading"]
    power = drawn.abs().square().view(3000, -1)
    assert torch.equal(power, power[:, :1].expand_as(power))
    for value in (0.25, 1.0, 1.75):
        assert has_mean(torch.isclose(power[:, 0], torch.tensor(value, dtype=torch.float64)).double(), 1 / 3)


def test_features_and_gradients_pass_and_clients_are_their_own(save):
    """Zero forcing of known responses is transparent. A batch of clients draws the same as separate clients."""
    link = make_link("cir", path=save(a=A, tau=TAU), equaliser="zf", downlink="ideal").in_band(2, 2, 4, 8)
    generators = [torch.Generator().manual_seed(k) for k in (0, 1)]
    drawn = link.draw_all([1, 0], [[4, 2], [4]], 8, generators, torch.float64)
    alone = link.of(1).draw([4, 2], 8, torch.Generator().manual_seed(0), torch.float64)
    assert all(torch.equal(drawn[0][name], alone[name]) for name in alone)
    x = torch.randn(1, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    up = {name: t[None] for name, t in drawn[0].items()}
    torch.testing.assert_close(link(x, up, torch.tensor([math.inf])), make_link("ideal")(x, {}, torch.tensor([0.0])))
    assert torch.autograd.gradcheck(lambda x: link(x, up, torch.tensor([3.0])), x)


def test_estimates_of_a_channel_at_rest_are_off_by_noise_alone(save):
    """|h| = 1 of client 1, one pilot: E|g|^2 = 1 + no, so c = 1 / (1 + no) and the variance is no / (1 + no)."""
    link = make_link("cir", path=save(a=A, tau=TAU), csi="ls", pilots=3, subcarriers=1)
    drawn = link.of(1).draw([1] * 4000, 2, torch.Generator().manual_seed(3), torch.float64)
    found = link.estimate(drawn, torch.tensor(0.5, dtype=torch.float64))
    assert found is not None
    torch.testing.assert_close(found.variance, torch.full((4000, 1), 0.25 / 1.25, dtype=torch.float64))
    torch.testing.assert_close(found.mean, found.gain / 1.25)
    assert has_mean((found.gain - drawn["fading"]).abs().square(), 0.25)


def test_options_that_would_do_nothing_are_not_there():
    assert not set(link_options("cir")) & {"profile", "delay_spread_ns", "carrier_ghz", "speed_mps"}
    with pytest.raises(
        ValueError, match="^speed_mps: 3.0 is not for cir, which takes feature_noise, equaliser, downlink, feedback, "
    ):
        make_link("cir", path="city.npz", speed_mps=3.0)


def test_paths_beyond_the_prefix_are_warned_of(save):
    with pytest.warns(UserWarning, match="path: the file puts the last path of its clients at 1 us, beyond .* 0.5"):
        make_link("cir", path=save(a=A, tau=TAU), spacing_khz=120.0)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": A}, "is no .npz with arrays a and tau"),
        ({"a": A[0], "tau": TAU}, r"path: a \[1, 3\] and tau \[2, 3\] in .* are not \[client, time, path\] and"),
        ({"a": A, "tau": TAU[:, :2]}, r"path: a \[2, 1, 3\] and tau \[2, 2\]"),
        ({"a": A * np.nan, "tau": TAU}, "are not all finite numbers"),
        ({"a": A, "tau": TAU.astype(str)}, "are not all finite numbers, tau real"),
        ({"a": A * [[[1.0]], [[0.0]]], "tau": TAU}, "path: client 1 in .* has no path with any power"),
    ],
)
def test_another_file_is_refused_in_one_line(arrays, message, save):
    path = save(**arrays)
    with pytest.raises(ValueError, match=message) as refused:
        make_link("cir", path=path)
    assert str(refused.value).startswith("path: ") and "\n" not in str(refused.value)


def test_any_damage_to_a_file_is_one_line(save):
    """Bytes that are others, and a file cut short: read all the same, or refused in one line."""
    path, rng = Path(save(a=A, tau=TAU)), np.random.default_rng(0)
    whole, refused = path.read_bytes(), 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] = rng.integers(256)
        path.write_bytes(damaged[: None if rng.random() < 0.8 else rng.integers(len(whole))])
        try:
            make_link("cir", path=str(path))
        except ValueError as error:
            refused += 1
            assert str(error).startswith("path: ") and "\n" not in str(error) and " ()" not in str(error)
    assert refused > 100


def test_a_file_has_to_be_given_and_has_to_have_the_clients(save, tmp_path):
    with pytest.raises(ValueError, match="^path: none is given; name a scene, or an .npz with the arrays a and tau$"):
        make_link("cir")
    for missing in ("nowhere.npz", "text.npz"):
        (tmp_path / "text.npz").write_text("no archive")
        with pytest.raises(ValueError, match="^path: .* is no .npz"):
            make_link("cir", path=str(tmp_path / missing))
    with pytest.raises(ValueError, match="^path: 2 clients are in the file, 3 in the run$"):
        make_link("cir", path=save(a=A, tau=TAU)).in_band(3, 2, 4, 8)


def test_a_profile_of_ones_own_needs_one_method(own_names):
    @PROFILES.register("by-client")
    class ByClient(Profile):
        """h is the number of the client, turned from symbol to symbol."""

        def response(self, clients, frames, times, rate, width, spacing_hz, generators, device=None):
            turn = torch.polar(torch.ones(times), torch.arange(times) * torch.pi / 2)
            h = torch.tensor([c + 1.0 for c, n in zip(clients, frames, strict=True) for _ in range(n)])
            return (h[:, None] * turn)[..., None].expand(-1, -1, width)

    link = make_link("ofdm", profile="by-client", pilots=(), subcarriers=1, equaliser="none")
    got = link.of(2).draw([1], 8, torch.Generator())["fading"]
    torch.testing.assert_close(got, torch.tensor([[3, 3j, -3, -3j]]), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="^speed_mps: 1.0 is not for profile by-client"):
        make_link("ofdm", profile="by-client", speed_mps=1.0)
    assert "cir" in LINKS.names()


def scene(tmp_path: Path, doppler_hz: float = 0.0) -> str:
    """Two clients, two times, two antennas, two paths: by antenna 3 and 4j, and 1 and 2, at 0 and 1 us."""
    a = np.array([[[3.0, 4.0j], [1.0, 2.0]], [[0.0, 2.0], [2.0, 0.0]]])[:, None] * np.array([1.0, 0.5])[:, None, None]
    tau = np.broadcast_to([0.0, 1e-6], (2, 2, 2))
    made = make_scene(2, a=a, tau=tau, doppler_hz=np.broadcast_to([0.0, doppler_hz], (2, 2, 2)))
    write_scene(made, tmp_path / "scene.npz")
    return str(tmp_path / "scene.npz")


def test_antennas_of_a_scene_are_combined(tmp_path: Path) -> None:
    """The powers of the first client are 25 and 5, in the second time a quarter of it, which is that of its SNR."""
    path, f = scene(tmp_path), SPACING * np.arange(-3, 3)
    turn = np.exp(-2j * math.pi * f * 1e-6)
    each = np.stack([3 + 4j * turn, 1 + 2 * turn]) / math.sqrt(15)
    got = draw(make_link("cir", path=path, antennas=2, subcarriers=6), 0, frames=40)
    np.testing.assert_allclose(got, np.broadcast_to(np.linalg.norm(each, axis=0), (40, 6)), rtol=1e-6)
    alone = draw(make_link("cir", path=path, subcarriers=6), 0, frames=40)  # the first antenna, whose power is 25
    np.testing.assert_allclose(alone, np.broadcast_to((3 + 4j * turn) / 5, (40, 6)), rtol=1e-6)
    with pytest.raises(ValueError, match="^antennas: the file has 2, fewer than 3; take at most these$"):
        make_link("cir", path=path, antennas=3)
    with pytest.raises(ValueError, match="^antennas: 2 are combined by a receiver that knows every h"):
        make_link("cir", path=path, antennas=2, csi="ls")


def test_paths_of_a_scene_turn_within_a_frame(tmp_path: Path) -> None:
    """The second path turns by 2 pi f_D in a second: 1.4 % of a turn from a symbol to the next, at 1 ms a slot."""
    link = make_link("cir", path=scene(tmp_path, doppler_hz=200.0), subcarriers=1)
    h = link.of(1).response(1, 3, torch.Generator().manual_seed(0))[:, :, 0]
    expected = np.exp(2j * math.pi * 200.0 * 1e-3 / 14 * np.arange(14))
    np.testing.assert_allclose(h, np.broadcast_to(expected, (3, 14)), rtol=1e-5)


def test_a_run_of_a_scene_that_ships() -> None:
    link = make_link("cir", path="munich-20", antennas=4, subcarriers=120)
    h = draw(link, 3, frames=200, width=120)
    assert float(h.abs().square().mean()) == pytest.approx(4, rel=0.3) and float(h.abs().square().std()) > 0.1


def test_a_frame_of_a_round_meets_the_time_of_the_scene(tmp_path: Path) -> None:
    """The second client's path at the second antenna alone, so that the times differ by what `a` says there."""
    a = np.array([[3.0, 1.0], [2.0, 5.0], [1.0, 1.0]])[None, :, None] * np.ones((2, 1, 1, 1))
    tau = np.broadcast_to([0.0, 1e-6], (2, 3, 2))
    write_scene(make_scene(3, a=a, tau=tau, doppler_hz=np.zeros((2, 3, 2))), tmp_path / "scene.npz")  # 0, 10, 20 s
    link = make_link("cir", path=tmp_path / "scene.npz", time="round", subcarriers=6)
    turn = np.exp(-2j * math.pi * SPACING * np.arange(-3, 3) * 1e-6)
    for seconds, (one, two) in ((0.0, a[0, 0, 0]), (12.0, a[0, 1, 0]), (20.0, a[0, 2, 0]), (39.0, a[0, 0, 0])):
        got = draw(link.at(seconds), 1, frames=30)
        expected = (one + two * turn) / math.hypot(one, two)
        np.testing.assert_allclose(got, np.broadcast_to(expected, (30, 6)), rtol=1e-6)
    met = draw(link, 1, frames=60).numpy().round(6)  # what a rate is chosen by: all times
    assert len(np.unique(met, axis=0)) == 3
    assert make_link("cir", path=tmp_path / "scene.npz").at(12.0).options.time == "drawn"


def test_only_a_scene_has_times(save) -> None:
    with pytest.raises(ValueError, match="^time: '.*city.npz' has no times of its own; round is for a scene$"):
        make_link("cir", path=save(a=A, tau=TAU), time="round")
    with pytest.raises(ValueError, match="^time: 'often' is unknown; known are drawn, round$"):
        make_link("cir", path="munich-20", time="often")


def test_responses_in_munich_are_those_that_sionna_computes() -> None:
    """Sionna's own transform of the same paths, for each client, time and antenna, over 20 MHz."""
    from sionna.phy.channel import cir_to_ofdm_channel, subcarrier_frequencies

    scene, width = read_scene("munich-20"), 1334
    link = make_link("cir", path="munich-20", antennas=4, subcarriers=width)
    # Sionna has [batch, receiver, its antennas, sender, its antennas, path, time].
    a = torch.from_numpy(scene.a.astype(np.complex128)).permute(0, 2, 3, 1)[:, None, :, None, None]
    per_time = [
        cir_to_ofdm_channel(
            subcarrier_frequencies(width, SPACING, precision="double"),
            a[..., [t]],
            torch.from_numpy(scene.tau.astype(np.float64))[:, t, None, None],
        )[:, 0, :, 0, 0, 0]
        for t in range(len(scene.times_s))
    ]
    theirs = torch.stack(per_time, 1) * torch.from_numpy(10 ** (-scene.gains_db() / 20))[:, :, None, None]
    ours = torch.stack([link.profile.list_responses(k, width, SPACING) for k in range(20)])
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_the_slope_of_the_response_has_the_delay_spread_of_the_paths() -> None:
    """E|dH/df|^2 / E|H|^2 = (2 pi)^2 times the second moment of the delays, over a band that resolves the paths."""
    scene, step = read_scene("munich-20"), 2e4
    k = int(np.ptp(scene.tau[:, 0], axis=1).argmax())
    power, tau = np.abs(scene.a[k, 0, 0].astype(complex)) ** 2, scene.tau[k, 0].astype(float)
    mean = (power * tau).sum() / power.sum()
    spread = math.sqrt((power * (tau - mean) ** 2).sum() / power.sum())
    h = make_link("cir", path="munich-20").profile.list_responses(k, 2**18, step, torch.tensor([0]))[0, 0].numpy()
    h = h * np.exp(2j * math.pi * step * mean * np.arange(len(h)))
    slope = np.abs(np.diff(h)) ** 2
    found = math.sqrt(slope.mean() / (np.abs(h) ** 2).mean()) / (2 * math.pi * step)
    assert found == pytest.approx(spread, rel=0.1) and spread > 2e-8


USERS = {"antennas": 4, "users": 2, "subcarriers": 12, "time": "round", "path": "munich-20"}


@pytest.mark.parametrize("combining", ["zf", "mrc"])
def test_users_of_a_scene_are_separated_by_its_antennas(combining: str) -> None:
    """By hand from the file: who is beside whom, each at the time of the round, and what the antennas leave."""
    scene, seconds = read_scene("munich-20"), 40.0
    link = make_link("cir", combining=combining, **USERS)
    at = scene.find_time(seconds)

    def h(k: int) -> np.ndarray:
        f = SPACING * np.arange(-6, 6)
        paths = scene.a[k, at].astype(complex) / 10 ** (scene.gains_db()[k, at] / 20)
        return paths @ np.exp(-2j * math.pi * f * scene.tau[k, at].astype(float)[:, None])

    for own, other in ((3, 8), (8, 3), (0, 19)):
        keys = [torch.Generator().manual_seed(k) for k in (1, 2)]
        fades = Fades(keys, 1, [own, other], torch.tensor([1.0, 100.0], dtype=torch.float64))
        own_key = torch.Generator().manual_seed(9)
        drawn = link.at(seconds).draw_all([own], [[1]], 24, [own_key], torch.float64, fades=[fades])[0]
        mine, beside = h(own), 10 * h(other)
        across = np.abs((mine.conj() * beside).sum(0)) ** 2
        strength, theirs = (np.abs(mine) ** 2).sum(0), (np.abs(beside) ** 2).sum(0)
        if combining == "zf":
            expected = np.sqrt(strength - across / theirs)
        else:
            expected = np.sqrt(strength)
            np.testing.assert_allclose(drawn["others"][0], across / strength, rtol=1e-4)
        np.testing.assert_allclose(drawn["fading"][0].abs(), expected, rtol=1e-4)


def test_the_company_of_a_block_is_anybody_else_of_the_file(tmp_path: Path) -> None:
    """Client 1 beside the others of three, whose single paths arrive at one antenna each: 0 shares with it, 2 not."""
    a = np.zeros((3, 2, 2, 1), complex)
    a[0, :, 0] = a[1, :, 0] = a[2, :, 1] = 1.0
    none = np.zeros((3, 2, 1))
    where = {"places_m": np.ones((3, 2, 3)), "sight": np.ones((3, 2), bool)}
    write_scene(make_scene(2, a=a, tau=none, doppler_hz=none, **where), tmp_path / "three.npz")
    link = make_link("cir", path=tmp_path / "three.npz", antennas=2, users=2, combining="mrc", subcarriers=4)
    drawn, share = link.of(1).draw_blocks(4, 4000, torch.Generator().manual_seed(0))
    assert share == 1 and drawn["fading"].shape == (4000, 4)
    np.testing.assert_allclose(drawn["fading"].abs(), math.sqrt(2))  # a mean power of 1 over two antennas, at one
    assert has_mean((drawn["others"][:, 0] > 1).double(), 1 / 2)
    assert link.of(1).law() is None


@pytest.mark.parametrize(("clients", "active"), [(20, 7), (19, 8)])
def test_users_of_a_scene_need_whole_groups(clients: int, active: int) -> None:
    others = clients - active
    why = f"users: {active} clients of a round and {others} others do not make groups of 2, and nobody else is"
    with pytest.raises(ValueError, match=f"^{why} in the file$"):
        make_link("cir", **USERS).in_band(clients, active, 4, 16)
    with pytest.warns(UserWarning, match="which is not evened out"):  # by frequency, and by antenna of one
        make_link("cir", **USERS).in_band(20, 8, 4, 16)
