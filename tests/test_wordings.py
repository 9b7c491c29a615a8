"""Requests that cannot be met are refused as wordings.txt records."""

from __future__ import annotations

from tests.processes import Forked


def compare() -> int:
    from tests import wordings

    return wordings.main()


def test_what_is_said_is_what_is_recorded() -> None:
    """In a process of its own, where no other test has registered names."""
    with Forked(compare) as process:
        said = process.stdout.read()
        assert process.wait() == 0, f"{said}{process.stderr.read()}\npython -m tests.wordings --write takes it over"
