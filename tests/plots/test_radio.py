"""Pictures of the radio draw the channels, places and times of the runs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from semcom.channels.scene import locate_scene, read_scene
from semcom.config import ConfigError
from semcom.plots import Plot, plot, style
from semcom.plots.kinds import KINDS, settle_kind
from semcom.runs.request.trust import trust_results
from semcom.runs.rounds.runner import run
from semcom.studies.analysis.study import study
from tests import worlds
from tests.plots.studies import drawn

OFDM = {"kind": "ofdm", "subcarriers": 240, "delay_spread_ns": 300.0}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in a cell that kept features and counted time, two in a scene, and two over other OFDM channels."""
    folder = tmp_path_factory.mktemp("radio")
    short: Any = {"train": {"rounds": 1}}
    cell = {"kind": "cell", "radius_m": 150.0, "flops": 1e6, "flops_spread": 0.5}
    late: Any = {"train": {"rounds": 1, "deadline_s": 0.2}}
    run(worlds.request("fedavg", out=str(folder / "cell"), keep=("features",), network=cell, **late))
    scene: Any = {"network": {"kind": "scene", "scene": "munich-20"}}
    for seed in (0, 1):
        run(worlds.request("fedavg", out=str(folder / "scene" / str(seed)), seed=seed, **scene, **short))
    for profile in ("tdl-a", "tdl-c"):
        run(worlds.request(out=str(folder / "ofdm" / profile), channel={**OFDM, "profile": profile}, **short))
    return folder


def shown(folder: Path, **fields: Any) -> tuple[pd.DataFrame, Figure, str]:
    part, plot = settle_kind(study(folder), Plot(**fields))
    kind = KINDS.get(str(plot.kind))
    cells = kind.numbers(part, plot)
    return cells, drawn(cells, plot), kind.caption(cells, plot)


def test_symbols_are_those_of_the_features(runs: Path) -> None:
    cells, figure, text = shown(runs / "cell", kind="constellation")
    (stored,) = study(runs / "cell").stored
    received = stored.arrays()["received/global"]
    np.testing.assert_allclose(cells[["i", "q"]], received.reshape(-1, 2) / 2**0.5)
    power = cells[["sent_i", "sent_q"]].pow(2).sum(axis=1).to_numpy().reshape(len(received), -1).mean(1)
    np.testing.assert_allclose(power, 1.0)
    np.testing.assert_array_equal(figure.axes[0].collections[0].get_offsets(), cells[["i", "q"]])
    error = float((cells["i"] - cells["sent_i"]).pow(2).mean() + (cells["q"] - cells["sent_q"]).pow(2).mean())
    assert f"FedAvg: {error:.3g}." in text


def test_symbols_that_no_channel_scales_are_sent_as_they_are(tmp_path: Path) -> None:
    channel: Any = {"kind": "none"}
    run(worlds.request("fedavg", out=str(tmp_path), keep=("features",), channel=channel, train={"rounds": 1}))
    cells, _, text = shown(tmp_path, kind="constellation")
    assert np.ptp(cells["i"]) > 0 and text.endswith("FedAvg: 0.")
    np.testing.assert_array_equal(cells[["i", "q"]], cells[["sent_i", "sent_q"]])


def test_features_of_a_few_images_have_no_plane(tmp_path: Path) -> None:
    few: Any = {"partition": {"test_per_class": 1}, "clients": 2, "train": {"rounds": 1}}
    run(worlds.request("fedavg", out=str(tmp_path), keep=("features",), **few))
    with pytest.raises(
        ConfigError, match=r"^kind: embedding wants more than 10 images, .*; fedavg has \d images of \d classes$"
    ):
        shown(tmp_path, kind="embedding")


def test_a_map_of_a_scene_has_its_clients_where_they_stand(runs: Path) -> None:
    """Four of its clients: each the mean of two seeds, round in sight of the base station, and else a triangle."""
    cells, figure, text = shown(runs / "scene", kind="map")
    scene, seeds = read_scene("munich-20"), [of.summary or {} for of in study(runs / "scene").stored]
    known = [of["views"]["global"]["clients"] for of in seeds]
    np.testing.assert_allclose(cells["mean"], np.mean(known, axis=0))
    base, *marks = (dots for dots in figure.axes[0].collections if len(dots.get_offsets()))
    assert np.array_equal(base.get_offsets(), [[0, 0]])
    places, seen = (scene.places_m - scene.base_m)[:4, 0, :2], scene.sight[:4, 0]
    for dots, sight in zip(marks, [sight for sight in (True, False) if (seen == sight).any()], strict=True):
        np.testing.assert_allclose(dots.get_offsets(), places[seen == sight])
        np.testing.assert_allclose(dots.get_array(), cells["mean"][seen == sight])
    (buildings,) = figure.axes[0].images
    assert np.array_equal(buildings.get_array() == 1, scene.heights_m > 2)
    assert "mean over 2 seeds" in text
    with pytest.raises(ConfigError, match="^kind: a map is that of one scene; no run has one"):
        shown(runs / "cell", kind="map")


def test_a_map_shows_how_clients_are_heard_also_where_some_have_no_number(runs: Path) -> None:
    """The SNR of each, which stands in summary.json; and a map of clients 1 and 3 alone, where these stand."""
    cells, figure, _ = shown(runs / "scene", kind="map", y="snr_db")
    known = [(of.summary or {})["cell"]["snr_db"] for of in study(runs / "scene").stored]
    np.testing.assert_allclose(cells["mean"], np.mean(known, axis=0))
    assert figure.axes[-1].get_ylabel() == "Uplink SNR (dB)"
    some = drawn(cells[cells["client"].isin([1, 3])], Plot(kind="map", y="snr_db", x="client", facet="variant"))
    found = np.concatenate([dots.get_offsets() for dots in some.axes[0].collections if len(dots.get_offsets())])
    scene = read_scene("munich-20")
    places = (scene.places_m - scene.base_m)[[1, 3], 0, :2]
    assert {tuple(row) for row in found.round(3)} == {(0.0, 0.0), *map(tuple, places.round(3))}


def test_a_map_of_a_file_is_drawn_where_it_is_trusted_and_the_same(tmp_path: Path) -> None:
    file = tmp_path / "of me" / "street.npz"
    file.parent.mkdir()
    shutil.copy(locate_scene("munich-20"), file)
    streets: Any = {"network": {"kind": "scene", "scene": file}}
    run(worlds.request("fedavg", out=str(tmp_path / "run"), train={"rounds": 1}, **streets))
    with pytest.raises(ConfigError, match="^network.scene: '.*street.npz', which the run names, would be read; "):
        plot(tmp_path / "run", Plot(kind="map"), out=tmp_path / "drawn")
    paths = plot(tmp_path / "run", Plot(kind="map"), out=tmp_path / "drawn", trust=True)
    assert all("of me" not in path.read_text() for path in paths if path.suffix in (".md", ".csv"))
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(ConfigError, match="^network.scene: '.*street.npz' is not what it was for the run$"):
        plot(tmp_path / "run", Plot(kind="map"), out=tmp_path / "drawn", trust=True)


def test_a_map_has_the_places_and_snrs_of_the_run(runs: Path) -> None:
    cells, figure, text = shown(runs / "cell", kind="cell")
    (stored,) = study(runs / "cell").stored
    place = (stored.summary or {})["cell"]
    assert cells["x_m"].tolist() == place["x_m"] and cells["snr_db"].tolist() == place["snr_db"]
    assert (np.hypot(cells["x_m"], cells["y_m"]) <= 150).all() and "4 clients" in text
    marks = figure.axes[0].collections
    assert sum(len(each.get_offsets()) for each in marks[:2]) == 4
    cells, figure, _ = shown(runs / "cell", kind="snr-cdf")
    (line,) = figure.axes[0].lines
    assert sorted(cells["snr_db"]) == sorted(set(np.asarray(line.get_xdata())[1:]))


def test_a_round_is_drawn_as_it_went(runs: Path) -> None:
    """Each client's bar ends with its work or with the round. Late clients end beyond it."""
    cells, figure, text = shown(runs / "cell", kind="timeline")
    (line,) = study(runs / "cell").stored[0].lines()
    assert cells["client"].tolist() == [0, 1, 2, 3] and cells["round_s"].unique().tolist() == [line["round_s"]]
    done = cells[["receive_s", "compute_s", "send_s"]].sum(axis=1)
    assert cells["late"].tolist() == (done > 0.2).tolist() and 0 < cells["late"].sum() == line["late"] < 4
    np.testing.assert_allclose(done + cells["wait_s"], done.clip(lower=line["round_s"]))
    assert cells["receive_s"].nunique() == 1 and cells["send_s"].min() > 0  # one broadcast
    bars = [bar for bar in figure.axes[0].patches if bar.get_width() > 0]
    ends = np.zeros(4)
    for bar in bars:
        row = round(bar.get_y() + bar.get_height() / 2)
        ends[row] = max(ends[row], bar.get_x() + bar.get_width())
    np.testing.assert_allclose(ends, done + cells["wait_s"])
    assert f"{line['round_s']:.4g} s" in text and f"{line['late']} late" in text


def test_channels_are_drawn_over_frequency_and_delay(runs: Path) -> None:
    """TDL-A has its strongest path at 0.38 of the spread and the last at 9.66, TDL-C at 0.21 and 8.65."""
    cells, figure, _ = shown(runs / "ofdm", kind="response", hue="channel.profile")
    assert len(figure.axes[0].lines) == 2 and len(cells) == 2 * 60
    assert cells["mhz"].min() == pytest.approx(-0.015 * 30)
    cells, _, _ = shown(runs / "ofdm", kind="delays", hue="channel.profile")
    for profile, strongest, last in (("tdl-a", 0.3819, 9.6586), ("tdl-c", 0.2099, 8.6523)):
        part = cells[cells["channel.profile"] == profile]
        step = part["us"].iloc[1]
        assert part["us"][part["power_db"].idxmax()] == pytest.approx(0.3 * strongest, abs=step)
        assert part[part["power_db"] > -40]["us"].max() == pytest.approx(0.3 * last, abs=2 * step)
        decay = np.average(part["us"], weights=10 ** (part["power_db"] / 10))
        spread = np.sqrt(np.average((part["us"] - decay) ** 2, weights=10 ** (part["power_db"] / 10)))
        assert spread == pytest.approx(0.3, abs=0.03)


def test_the_ordinate_of_a_response_has_no_formula(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dollar would be drawn as it is, like those in the names of a user's."""
    found: list[Figure] = []
    monkeypatch.setattr(style, "render_bytes", lambda figure, kind: found.append(figure) or b"")
    plot(runs / "ofdm" / "tdl-a", Plot(kind="response"), out=tmp_path)
    assert found[0].axes[0].get_ylabel() == "|H(f)|² (dB)"


@pytest.mark.parametrize(
    ("folder", "fields", "error"),
    [
        ("ofdm", {"kind": "response"}, "hue: the runs have several channels; give the field"),
        ("ofdm", {"kind": "response", "hue": "channel.kind"}, "hue: the runs of channel ofdm have several channels; "),
        ("ofdm", {"kind": "delays", "hue": "test_snr_db"}, "hue: whole runs are shown, which have no one test_snr_db"),
        ("cell", {"kind": "delays"}, "channel.kind: awgn is flat; delays are of ofdm and cir"),
        ("ofdm", {"kind": "cell"}, "kind: no finished run has a cell"),
        ("ofdm", {"kind": "timeline", "at": {"channel.profile": "tdl-a"}}, "kind: fedavg counted no time; train with"),
        ("ofdm", {"kind": "constellation"}, "channel.profile: tdl-a and tdl-c"),
        ("ofdm/tdl-a", {"kind": "constellation"}, "view: fedavg kept no features of global; repeat it with semcom"),
    ],
)
def test_what_the_runs_do_not_have_is_refused(runs: Path, folder: str, fields: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        shown(runs / folder, **fields)
    assert str(refused.value).startswith(error)


@pytest.mark.parametrize("lies_there", ["a pipe", "another file", "nothing"])
def test_a_channel_is_drawn_without_a_look_at_what_else_a_run_names(
    runs: Path, tmp_path: Path, lies_there: str
) -> None:
    """A lookup would refuse a pipe, and reading would refuse a file with another digest."""
    shutil.copytree(runs / "ofdm" / "tdl-a", tmp_path / "run")
    place = tmp_path / "place"
    if lies_there != "nothing":
        os.mkfifo(place) if lies_there == "a pipe" else place.write_text("of somebody else")
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    stored["data"] |= {"name": str(place), "root": str(place)}
    stored["partition"] = {"kind": "file", "options": {"path": str(place)}}
    stored |= {"new_clients": 2, "new_data": str(place), "out": str(place), "device": "cuda:7", "precision": "tf32"}
    stored["model"] |= {"weights": str(place)}
    stored["contents"] |= dict.fromkeys(
        (str(place), f"read {place}", f"depends {place}", f"variable {place}"), "0" * 64
    )
    (tmp_path / "run" / "config.json").write_text(json.dumps(stored))
    for kind in ("response", "delays"):
        there, named = (shown(folder, kind=kind)[0] for folder in (runs / "ofdm" / "tdl-a", tmp_path / "run"))
        pd.testing.assert_frame_equal(named, there)


def test_the_file_of_a_channel_is_read_on_the_users_word_alone(tmp_path: Path) -> None:
    file, generator = tmp_path / "city.npz", np.random.default_rng(0)
    a = generator.standard_normal((4, 6, 2)) + 1j * generator.standard_normal((4, 6, 2))
    np.savez(file, a=a / np.sqrt(np.square(np.abs(a)).mean((1, 2), keepdims=True)), tau=np.tile([0, 1e-7], (4, 1)))
    measured: Any = {"kind": "cir", "path": str(file), "subcarriers": 240}
    run(worlds.request(out=str(tmp_path / "run"), channel=measured, train={"rounds": 1}))
    with pytest.raises(ConfigError, match="city.npz', which the run names, would be read") as refused:
        shown(tmp_path / "run", kind="response")
    assert refused.value.field == "channel.path"
    with trust_results(True):
        assert len(shown(tmp_path / "run", kind="response")[0]) == 60
        np.savez(file, a=2 * a, tau=np.zeros((4, 2)))
        with pytest.raises(ConfigError, match="is not what it was"):
            shown(tmp_path / "run", kind="response")
