"""`python -m semcom_papers.experiments.bench engine` or `scale`: measure speed. Each has `--help`."""

import logging
import sys
from collections.abc import Sequence

from semcom.cli.flags import parse_flags
from semcom.config import ConfigError, RunError
from semcom_papers.experiments.bench.engine import BenchEngine
from semcom_papers.experiments.bench.scale import BenchScale

BENCHES = {"engine": BenchEngine, "scale": BenchScale}


def main(words: Sequence[str]) -> None:
    """Carry out a benchmark. Raises SystemExit, with one line, for a wrong flag or a failed measurement."""
    what, *rest = words or [""]
    if what not in BENCHES:
        raise SystemExit(f"error: {what!r} is no benchmark; known are {', '.join(BENCHES)}")
    try:
        parse_flags(BENCHES[what](), f"python -m semcom_papers.experiments.bench {what}", rest, extra={}).carry_out()
    except (ConfigError, RunError) as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S")
    main(sys.argv[1:])
