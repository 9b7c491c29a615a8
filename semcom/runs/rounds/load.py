"""A finished run, given back from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from semcom.config import RunError, run_hash
from semcom.engine.host.clock import Clock
from semcom.engine.host.ranks import ALONE
from semcom.engine.train.precision import reset_torch
from semcom.files import CHECKPOINT, WEIGHTS, resolve_file
from semcom.runs.folder.recovery import read_checkpoint, read_covered_metrics
from semcom.runs.folder.stored import read_stored_config
from semcom.runs.folder.summary import read_summary
from semcom.runs.request.images import read_run_images
from semcom.runs.request.limits import limit_memory
from semcom.runs.request.plugins import load_plugins
from semcom.runs.request.resolve import resolve_setup
from semcom.runs.request.trust import take_trusted_plugins
from semcom.runs.result.result import Result
from semcom.runs.rounds.loop import Loop


@reset_torch()
def load(folder: Path | str, *, device: str | None = None, plugins: Sequence[str] = (), trust: bool = False) -> Result:
    """Load the result of a finished run: its numbers, its models as of the last round, and their answers to images.

    Nothing is trained or written. The views of a method's last stage are computed again on demand; on the machine of
    the run they are the same bit for bit, if it had one process or trained clients one by one.

    Args:
        folder: of the run; it may have been moved.
        device: device of the models (None: that of the run's configuration).
        plugins: the user's Python files or modules in the place of those that the run names.
        trust: whether plug-ins that it names, and this process has not loaded, are executed.

    Raises:
        ConfigError: the folder holds no run, or one whose data or plug-ins have changed, or it names a plug-in that is
            neither given nor trusted; the line names the file that would be executed.
        RunError: the run is not finished, or a file of it is damaged.

    Example:
        >>> import semcom
        >>> small = semcom.RunConfig("fedavg", clients=2, train=semcom.TrainConfig(rounds=1), out="runs/one")
        >>> accuracy = semcom.run(small).summary["accuracy"]
        >>> semcom.load("runs/one").summary["accuracy"] == accuracy
        True
    """
    folder = resolve_file(folder).absolute()
    load_plugins(plugins)
    stored = take_trusted_plugins(read_stored_config(folder, "load"), trust)
    # Without `out`: rows that lie in a file are copied, and nothing is written to the folder.
    setup = resolve_setup(replace(stored, out=None, processes=1, device=device or stored.device))
    config = setup.config
    summary = read_summary(folder, run_hash(config))
    if summary is None:
        raise RunError(f"{folder}: the run is not finished; run it again, and it goes on")
    with limit_memory():
        loop = Loop(setup, read_run_images(config), None, None, Clock(), ALONE)
        path = next((path for path in (folder / CHECKPOINT, folder / WEIGHTS) if path.exists()), None)
        if path is None:
            raise RunError(
                f"{folder}: the run has kept none of its models; train it in another folder with --keep weights"
            )
        content = read_checkpoint(path, config, loop.progress)
        loop.rounds = summary["rounds"]
        if content["progress"]["round"] != loop.rounds:
            raise RunError(f"{path} is of round {content['progress']['round']}; run it again, and it goes on")
        loop.restore(content, folder)
    loop.metrics = read_covered_metrics(folder, loop.rounds, content["progress"]["lines"])
    return replace(loop.result(summary, folder), config=replace(config, out=str(folder)))
