"""The README for PyPI: relative links and pictures lead to the repository at this version. The rest: pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINK = re.compile(r"(!?)(\[(?:[^][]|\[[^][]*\]\([^)]*\))*\]\()(?!\w+:|#)([^)\s]+)")


def make_absolute(text: str) -> str:
    """Replace relative targets of Markdown by addresses; pictures, also inside of links, by those of the files."""

    def lead(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        kind = "raw" if picture else "blob"
        return f"{picture}{make_absolute(words)}{PROJECT['urls']['Repository']}/{kind}/v{PROJECT['version']}/{target}"

    return LINK.sub(lead, text)


setup(
    long_description=make_absolute((ROOT / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
