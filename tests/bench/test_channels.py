"""What links cost: numbers by hand from fixed times, the passes that are timed, and the command in small."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from channels import LINKS
from semcom.bench.channels import CASES, ChannelsReport, DeviceResult, LinkResult, as_json, bench, table
from semcom.bench.passes import FEATURES, SAMPLES, STEPS, EncoderStep, Pass, seconds
from semcom.cli import main as cli
from semcom.config import ConfigError

CPU = torch.device("cpu")
MACHINE = {"cpu": "A processor", "cores": 2, "gpu": None, "versions": {"torch": "2.15.0"}}
IDEAL = LinkResult(CASES["ideal"], (0.001, 0.003, 0.002), (1e-5, 3e-5, 2e-5))
AWGN = LinkResult(CASES["awgn"], (0.005, 0.002, 0.004), (1e-4, 1e-4, 4e-4))
RESULT = DeviceResult("cpu", (1.0, 2.0, 0.5), (IDEAL, AWGN))


def test_shares_and_targets_by_hand() -> None:
    """Medians: 4 ms of 1 s are 0.4%, below 0.5%; 6 ms are not."""
    assert RESULT.share(AWGN) == pytest.approx(0.004) and RESULT.met(AWGN) is True
    assert RESULT.met(IDEAL) is None
    assert RESULT.met(replace(AWGN, call=(0.006,))) is False
    assert RESULT.round_share(AWGN, 20) == pytest.approx(20 * 1e-4 / STEPS / 1.0)
    assert replace(RESULT, device="cuda").met(replace(AWGN, call=(0.099,))) is True


def test_the_table_and_the_file() -> None:
    slow = replace(AWGN, case=CASES["rayleigh"], call=(0.02,))
    report = ChannelsReport(MACHINE, 20, 3, [replace(RESULT, links=(IDEAL, AWGN, slow))])
    assert table(report) == (
        "A processor, 2 cores, torch 2.15.0; 20 clients x 64 samples x 32 symbols, forward and backward; "
        "3 repeats after a warm-up\n"
        "\n"
        "cpu, one thread; bare step of the encoders: 1000 ms (min 500, max 2000)\n"
        "   link      ms/call: min  median  max  % of step  target  ms/draw: min  median   max  % of round\n"
        "   ideal                1       2    3      0.200       -          0.01    0.02  0.03       0.008\n"
        "   awgn                 2       4    5      0.400   < 0.5           0.1     0.1   0.4       0.040\n"
        "   rayleigh            20      20   20      2.000   < 0.5           0.1     0.1   0.4       0.040\n"
        "a draw is one client's round of 5 steps in one direction; % of round: those of all clients; "
        "targets missed by rayleigh"
    )
    stored = json.loads(json.dumps(as_json(report)))
    assert stored["benchmark"] == "channels" and stored["devices"][0]["bare_step_seconds"] == [1.0, 2.0, 0.5]
    link = stored["devices"][0]["links"][1]
    assert (link["case"]["name"], link["call"], link["share_of_step"], link["met"]) == (
        "awgn",
        [0.005, 0.002, 0.004],
        0.004,
        True,
    )


def test_every_link_is_measured() -> None:
    built_in = {"ideal", "awgn", "rayleigh", "rician", "ofdm", "digital"}
    assert built_in <= {case.kind for case in CASES.values()} <= set(LINKS.names())


@pytest.mark.parametrize("name", CASES)
def test_a_pass_goes_both_ways_and_is_metered(name: str) -> None:
    work = Pass(CASES[name], CPU, 2)
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


def test_the_bare_step_has_gradients_of_all_encoders() -> None:
    step = EncoderStep(CPU, 2)
    assert len(step.passes) == 2  # client by client on a CPU
    model, batch = step.passes[0]
    assert model.encode(batch).shape == (1, SAMPLES, FEATURES) and batch.x.shape == (1, SAMPLES, 3, 32, 32)
    assert all(name.startswith("encoder.") and t.requires_grad for name, t in model.params.items())
    running = model.fixed["encoder.3.running_mean"].clone()
    step()
    assert not torch.equal(model.fixed["encoder.3.running_mean"], running), "not in training mode"


def test_seconds_are_a_mean() -> None:
    calls = []
    assert seconds(lambda: calls.append(1), CPU, 7) >= 0 and len(calls) == 7


def test_the_benchmark_leaves_threads_and_the_global_generator_alone() -> None:
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    report = bench("awgn", 1, quick=True)
    assert torch.equal(torch.get_rng_state(), before) and torch.get_num_threads() == threads
    assert [link.case.name for link in report.devices[0].links] == ["awgn"] and len(report.devices[0].step) == 1


@pytest.mark.parametrize(("links", "repeats"), [("awgn,phase", None), ("awgn", 0)])
def test_what_cannot_be_measured_is_refused(links: str, repeats: int | None) -> None:
    with pytest.raises(ConfigError, match="^links: 'phase' is not one of ideal, awgn|^repeats: 0"):
        bench(links, repeats)


def test_the_command_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "channels", "--quick", "--links", "ideal,ofdm-tdl-ls", "--json", str(tmp_path / "a.json")]
    assert cli.main([*words, "--log-level", "error"]) == 0
    out = capsys.readouterr().out
    assert "ofdm-tdl-ls" in out and "2 clients x 64 samples x 32 symbols" in out
    assert len(json.loads((tmp_path / "a.json").read_text())["devices"][0]["links"][0]["call"]) == 2
    assert cli.main(["list", "benches"]) == 0
    assert "channels  A pass through each link" in capsys.readouterr().out
