"""The package as it is installed: quick to import, complete in a wheel, pinned to what was tested."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

import semcom
from tests.modules import FOLDERS, PROJECT, ROOT

HEAVY = ("torch", "sionna", "pandas", "sklearn", "matplotlib")


def python(*arguments: str, cwd: Path = ROOT, **environment: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_export_is_there() -> None:
    for name in semcom.__all__:
        assert getattr(semcom, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'rnu'"):
        _ = semcom.rnu


QUICK = ["from semcom import RunConfig, METHODS", "import semcom.cli.main; semcom.cli.main.main(['--help'])"]


@pytest.mark.parametrize("action", QUICK)
def test_heavy_packages_load_only_when_they_are_needed(action: str) -> None:
    code = f"{action}\nimport sys\nprint([name for name in {HEAVY} if name in sys.modules])"
    assert python("-c", code).splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [("-c", "import semcom"), ("-m", "semcom", "--help")], ids=["import", "help"])
def test_answers_in_two_seconds(arguments: tuple[str, ...]) -> None:
    def seconds() -> float:
        begun = time.perf_counter()
        python(*arguments)
        return time.perf_counter() - begun

    assert any(seconds() < 2 for _ in range(3))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the wheel's contents and nothing else, without its dependencies."""
    scratch = tmp_path_factory.mktemp("wheel")
    source = scratch / "source"
    source.mkdir()
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, source)
    for folder in FOLDERS:  # a copy, since a build leaves its files beside the sources
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    python("-m", "build", "--wheel", "--no-isolation", "--outdir", str(scratch), cwd=source)
    (wheel,) = scratch.glob("semcom-*.whl")
    target = scratch / "installed"
    pip = ("-m", "pip", "install", "--no-deps", "--no-index", "--disable-pip-version-check", "--quiet")
    python(*pip, "--target", str(target), str(wheel), cwd=scratch)
    return target


def test_the_wheel_works_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    """Its modules, its methods and its style; results it has none, and a line says where they are."""
    plain = "import matplotlib; print(sorted(matplotlib.rcParams.items()))"
    styled = f"from semcom.plots import style\nwith style.ieee():\n    {plain}"
    code = "import semcom.channels as c, semcom_papers.experiments as e, semcom_papers.figures as f\n"
    code += "print(c.__file__, e.__file__, f.__file__)"
    asked = "for words in ('list methods', 'claims --paper repper'): assert semcom.cli.main.main(words.split()) == 0"
    words = [sys.executable, "-c", f"{code}\n{styled}\nimport semcom.cli.main\n{asked}"]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "semcom: stored results are in its repository: --results CLONE/experiments/results\n"
    places, settings, printed = done.stdout.split("\n", 2)
    assert all(Path(place).is_relative_to(installed) for place in places.split()) and "not run" in printed
    methods = [line.split()[0] for line in printed.partition("\n\n")[0].splitlines() if line[0] != " "]
    assert methods == [name for name in semcom.METHODS.names() if semcom.METHODS.ships(name)]
    before, inside = python("-c", f"{plain}\n{styled}").splitlines()
    assert settings == inside != before


def test_the_wheel_holds_every_source_and_data_file(installed: Path) -> None:
    kinds = ("*.py", "*.pyi", "py.typed", "*.mplstyle", "*.csv", "*.html", "*.css", "*.js")
    expected = {
        Path(*package.split("."), path.relative_to(ROOT / folder))
        for folder, package in FOLDERS.items()
        for kind in kinds
        for path in (ROOT / folder).rglob(kind)
        if not {"rendered", "bench"} & {*path.parts}
    }
    found = {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()}
    assert expected <= found and not [path for path in found if path.suffix == ".zip"]
    assert {Path(*package.split("."), "py.typed") for package in FOLDERS.values()} <= found
    others = {path for path in found if path.parts[0] not in ("semcom", "semcom_papers")}
    assert {path.parts[0] for path in others} <= {f"semcom-{semcom.__version__}.dist-info", "bin"}


def test_links_of_the_readme_lead_somewhere_on_pypi(installed: Path) -> None:
    """Each to a file of this version in the repository, pictures to their bytes."""
    (file,) = installed.glob("semcom-*.dist-info/METADATA")
    text = file.read_text(encoding="utf-8").partition("\n\n")[2]
    prose = "".join(re.split(r"^```.*?^```$", text, flags=re.M | re.S))
    targets = re.findall(r"(?<=\]\()[^)\s]+", prose)
    at = f"{PROJECT['project']['urls']['Repository']}/(blob|raw)/v{semcom.__version__}/([^#]+)"
    ours = [found for target in targets if (found := re.match(at, target))]
    assert len(ours) > 40 and all((ROOT / found[2]).exists() for found in ours)
    assert all(target.startswith("https://") for target in targets)
    pictures = {found[2] for found in ours if found[1] == "raw"}
    assert pictures and all(name.endswith(".png") for name in pictures)


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_constraints_are_versions_only_and_cover_the_dependencies() -> None:
    pinned = [f"{name}=={version}" for name, version in pins().items()]
    assert all(re.fullmatch(r"[\w.-]+==[\d.]+(post\d+)?", each) for each in pinned)
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = {*PROJECT["project"]["dependencies"], *extras["dev"], *extras["docs"], *extras["report"]}
    wanted -= {"semcom[docs,report]", "semcom[report]"}
    assert {re.split(r"[<>=[]", requirement)[0] for requirement in wanted} <= set(pins())


def test_this_environment_is_the_one_that_was_pinned() -> None:
    if not Path(sys.prefix).is_relative_to(ROOT):
        pytest.skip("not in the environment that `make install` builds")
    for name in ("torch", "torchvision", "numpy", "sionna-no-rt", "tyro"):
        assert metadata.version(name).split("+")[0] == pins()[name]


def test_versions_agree() -> None:
    version = PROJECT["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert semcom.__version__ == version


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_names_the_python_that_it_needs(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = subprocess.run(["make", "demo", f"PYTHON={old}"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and "semcom needs Python 3.11 or newer" in done.stderr
    assert not (tmp_path / ".venv").exists()


COMMANDS = (
    "train local --clients 2 --train.rounds 1 --partition.shots 2 --partition.ways 2 --out run",
    "sweep --methods local,fedavg --seeds 0 --out study "
    "--set clients=2 --set train.rounds=1 --set partition.shots=2 --set partition.ways=2",
    "plot study --x method",
    "report study --out page.html",
)


@pytest.mark.parametrize("form", ["folder", "package"])
def test_the_wheel_works_beside_folders_of_the_user_s(form: str, installed: Path, tmp_path: Path) -> None:
    """Whether they have an `__init__.py` or not, their modules are his, also where he and semcom import each other."""
    assert (
        next(installed.parent.glob("*.whl")).stat().st_size < 2**20 + 300_000
    )  # of which 180 kB are the scene that ships
    for name in FOLDERS.keys() - {"semcom"}:
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text("import semcom\nfrom semcom.channels import make_link\nOWN = 7\n")
        if form == "package":
            (tmp_path / name / "__init__.py").write_text(f"from {name}.mine import OWN\n")
    for first, then in (("channels, experiments, figures", "semcom"), ("semcom", "channels, experiments, figures")):
        code = f"import {first}\nimport {then}\nfrom experiments.mine import OWN\nimport channels.mine, figures.mine\n"
        code += (
            "print(OWN, channels.mine.OWN, figures.mine.OWN, semcom.EXPERIMENTS.get('demo').name, channels.__path__)"
        )
        printed = python("-c", code, cwd=tmp_path, PYTHONPATH=str(installed))
        assert printed.startswith("7 7 7 demo ") and str(tmp_path) in printed
    listed = python("-m", "semcom", "list", "experiments", cwd=tmp_path, PYTHONPATH=str(installed))
    assert "letter-fig2b" in listed and "mine" not in listed
    code = "import sys; from semcom.cli.main import main; sys.exit(any(main(line.split()) for line in sys.argv[1:]))"
    python("-c", code, *COMMANDS, cwd=tmp_path, PYTHONPATH=str(installed))
    assert (tmp_path / "study" / "bars.pdf").exists() and (tmp_path / "page.html").exists()


def test_code_of_the_user_s_in_such_a_folder_is_a_part_of_a_run(installed: Path, tmp_path: Path) -> None:
    """His `experiments` is not taken for semcom's: a change of its module changes the hash of what uses it."""
    (tmp_path / "experiments").mkdir()
    (tmp_path / "mine.py").write_text(
        "from experiments.rate import RATE\nfrom semcom import METHODS\nfrom semcom.methods.local import Local\n\n\n"
        "@METHODS.register('mine')\nclass Mine(Local):\n    rate = RATE\n"
    )
    hashes = set()
    for rate in (1, 2):
        (tmp_path / "experiments" / "rate.py").write_text(f"RATE = {rate}\n")
        code = "from semcom import RunConfig, resolve\nfrom semcom.config.identity import run_hash\n"
        code += "print(run_hash(resolve(RunConfig('mine', plugins=('mine.py',)))))"
        hashes.add(python("-c", code, cwd=tmp_path, PYTHONPATH=str(installed)))
    assert len(hashes) == 2


def test_a_checkout_that_is_not_installed_is_not_mixed_with_one_that_is(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(installed / "semcom", tmp_path / "semcom", ignore=shutil.ignore_patterns("channels"))
    words = [sys.executable, "-c", "import semcom"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    line = done.stderr.splitlines()[-1]
    assert line.startswith("ImportError: ") and line.endswith(f"install the first one: pip install -e {tmp_path}")
