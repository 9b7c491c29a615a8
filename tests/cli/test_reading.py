"""Commands that only read import no torch, which takes seconds and hundreds of MB, and only reports need plotly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import semcom
from semcom.channels import LINKS
from semcom.config import ChannelConfig, ConfigError, DataConfig, FinishConfig, PartitionConfig, RunConfig
from semcom.data.registry import DATASETS, PARTITIONS
from semcom.methods.registry import METHODS
from semcom.studies.analysis.defaults import list_default_fields
from semcom.studies.results.table import list_table_fields
from semcom_papers.experiments.catalogue import RESULTS

STUDY = RESULTS / "letter-fig2b-small.zip"
RUN = "075f814be7b9"
COMMANDS = f"""
show {STUDY}
show {STUDY}/{RUN}
results {STUDY} --csv tables
table {STUDY}
compare {STUDY} fedcl fedavg
plot {STUDY} --x channel.snr_db --out .
plot {STUDY} --kind curves --at channel.snr_db=9 --out .
figure letter-fig2b --results {STUDY} --out .
claims --paper repper
list methods
list channels
list partitions
list datasets
list encoders
report {STUDY} --out report.html
"""
CODE = """
import sys
from semcom.cli.main import main
for line in sys.argv[1].strip().splitlines():
    assert main(line.split()) == 0, line
    assert "torch" not in sys.modules, line
    assert ("plotly" in sys.modules) == line.startswith("report"), line
"""


def test_no_command_that_reads_imports_torch(tmp_path: Path) -> None:
    (tmp_path / ".cache" / "semcom").mkdir(parents=True)
    words = [sys.executable, "-c", CODE, COMMANDS]
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / ".cache"), "MPLCONFIGDIR": str(tmp_path)}
    python = {"PYTHONPATH": os.pathsep.join([str(RESULTS.parents[1]), *sys.path])}
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **home, **python})
    assert done.returncode == 0, done.stderr[-2000:]


def requests() -> Iterator[RunConfig]:
    for method in (name for name in METHODS.names() if METHODS.ships(name)):
        yield from (RunConfig(method, device="cpu", finish=FinishConfig(kind)) for kind in (None, "mlp", "svm"))
    for link in (name for name in LINKS.names() if LINKS.ships(name)):
        yield RunConfig("fedavg", device="cpu", channel=ChannelConfig(link))
    for kind in PARTITIONS.names():  # "shots" divides by the number of classes
        for data in DATASETS.names() if kind == "shots" else ("digits",):
            yield RunConfig("fedavg", device="cpu", partition=PartitionConfig(kind), data=DataConfig(data))


@pytest.mark.parametrize("request_", [*requests()], ids=lambda r: f"{r.method}-{r.channel.kind}-{r.partition.kind}")
def test_the_defaults_that_are_read_are_those_of_a_resolved_run(request_: RunConfig) -> None:
    """As reports and pages compare with them, in the order of their fields."""
    try:
        wanted = list_table_fields(semcom.resolve(request_))
    except ConfigError:  # it needs an option, such as the path of a file
        return
    assert list(list_default_fields(request_).items()) == list(wanted.items())
