"""The command line: what it reads, what it prints, and its exit statuses."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semcom
from semcom.channels.fading import AWGN
from semcom.channels.options import BaseOptions
from semcom.cli import flags
from semcom.cli import main as cli
from semcom.cli import printing as report
from semcom.config import AirConfig, ChannelConfig, ConfigError, RunConfig, RunError, TrainConfig, to_dict
from semcom.data.partitions import Shots
from semcom.engine.air.rates import Fixed
from semcom.methods.registry import METHODS
from semcom.runs.request.section_options import build_section_options
from semcom.runs.request.setup import Setup
from tests.commands import read
from tests.terminal import on_pty

pytestmark = pytest.mark.usefixtures("here")
TRAIN = ["train", "fedavg", "--out", "out"]


def stored(tmp_path: Path, config: RunConfig) -> str:
    """The path of a config.json."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(to_dict(config)))
    return str(path)


# Reading -------------------------------------------------------------------------------------------------------------


def test_the_flags_of_the_issue_reach_the_configuration() -> None:
    line = (
        "fedavg --data.name cifar10 --data.root DIR --partition.kind shots --partition.ways 3 --partition.shots 100 "
        "--clients 20 --channel.kind awgn --channel.snr-db 9 --train.rounds 60 --train.batch-size 50 --train.lr 0.001 "
        "--seed 4 --out OUT --device cpu"
    )
    config = read(*line.split())
    expected = RunConfig(method="fedavg", hyper=config.hyper, seed=4, out="OUT", device="cpu", clients=20)
    expected = dataclasses.replace(
        expected,
        data=semcom.DataConfig("cifar10", "DIR", BaseOptions()),
        partition=semcom.PartitionConfig("shots", options=Shots.Options(ways=3, shots=100)),
        channel=ChannelConfig("awgn", 9.0, options=AWGN.Options()),
        air=AirConfig(options=Fixed.Options()),
        network=semcom.NetworkConfig(options=config.network.options),
        train=TrainConfig(rounds=60, batch_size=50, lr=0.001),
    )
    assert config == expected
    assert vars(config.network.options).keys() == {"shadowing_db", "carrier_ghz", "flops", "flops_spread"}


@settings(max_examples=10, deadline=None)
@given(st.floats(allow_nan=False))
def test_any_number_of_db_is_read_back(value: float) -> None:
    assert read("fedavg", "--channel.snr-db", repr(value)).channel.snr_db == value


@pytest.mark.parametrize("text", ["9,12,6", "-3,4", "0:18", "-6:18"])
def test_lists_and_ranges_of_db_stay_text(text: str) -> None:
    assert read("fedavg", "--channel.snr-db", text).channel.snr_db == text


@pytest.mark.parametrize(
    ("words", "lr"), [(["0.1"], 0.1), (["1"], 1.0), (["0.1", "0.2", "1e-3"], (0.1, 0.2, 1e-3)), (["None"], None)]
)
def test_one_rate_or_one_per_client(words: list[str], lr: Any) -> None:
    assert read("fedavg", "--train.lr", *words, "--clients", "3").train.lr == lr


def test_several_plugins_may_follow_their_flag() -> None:
    """Words that are files belong to it; a name may come last."""
    early = flags.read_early_flags(["--plugin", "a.py", "b.py", "own", "--plugin", "pkg.c", "d.py"])
    assert (early.name, early.plugins, early.rest) == ("own", ("a.py", "b.py", "pkg.c", "d.py"), [])


def test_whole_numbers_stay_whole() -> None:
    config = read("fedavg", "--train.local-epochs", "2", "3", "--partition.scarce", "1", "4", "--clients", "5")
    assert config.train.local_epochs == (2, 3) and config.partition.scarce == (1, 4)


def test_hyperparameters_are_flags_of_the_method() -> None:
    assert read("fedcl", "--hyper.lam", "0.5").hyper.lam == 0.5
    assert read("fedcl").hyper.lam == 1 / 64


def test_flags_override_a_stored_configuration(tmp_path: Path) -> None:
    before = RunConfig(method="fedcl", hyper={"lam": 0.25, "tau": 0.5}, clients=7, train=TrainConfig(lr=(0.1,) * 7))
    path = stored(tmp_path, before)
    same = read("--config", path)
    assert same == build_section_options(before) and (same.hyper.lam, same.hyper.tau) == (0.25, 0.5)
    changed = read("fedcl", "--config", path, "--hyper.lam", "0.75", "--clients", "9")
    assert (changed.hyper.lam, changed.hyper.tau, changed.clients) == (0.75, 0.5, 9)
    other = read("fedavg", "--config", path)  # another method has other hyperparameters
    assert (other.method, other.clients) == ("fedavg", 7) and not hasattr(other.hyper, "lam")


@pytest.mark.parametrize("columns", [80, 120])
def test_help_shows_every_field_and_fits_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.main(["train", "fedcl", "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= columns
    for part in dataclasses.fields(RunConfig):
        section = part.default_factory
        for field in dataclasses.fields(section) if dataclasses.is_dataclass(section) else ():
            assert field.name == "options" or f"--{part.name}.{field.name.replace('_', '-')}" in text
    for flag in (
        "--hyper.lam FLOAT",
        "--train.lr FLOAT [FLOAT ...]",
        "--train.lr-milestones [INT ...]",
        "--train.lr-decay FLOAT [FLOAT ...]",
        "--channel.snr-db FLOAT|STR",
        "--config",
        "--plugin",
    ):
        assert flag in text
    assert "--hyper " not in text and "--contents" not in text and "{None}" not in text


def test_without_a_method_there_are_no_hyperparameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--help"]) == 0
    assert "--train.lr" in (text := capsys.readouterr().out) and "hyper.lam" not in text


# Exit status and output ----------------------------------------------------------------------------------------------

SUMMARY = {
    "method": "fedcl",
    "accuracy": 0.67123,
    "rounds": 60,
    "views": {"personal": {"accuracy": 0.67123, "accuracy_std": 0.0412, "worst10": 0.555}},
    "snr_received_db": {"train_up": 10.02, "train_down": float("nan"), "test": None},
    "traffic": {
        way: {"floats": floats, "bits": 614400, "uses": 9600, "airtime_s": 0.0096, "energy_j": 9600}
        for way, floats in (("up", 19200), ("down", 4))
    },
}


@pytest.fixture
def fake_run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Puts something else in the place of training."""

    def replace(run: Callable[..., Any]) -> None:
        monkeypatch.setattr("semcom.runs.rounds.runner._train", run)

    return replace


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (RunError("round 3, client 1: not finite"), 1, "error: round 3, client 1: not finite"),
        (OSError(28, "No space left on device", "out/x"), 1, "error: [Errno 28] No space left on device: 'out/x'"),
        (ConfigError("data.root: is\nmissing"), 2, "error: data.root: is missing"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=["failed", "disk", "request", "interrupted"],
)
def test_exit_status_says_whose_fault_it_was(
    error: BaseException, status: int, line: str, fake_run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(setup: Setup, on_round: Any, *_: Any) -> None:
        raise error

    fake_run(run)
    assert cli.main(TRAIN) == status
    assert capsys.readouterr().err == f"semcom: {line}\n"


def test_a_bug_is_not_dressed_up_as_a_wrong_request(fake_run: Any) -> None:
    def run(setup: Setup, on_round: Any, *_: Any) -> None:
        raise ValueError("shapes do not match")

    fake_run(run)
    with pytest.raises(ValueError, match="shapes"):
        cli.main(TRAIN)


def test_train_prints_log_lines_and_the_result(fake_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def run(setup: Setup, on_round: Any, *_: Any) -> SimpleNamespace:
        assert setup.config.train.rounds == 2, "the run gets a resolved configuration"
        on_round({"round": 1, "loss": 2.30258})
        on_round({"round": 2, "loss": 1.5, "views": {"personal": {"accuracy": 0.67123}}})
        return SimpleNamespace(summary=SUMMARY, out=Path("out"))

    fake_run(run)
    assert cli.main([*TRAIN, "--train.rounds", "2"]) == 0
    out, err = capsys.readouterr()
    assert [line.split(" ", 1)[1] for line in err.splitlines()] == [
        "INFO round 1/2  loss 2.303",
        "INFO round 2/2  loss 1.5  personal 67.1%",
    ]
    assert out == report.format_result_table(SUMMARY) + "\nfolder: out\n"
    assert cli.main([*TRAIN, "--train.rounds", "2", "--log-level", "warning"]) == 0
    assert capsys.readouterr().err == ""
    assert logging.getLogger().handlers == [h for h in logging.getLogger().handlers if "capsys" not in repr(h)]


def test_result_table_states_what_was_measured() -> None:
    lines = report.format_result_table(SUMMARY).splitlines()
    assert lines[0] == "fedcl: accuracy 67.1 % after 60 rounds"
    assert lines[1].split("  ")[0] == "view" and lines[2].split() == ["personal", "67.1", "4.1", "55.5"]
    assert lines[3] == "received SNR: train up 10.02 dB, train down -, test -"
    visited = report.format_result_table({**SUMMARY, "samples": 12345}).splitlines()
    assert visited[3] == "training samples visited: 12,345" and visited[4] == lines[3]
    assert lines[5] == "  uplink  : 19,200 floats, 614,400 bits, 9,600 channel uses, 0.0096 s, energy 9,600 symbols"
    assert lines[6].startswith("  downlink: 4 floats")
    wrong = {"train_up": {"bits": 0.01234, "blocks": 0.5}, "test": {"bits": 0.0, "blocks": 0.0}}
    lines = report.format_result_table({**SUMMARY, "error_rates": wrong}).splitlines()
    assert lines[4] == "errors: train up 0.0123 of bits, 0.5 of blocks; test 0 of bits, 0 of blocks"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, " (mean of the last 10 rounds; the last one: 70.0 %)"),
        ({"rounds": 1}, ""),
        ({"finish": {"views": {"personal": {}}}}, " and its last stage"),
        (
            {"stopped": {"rounds": 90, "best_on_validation": 57}},
            " (of 90; the best on validation images: round 57) (mean from round 57 on; the last one: 70.0 %)",
        ),
    ],
)
def test_the_headline_says_which_mean_it_is(more: dict[str, Any], said: str) -> None:
    view = {**SUMMARY["views"]["personal"], "last": 0.7, "clients": [0.6, 0.7]}  # type: ignore[index]
    summary = {**SUMMARY, "views": {"personal": view}, **more}
    end = "1 round" if summary["rounds"] == 1 else "60 rounds"
    assert report.format_result_table(summary).splitlines()[0] == f"fedcl: accuracy 67.1 % after {end}{said}"


def test_several_tests_have_their_own_snr_and_errors() -> None:
    view = {**SUMMARY["views"]["personal"], "at": {"9": 0.5, "-3": 0.3}}  # type: ignore[index]
    snr = {"train_up": 5.0, "train_down": None, "test": 9.02, "test_at": {"9": 9.02, "-3": -2.97}}
    wrong = {
        "test": {"bits": 0.0, "blocks": 0.0},
        "test_at": {"9": {"bits": 0, "blocks": 0}, "-3": {"bits": 0.1, "blocks": 1}},
    }
    summary = {**SUMMARY, "views": {"personal": view}, "snr_received_db": snr, "error_rates": wrong}
    lines = report.format_result_table(summary).splitlines()
    assert "received SNR: train up 5.00 dB, train down -, test at 9 dB 9.02 dB, test at -3 dB -2.97 dB" in lines
    errors = "test at 9 dB 0 of bits, 0 of blocks; test at -3 dB 0.1 of bits, 1 of blocks"
    assert f"errors: {errors}" in lines


@pytest.mark.parametrize(
    ("clients", "last", "shown"),
    [
        ([0.5, 0.7], 0.79, False),
        ([0.5, 0.7], 0.81, True),
        ([0.5, 0.5, 0.6, 0.7, 0.7], 0.68, False),
        ([0.5, 0.5, 0.6, 0.7, 0.7], 0.7, True),
        ([0.6, 0.6], 0.6004, False),
        ([0.6], 0.61, True),
    ],
)
def test_the_last_round_stands_beside_a_mean_that_it_is_apart_from(
    clients: list[float], last: float, shown: bool
) -> None:
    """Two standard errors: 2 * 0.1 / sqrt(1) = 0.2 and 2 * sqrt(0.008) / sqrt(4) = 0.0894; one client has none."""
    view = {"accuracy": 0.6, "accuracy_std": np.std(clients), "worst10": 0.5, "clients": clients, "last": last}
    lines = report.format_result_table({**SUMMARY, "views": {"personal": view}}).splitlines()
    assert ("last round" in lines[1]) == shown
    assert not shown or lines[2].split()[-1] == f"{100 * last:.1f}"


def test_of_several_test_snrs_each_has_its_accuracy_and_the_headline_says_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    curve = {f"{snr}": 0.5 + snr / 100 for snr in (9, -15, -3)}
    view = {**SUMMARY["views"]["personal"], "at": curve}  # type: ignore[index]
    summary = {**SUMMARY, "views": {"personal": view, "global": view}, "snr_received_db": {"test": -7.2}}
    lines = report.format_result_table(summary).splitlines()
    assert lines[0] == "fedcl: accuracy 67.1 % at 9 dB after 60 rounds"
    assert lines[4].split("  ")[0] == "accuracy % at" and lines[4].split()[3:] == ["9", "dB", "-15", "dB", "-3", "dB"]
    assert [line.split() for line in lines[5:7]] == [[name, "59.0", "35.0", "47.0"] for name in ("personal", "global")]
    assert lines[7] == "per participating client and round", "three tests together have no one SNR"
    monkeypatch.setattr("semcom.cli.printing.count_terminal_columns", lambda: 30)
    narrow = report.format_result_table(summary).splitlines()
    assert [line.split() for line in narrow[4:10]] == [
        ["accuracy", "%", "at", "9", "dB", "-15", "dB"],
        ["personal", "59.0", "35.0"],
        ["global", "59.0", "35.0"],
        ["accuracy", "%", "at", "-3", "dB"],
        ["personal", "47.0"],
        ["global", "47.0"],
    ]
    one = {**summary, "views": {"personal": {**view, "at": {"9": 0.59}}}}
    assert report.format_result_table(one).splitlines()[0] == "fedcl: accuracy 67.1 % after 60 rounds"


def test_without_a_radio_nothing_is_said_of_it() -> None:
    lines = report.format_result_table(SUMMARY, radio=False).splitlines()
    assert lines[:3] == report.format_result_table(SUMMARY).splitlines()[:3]
    assert lines[3:] == [
        "no radio",
        "per participating client and round",
        "  uplink  : 19,200 floats, 614,400 bits",
        "  downlink: 4 floats, 614,400 bits",
    ]


@pytest.mark.parametrize(
    ("rounds", "window"), [(60, "mean of the last 10 rounds"), (7, "mean of the last 7 rounds"), (1, "the last round")]
)
def test_a_table_of_different_windows_says_which(rounds: int, window: str) -> None:
    numbers = SUMMARY["views"]["personal"]  # type: ignore[index]
    last = {
        "rounds": rounds,
        "finish": {"views": {"finished": numbers}},
        "views": {"finished": numbers, "global": numbers},
    }
    lines = report.format_result_table({**SUMMARY, **last}).splitlines()
    assert [re.split("  +", line)[0] for line in lines[2:4]] == ["finished (at the end)", f"global ({window})"]
    assert lines[2].split()[-3:] == ["67.1", "4.1", "55.5"]


BAR = """
from semcom.runs.rounds.progress import RoundProgress
with RoundProgress(4) as progress:
    progress({"round": 3, "loss": 1.0, "views": {"global": {"accuracy": 0.25}}})  # a resumed run
    progress({"round": 4, "loss": 0.5, "views": {"global": {"accuracy": 0.5}}})
print("the result")
"""


def test_a_terminal_gets_a_bar() -> None:
    text, status = on_pty(BAR)
    assert status == 0
    bar, result = (" ".join(line.split()) for line in text.rstrip().splitlines())
    assert bar.startswith("round 4/4 ") and bar.endswith("loss 0.5 global 50.0%") and result == "the result"


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("channels", {"ideal", "awgn", "rayleigh"}),
        ("partitions", {"shots", "iid", "file"}),
        ("encoders", {"dcgan", "cnn", "resnet18"}),
        ("heads", {"linear", "mlp"}),
        ("figures", {"demo", "channel-ber"}),
        ("datasets", {"digits", "cifar10", "mnist"}),
        ("experiments", {"demo", "letter-fig2b"}),
    ],
)
def test_list_gives_a_line_to_each_name(
    what: str, names: set[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")  # in a narrower terminal a title takes two lines
    assert cli.main(["list", what]) == 0
    titles = dict((line + " ").split(" ", 1) for line in capsys.readouterr().out.splitlines())
    # Plug-ins of other tests, some without a title, may be listed too.
    assert names <= titles.keys() and all(titles[name].strip() for name in names)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == cli.main(["--version"]) == cli.main(["list", "--help"]) == 0
    text = capsys.readouterr().out
    assert (
        all(f"\n  {command} " in text for command in cli.COMMANDS.names()) and f"semcom {semcom.__version__}\n" in text
    )


def test_sweep_draws_the_figure_of_its_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from semcom import plots

    calls: list[Any] = []
    table = Path("results/results.parquet")
    monkeypatch.setattr(
        "semcom.studies.sweep.sweep.execute_sweep", lambda plan, *args, **named: calls.append((args, named)) or table
    )
    monkeypatch.setattr(plots, "render", lambda *args, **named: calls.append((args, named)) or [Path("a.png")])
    line = "sweep demo --scale smoke --jobs 2 --data.root DIR --out results --limit-minutes 30"
    assert cli.main(line.split()) == 0
    chosen = {"jobs": 2, "backend": "loky", "gpus_per_run": None, "limit_minutes": 30.0, "reuse": (), "track": ()}
    assert calls == [((None,), chosen), (("demo",), {"results": table.parent, "out": table.parent})]
    assert capsys.readouterr().out == f"table: {table}\nfigure: a.png\n"


def test_a_plugin_adds_a_name(tmp_path: Path, own_names: None, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from semcom import METHODS\nfrom semcom.methods.local import Local\n\n"
        '@METHODS.register("mine")\nclass Mine(Local):\n    """My own."""\n'
    )
    assert cli.main(["list", "methods", "--plugin", str(plugin)]) == 0
    assert "mine" in capsys.readouterr().out
    first = METHODS.get("mine")
    config = read("mine", "--plugin", str(plugin), "--plugin", str(plugin))
    assert config.plugins == (str(plugin),) and METHODS.get("mine") is first, "it was executed twice"


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "semcom", "--help"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_small_run_from_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    line = "train fedavg --clients 2 --partition.shots 4 --train.rounds 1 --channel.snr-db -6 --out out --device cpu"
    assert cli.main(line.split()) == 0
    out, err = capsys.readouterr()
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["method"] == "fedavg" and 0 <= summary["accuracy"] <= 1
    assert out == report.format_result_table(summary) + "\nfolder: out\n"
    assert "round 1/1" in err
    assert read("--config", "out/config.json").channel.snr_db == -6
    assert cli.main(line.split()) == 0, "a finished run gives its result again"
    assert capsys.readouterr().out == out


LEAVING = """import sys
from semcom.methods.registry import METHODS
from semcom.methods.fedavg import FedAvg

@METHODS.register("test-leaving")
class Leaving(FedAvg):
    def setup(self, world):
        sys.exit({})
"""


@pytest.mark.parametrize("word", ["", "0", "'images are missing'"])
@pytest.mark.parametrize("command", ["train test-leaving", "sweep --methods test-leaving --seeds 0 --out out"])
def test_own_code_that_leaves_python_has_failed(
    command: str, word: str, here: Path, own_names: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "leaving.py").write_text(LEAVING.format(word))
    few = "--clients 2" if command.startswith("train") else "--set clients=2"
    assert cli.main(f"{command} {few} --plugin leaving.py".split()) == 1
    said = capsys.readouterr()
    assert word.strip("'") in said.out + said.err and "SystemExit" in said.out + said.err
