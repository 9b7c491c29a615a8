"""What links cost: numbers by hand from fixed times, the passes that are timed, and the command in small."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Tensor

from channels import LINKS
from semcom.bench.channels import CASES, FEATURES, SAMPLES, STEPS, BenchChannels, Pass, compared, encoder_step, text
from semcom.cli import main as cli
from semcom.config import ConfigError
from semcom.models.registry import ENCODERS

SETTINGS = {"machine": {"title": "A processor, 2 cores, torch 2.15.0"}, "clients": 20, "repeats": 3}


def rows(device: str = "cpu", **links: tuple[list[float], list[float]]) -> pd.DataFrame:
    """Links with milliseconds of their calls and draws, beside a bare step of 1 s."""
    step = [1000.0, 2000.0, 500.0]
    return pd.DataFrame(
        [
            {
                "device": device,
                "link": name,
                "target": CASES[name][2].get(device),
                "step_ms": step,
                "call_ms": c,
                "draw_ms": d,
            }
            for name, (c, d) in links.items()
        ]
    )


IDEAL, AWGN = ([1.0, 3.0, 2.0], [0.01, 0.03, 0.02]), ([5.0, 2.0, 4.0], [0.1, 0.1, 0.4])


def test_shares_and_targets_by_hand() -> None:
    """Medians: 4 ms of 1 s are 0.4%, below 0.5%; 6 ms are not. A link without a target neither meets nor misses it."""
    found = compared(rows(ideal=IDEAL, awgn=AWGN, rayleigh=([6.0], [0.1])), 20)
    assert found.share_of_step.tolist() == pytest.approx([0.002, 0.004, 0.006])
    assert found.met.tolist() == [None, True, False]
    assert found.share_of_round[1] == pytest.approx(20 * 0.1 / (STEPS * 1000.0))
    assert compared(rows("cuda", awgn=([99.0], [1.0])), 20).met.tolist() == [True]


def test_the_table() -> None:
    found = compared(rows(ideal=IDEAL, awgn=AWGN, rayleigh=([20.0], [0.1, 0.1, 0.4])), 20)
    assert text(found, SETTINGS) == (
        "A processor, 2 cores, torch 2.15.0; 20 clients x 64 samples x 32 symbols, forward and backward; repeats: 3\n"
        "\n"
        "cpu, one thread; bare step of the encoders: 1000 ms (min 500, max 2000)\n"
        "   link      ms/call: min  median  max  % of step  target  ms/draw: min  median   max  % of round\n"
        "   ideal                1       2    3      0.200       -          0.01    0.02  0.03       0.008\n"
        "   awgn                 2       4    5      0.400   < 0.5           0.1     0.1   0.4       0.040\n"
        "   rayleigh            20      20   20      2.000   < 0.5           0.1     0.1   0.4       0.040\n"
        "a draw is one client's round of 5 steps in one direction; % of round: those of all clients; "
        "targets missed by rayleigh"
    )


def test_every_link_is_measured() -> None:
    built_in = {"ideal", "awgn", "rayleigh", "rician", "ofdm", "digital"}
    assert built_in <= {kind for kind, _, _ in CASES.values()} <= set(LINKS.names())


@pytest.mark.parametrize("name", CASES)
def test_a_pass_goes_both_ways_and_is_metered(name: str) -> None:
    work = Pass(CASES[name], "cpu", 2)
    rows = work.draw()
    assert all(len(row) == STEPS * SAMPLES for row in rows.values())
    assert all(row.shape[:2] == (2, SAMPLES) for row in work.up.values())
    work()
    up, down = work.meters
    if name == "ideal":
        assert up.noise == down.noise == 0
    else:
        assert 0 < float(up.noise) / float(down.noise) < 2
    assert float(up.signal) > 0 and float(down.signal) > 0


@pytest.mark.parametrize(("at_once", "lead"), [(False, [(), ()]), (True, [(2,)])])
def test_the_bare_step_has_gradients_of_all_encoders(
    at_once: bool, lead: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every parameter of the DCGAN encoder: one by one, as on a CPU, or of two in a stack, as on a GPU."""
    seen: list[list[tuple[int, ...]]] = []
    grad = torch.autograd.grad

    def noted(outputs: Tensor, inputs: list[Tensor], *rest: Tensor) -> tuple[Tensor, ...]:
        found = grad(outputs, inputs, *rest)
        seen.append([tuple(outputs.shape), *(tuple(g.shape) for g in found)])
        return found

    monkeypatch.setattr(torch.autograd, "grad", noted)
    encoder_step("cpu", 2, at_once)()
    shapes = [tuple(p.shape) for p in ENCODERS.get("dcgan")(3, FEATURES).parameters()]
    assert seen == [[(*k, *shape) for shape in [(SAMPLES, FEATURES), *shapes]] for k in lead]


def test_the_benchmark_leaves_threads_and_the_global_generator_alone() -> None:
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    found = BenchChannels(links="awgn", repeats=1, quick=True).measure().rows
    assert torch.equal(torch.get_rng_state(), before) and torch.get_num_threads() == threads
    assert found.link.tolist() == ["awgn"] and len(found.call_ms[0]) == len(found.step_ms[0]) == 1


@pytest.mark.parametrize(("links", "repeats"), [("awgn,phase", None), ("awgn", 0)])
def test_what_cannot_be_measured_is_refused(links: str, repeats: int | None) -> None:
    with pytest.raises(ConfigError, match="^links: 'phase' is not one of ideal, awgn|^repeats: 0"):
        BenchChannels(links=links, repeats=repeats).measure()


def test_the_command_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "channels", "--quick", "--links", "ideal,ofdm-tdl-ls", "--json", str(tmp_path / "a.json")]
    assert cli.main([*words, "--log-level", "error"]) == 0
    out = capsys.readouterr().out
    assert "ofdm-tdl-ls" in out and "2 clients x 64 samples x 32 symbols" in out
    ideal, tdl = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert len(ideal["call_ms"]) == 2 and ideal["target"] is None and ideal["met"] is None
    assert tdl["options"] == {"profile": "tdl-a", "csi": "ls"} and tdl["met"] in (True, False)
