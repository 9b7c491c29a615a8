"""Sweeps on a Ray cluster of two nodes: what runs, what is lost and tried again, and what a signal leaves."""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import semcom
from semcom.cli import main as cli
from semcom.config import RunConfig, RunError, to_dict
from semcom.files import METRICS, SUMMARY
from semcom.runs.folder.checkpoint import load_checkpoint
from semcom.runs.folder.lock import BusyError
from semcom.runs.request.stop import STATUS
from semcom.studies.results.table import read_table
from semcom.studies.sweep import ray_pool as on_ray
from semcom.studies.sweep.plan import make_plan
from semcom.studies.sweep.progress import SweepProgress
from semcom.studies.sweep.request import parse_request
from semcom.studies.sweep.sweep import check_sweep_data, sweep
from tests.processes import Forked, gone, watch_doors
from tests.refusals import refuses
from tests.studies.sweep.clusters import OPEN, Cluster, Node, cluster
from tests.studies.sweep.test_kills import results

os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # as `cluster` sets it before it imports Ray
NO_RAY = find_spec("ray") is None  # not imported here: what listens depends on the first import
pytestmark = [pytest.mark.slow, pytest.mark.skipif(NO_RAY, reason="pip install 'semcom[ray]'")]

Run = Callable[[RunConfig], None]
REAL = {"semcom.resolve": semcom.resolve, "semcom.studies.sweep.sweep.check_sweep_data": check_sweep_data}
"""What the stand-ins of conftest.py take the place of."""
PLUGIN = """
import os
import time
from pathlib import Path

import semcom
from semcom.studies.experiment import Experiment, Grid
from semcom.studies.registry import EXPERIMENTS
from semcom import ModelConfig, PartitionConfig, RunConfig, TrainConfig


def train(config):
    with (Path(config.out) / "began.txt").open("a") as file:
        file.write(f"{os.getpid()} {os.environ['OMP_NUM_THREADS']}\\n")
    semcom.run(config, on_round=lambda line: time.sleep(0.1))


base = RunConfig(
    clients=3,
    device="cpu",
    model=ModelConfig(encoder="dcgan-narrow"),
    train=TrainConfig(rounds=12, checkpoint_every=2),
    partition=PartitionConfig(options={"shots": 4}),
)
scales = {"smoke": Grid(base, {"seed": (0, 1)})}
EXPERIMENTS.register("own")(Experiment("own", "Own training", "none", ("fedavg", "local"), scales, train=train))
"""


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Cluster]:
    with cluster() as found:
        yield found


@pytest.fixture
def connected(two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for name, value in {**OPEN, "RAY_ADDRESS": two_nodes.address}.items():
        monkeypatch.setenv(name, value)
    return two_nodes


# Stand-ins for training ----------------------------------------------------------------------------------------------


def test_runs_end_in_all_ways(
    connected: Cluster, tmp_path: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One raises, one kills its worker each time, one only once, one takes too long; the others are done."""

    monkeypatch.setattr(on_ray, "TRIES", 1)

    def run(config: RunConfig) -> None:
        case = (config.method, config.channel.snr_db)
        with (Path(str(config.out)) / "began.txt").open("a") as file:
            file.write(f"{os.environ['CUDA_VISIBLE_DEVICES']}\n")
            file.flush()
            if case == ("fedcl", 0.0):
                raise RuntimeError("loss is not finite")
            if case == ("fedcl", 9.0) or (case == ("fedcl", 18.0) and file.tell() <= 1):
                os.kill(os.getpid(), signal.SIGKILL)
        if case == ("fedavg", 0.0):
            time.sleep(20)
        fake_run(config)

    with pytest.raises(RunError, match="^3 of 6 runs failed"):
        sweep("demo", out=tmp_path, backend="ray", train=run, methods=("fedcl", "fedavg"), limit_minutes=0.01)
    frame = read_table(tmp_path).set_index(["method", "channel.snr_db"])
    errors = frame["error"].dropna().to_dict()
    assert errors.pop(("fedcl", 0.0)) == "RuntimeError: loss is not finite"
    assert errors.pop(("fedavg", 0.0)) == "TimeUp: stopped after 0.01 minutes"
    assert errors.pop(("fedcl", 9.0)).startswith("the process ended without a result: WorkerCrashedError: ")
    assert not errors
    tried = {at: (tmp_path / key / "began.txt").read_text().splitlines() for at, key in frame["hash"].items()}
    assert tried.pop(("fedcl", 9.0)) == [""] * 2, "no run sees a GPU"
    assert tried.pop(("fedcl", 18.0)) == [""] * 2 and all(lines == [""] for lines in tried.values())


def test_jobs_bound_the_runs_at_a_time(connected: Cluster, tmp_path: Path, fake_run: Run) -> None:
    def run(config: RunConfig) -> None:
        begun = time.time()
        time.sleep(0.5)
        (Path(str(config.out)) / "times.json").write_text(json.dumps([begun, time.time()]))
        fake_run(config)

    sweep("demo", out=tmp_path, backend="ray", train=run, methods="fedcl", jobs=1)
    times = [json.loads(path.read_text()) for path in tmp_path.glob("*/times.json")]
    assert len(times) == 3 and max(sum(a <= begun < b for a, b in times) for begun, _ in times) == 1


def test_a_run_gets_its_part_of_a_gpu(connected: Cluster, tmp_path: Path, fake_run: Run) -> None:
    def run(config: RunConfig) -> None:
        (Path(str(config.out)) / "gpu.txt").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
        fake_run(config)

    before = signal.getsignal(signal.SIGTERM)
    sweep("demo", out=tmp_path / "a", backend="ray", train=run, methods="fedcl", gpus_per_run=0.25)
    assert signal.getsignal(signal.SIGTERM) == before
    assert [path.read_text() for path in tmp_path.glob("a/*/gpu.txt")] == ["0"] * 3
    with refuses("gpus_per_run", 2):
        sweep("demo", out=tmp_path / "b", backend="ray", train=run, gpus_per_run=2)
    with refuses("processes", 2):
        sweep("demo", out=tmp_path / "c", backend="ray", train=run, set={"processes": 2})


# Without a cluster ---------------------------------------------------------------------------------------------------


def test_a_cluster_that_is_not_there(tmp_path: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with refuses("backend", "127.0.0.1:1"):
        sweep("demo", out=tmp_path, backend="ray", train=fake_run)


def test_a_worker_says_why_nothing_is_left(here: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of another machine, a run that another process keeps, and a full disk."""
    monkeypatch.setattr(on_ray, "LOCK_S", 0.1)
    monkeypatch.setattr(on_ray, "TICK_S", 0.1)
    config = next(iter(make_plan("demo", out=here / "r").runs.values()))
    monkeypatch.setattr(on_ray, "attempt_run", attempt := Attempt())

    def why() -> str:
        return on_ray._carry_out(to_dict(config), fake_run, None, str(here / "nowhere"), on_ray._read_version())[1]

    assert "is not the folder of the sweep on" in why() and attempt.times == 0
    (here / "r").mkdir()
    (here / "r" / "sweep.json").touch()
    attempt.error = BusyError("out: another process is running")
    assert why() == "out: another process is running" and attempt.times >= 2
    attempt.error = OSError(28, "No space left on device")
    assert "takes no more files on" in why()
    attempt.error = None
    assert why() == ""


def test_a_machine_says_what_it_lacks(here: Path) -> None:
    """Another version, no plug-in, one that fails, one of another content."""
    own, place = on_ray._read_version(), str(here)  # and back: what is asked goes to the folder of the sweep
    (here / "whole.py").write_text("from semcom import SCHEDULERS\nSCHEDULERS.register('test-whole')(len)\n")
    (here / "fails.py").write_text("import nothing_of_this_name\n")
    whole, fails, gone_one = (str(here / name) for name in ("whole.py", "fails.py", "gone.py"))

    def why(version: str, *plugins: str, digest: str | None = None) -> str:
        return on_ray._find_lacks(version, plugins, {} if digest is None else {whole: digest}, place)[1]

    assert why(own) == why(own.partition(" ")[0]) == why(own, whole) == ""
    assert why("0.0.9 abc") == f"it has semcom {own}, and the sweep's machine 0.0.9 abc; install the same"
    for plugin in (gone_one, "no_such_module_of_mine", fails):
        assert why(own, whole, plugin).startswith(f"plugin: {plugin!r} cannot be imported: ")
    assert why(own, whole, digest="0123") == f"plugin: {whole!r} is another one there"


def test_a_cluster_with_another_version_is_refused(
    connected: Cluster, tmp_path: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = on_ray._read_version()
    monkeypatch.setattr(on_ray, "_read_version", lambda: "9.9 abc")
    with refuses("backend", f"cannot take part: it has semcom {own}, and the sweep's machine 9.9 abc"):
        sweep("demo", out=tmp_path, backend="ray", train=fake_run, methods="fedcl")
    assert not list(tmp_path.glob("*/summary.json"))


def sweep_on_own_ray() -> int:
    words = "--methods local --seeds 0..1 --set clients=2 --set train.rounds=1 --set model.encoder=dcgan-narrow"
    return cli.main(f"sweep {words} --set partition.shots=4 --keep checkpoint --backend ray --out own".split())


def test_a_ray_of_our_own_listens_to_this_machine_alone(
    here: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes that the sweep starts, from the first to the last. It does not begin where Ray is imported."""
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with watch_doors() as opened, Forked(sweep_on_own_ray) as process:
        assert process.wait(400) == 0, process.stderr.read()
    assert {"gcs_server", "raylet"} <= {name for name, _, _ in opened} and len(opened) >= 5
    assert {address for _, address, _ in opened} == {"127.0.0.1"}
    assert len(results(here / "own")) == 2
    importlib.import_module("ray")
    with watch_doors() as opened, refuses("backend", on_ray.LOOPBACK):
        sweep("demo", out=here / "late", backend="ray", train=fake_run, methods="fedcl")
    assert not opened


class Attempt:
    """Stands in for `attempt`."""

    def __init__(self) -> None:
        self.times, self.error = 0, None

    def __call__(self, *_: object) -> None:
        self.times += 1
        if self.error is not None:
            raise self.error


def test_a_result_that_is_late_is_waited_for(tmp_path: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system shows it only after a while; a folder that is not shared never does."""
    runs = make_plan("demo", request=parse_request(methods="fedcl"), out=tmp_path).runs
    with SweepProgress(runs) as progress:
        tasks = on_ray._Tasks(progress, lambda config: None, None)
        late, never = list(runs)[:2]
        tasks._ended = {late: (time.monotonic() + 60, "b"), never: (time.monotonic() - 1, "b")}
        tasks._look()
        assert set(tasks._ended) == {late}
        assert tasks.why == {never: f"b has ended it, but {tmp_path / never} shows nothing of it here"}
        Path(str(runs[late].out)).mkdir()
        fake_run(runs[late])
        tasks._look()
        assert not tasks._ended and len(progress.waiting()) == 2


@pytest.mark.parametrize(
    ("device", "gpus", "wanted"),
    [("cuda", None, "--gpus-per-run 0.5"), ("cpu", 0.5, "leave it out"), ("cuda:1", 0.5, "leave it out")],
)
def test_devices_that_ray_does_not_give(
    tmp_path: Path, fake_run: Run, device: str, gpus: float | None, wanted: str
) -> None:
    with refuses("device", repr(device), wanted):
        sweep("demo", out=tmp_path, backend="ray", train=fake_run, set={"device": device}, gpus_per_run=gpus)


# Real runs -----------------------------------------------------------------------------------------------------------


def carried_out(*words: str, meanwhile: Callable[[], object] = lambda: None) -> tuple[int, str, str]:
    """Status and output of a sweep of the plug-in, in this process; another thread looks at it meanwhile."""
    found: list[BaseException] = []

    def look() -> None:
        try:
            meanwhile()
        except BaseException as error:  # said by the test, not by the thread
            found.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as said:
        status = cli.main(["sweep", "own.py", "--keep", "checkpoint", *words])
    thread.join()
    if found:
        raise AssertionError(said.getvalue()) from found[0]
    return status, printed.getvalue(), said.getvalue()


def process_of(run: Path) -> int:
    """The process that had a run last."""
    return int((run / "began.txt").read_text().splitlines()[-1].split()[0])


def in_the_middle(out: Path, node: Node | None = None) -> Path:
    """The folder of a run that has some of its rounds behind it and some before it, on this node."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for path in out.glob(f"*/{METRICS}"):
            here = not gone(process_of(path.parent)) and (node is None or process_of(path.parent) in node.pids())
            if here and 3 <= len(path.read_bytes().splitlines()) <= 8 and not (path.parent / SUMMARY).exists():
                return path.parent
        time.sleep(0.05)
    raise AssertionError("no run is running")


def test_signals_and_lost_workers_and_nodes_cost_no_result(
    connected: Cluster, here: Path, own_names: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep is stopped and started again, loses a worker, then a node: its results are those without Ray."""
    for name, real in REAL.items():
        monkeypatch.setattr(name, real)
    Path("own.py").write_text(PLUGIN)
    out, words, seen = here / "ray", ("--backend", "ray", "--out", "ray"), dict[str, Any]()
    assert carried_out("--out", "here")[0] == 0

    def stop() -> None:
        seen["kept"] = in_the_middle(out)
        os.kill(os.getpid(), signal.SIGTERM)

    status, _, first = carried_out(*words, meanwhile=stop)
    kept = seen["kept"]
    assert status == STATUS and first.endswith("semcom: stopped by SIGTERM\n"), first
    # Also the other run's: one that is still ending would be taken for the worker that the next sweep loses.
    began = [path.parent for path in out.glob("*/began.txt")]
    assert kept in began and all(gone(process_of(run), 10) for run in began)
    finished = results(out).keys()
    assert (
        load_checkpoint(kept / "checkpoint.pt")["progress"]["round"]
        == len((kept / METRICS).read_bytes().splitlines())
        >= 3
    )

    def lose() -> None:
        seen["worker"] = in_the_middle(out, connected.head)
        os.kill(process_of(seen["worker"]), signal.SIGKILL)
        seen["node"] = in_the_middle(out, connected.other)
        connected.other.kill()

    status, printed, second = carried_out(*words, meanwhile=lose)
    assert status == 0, second
    assert printed.startswith("Accuracy in %") and "raylet" not in printed
    lines = [*first.splitlines(), *second.splitlines()]
    for what, run in (("process", seen["worker"]), ("machine", seen["node"])):
        told = f"the {what} of run {run.name} is lost; it is tried again"
        assert any(line.endswith(told) for line in lines), "\n".join([told, *lines])
    found = results(out)
    assert found == results(here / "here") and len(found) == 4
    reported = [line.split(", ")[-2] for line in lines if ", accuracy " in line]
    assert len(set(reported)) == len(reported), "none twice"
    # A run that ends while the sweep is being stopped has its result and no line.
    assert set(found) - finished <= set(reported) <= set(found)
    for run in (kept, seen["worker"], seen["node"]):
        began = (run / "began.txt").read_text().splitlines()
        assert len(began) >= 2 and {line.split()[1] for line in began} == {"1"}, "one thread"
    assert all([line["round"] for line in rounds] == list(range(1, 13)) for _, rounds, _ in found.values())
