"""A method's State on disk: plain tensors and containers, loaded with `weights_only=True`, restored onto a template."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from semcom.config import RunError
from semcom.engine.host.ranks import ALONE, Team
from semcom.engine.store.population import AnyCohort, Cohort, Population, StoredCohort
from semcom.engine.store.rows import MISFIT, Slot
from semcom.engine.train.descent import STEPS
from semcom.files import PREVIOUS, open_file, write_atomically
from semcom.runs.folder.checksum import save_with_checksum, verify_checksum
from semcom.runs.folder.schema import NUMBER, find_misfit


class Damaged(RunError):
    """A file that is no checkpoint, or has changed since it was written."""


def state_to_checkpoint(state: Any) -> dict[str, Any]:
    """Convert a State to nested dicts of tensors, each with storage of its own, as saving a view writes all of it.

    A field is a tensor, a population, or a frozen dataclass of such fields.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if isinstance(value, Population):
            values[field.name] = {str(i): _pack_cohort(c) for i, c in enumerate(value.cohorts)}
        elif dataclasses.is_dataclass(value):
            values[field.name] = state_to_checkpoint(value)
        else:
            values[field.name] = value.clone()
    return values


def _pack_cohort(cohort: AnyCohort) -> dict[str, Any]:
    """Pack a cohort: its clients, and tensors with the names of shared ones, or rows with their shared tensors."""
    ids = torch.from_numpy(cohort.ids.copy())
    if isinstance(cohort, StoredCohort):
        return {"ids": ids, "common": {n: t.clone() for n, t in cohort.common.items()}, "rows": cohort.own.values()}
    return {"ids": ids, "shared": sorted(cohort.shared), "tensors": {n: t.clone() for n, t in cohort.tensors.items()}}


def state_from_checkpoint(template: Any, values: Any, folder: Path | None = None, team: Team = ALONE) -> Any:
    """Restore the State from `values`, with the fields of `template` (a State of the same run).

    A field is restored as the rounds left it, even with another shape, other clients or other shared tensors than in
    `setup`. Only rows must be those of `setup`, which knows their initial models.

    Args:
        template: the result of `setup`.
        values: of `state_to_checkpoint`; the same on every rank.
        folder: folder of rows in a file (on rank 0).
        team: the ranks, which all restore at once.

    Raises:
        RunError: fields or networks differ, so the file belongs to another run; or a row's file is damaged.
    """
    fields: dict[str, Any] = {}
    known = [cohort for cohort, _ in _list_cohorts(template)]
    for field in dataclasses.fields(template):
        like, value = getattr(template, field.name), _look_up(values, field.name)
        if isinstance(like, Population):
            if not isinstance(value, dict):
                raise RunError(MISFIT)
            cohorts = [
                _unpack_cohort([*like.cohorts[i : i + 1], *like.cohorts, *known], of, folder, team)
                for i, of in enumerate(value.values())
            ]
            fields[field.name] = Population(tuple(cohorts))
        elif dataclasses.is_dataclass(like):
            fields[field.name] = state_from_checkpoint(like, value, folder, team)
        else:
            if not isinstance(value, Tensor):
                raise RunError(MISFIT)
            fields[field.name] = value.to(like.device)
    return dataclasses.replace(template, **fields)


def _unpack_cohort(known: Sequence[AnyCohort], value: Any, folder: Path | None, team: Team) -> Cohort | StoredCohort:
    """Restore a cohort with the network, or the rows, of the first of some that it fits."""
    if isinstance(value, dict) and known and "ids" not in value:  # of a version that relied on `setup`
        shared = [n for n in known[0].shared if n in value and len(value[n]) == 1]
        own = {} if "rows" in value else {"tensors": dict(value), "shared": shared}
        value = {**value, **own, "ids": torch.from_numpy(known[0].ids)}
    ids, rows, common, tensors, shared = (
        _look_up(value, name) for name in ("ids", "rows", "common", "tensors", "shared")
    )
    if not isinstance(ids, Tensor):
        raise RunError(MISFIT)
    for like in known:
        if (
            isinstance(like, StoredCohort)
            and _fits_network(like.network, common, like.own.layout.places)
            and like.own.fits(rows, ids.numpy())
        ):
            own_rows = like.own.restored(rows, ids.numpy(), folder, team)
            here = {n: t.to(like.device) for n, t in common.items()}
            return dataclasses.replace(like, common=here, own=own_rows, ids=ids.numpy())
        if _fits_network(like.network, tensors):
            here = {n: t.to(like.device) for n, t in tensors.items()}
            return Cohort(like.network, here, ids.numpy(), frozenset(shared))
    raise RunError(MISFIT)


def _fits_network(network: nn.Module, tensors: Any, beside: Iterable[str] = ()) -> bool:
    """Check that stacks have the shapes of a network's tensors, or are an optimiser's state for these.

    Other names are those of another network if some of this one are neither there nor `beside` them.
    """
    if not isinstance(tensors, dict):
        return False
    shapes = {name: t.shape for name, t in network.state_dict().items()}
    named = {name.rpartition("/")[2]: t.shape[1:] for name, t in tensors.items()}
    lacking, strange = shapes.keys() - {*named, *beside}, named.keys() - {*shapes, STEPS}
    return not (lacking and strange) and all(shapes.get(name, shape) == shape for name, shape in named.items())


def _look_up(values: Any, name: str) -> Any:
    """Look up a value in a dict; None without it, or for any other object."""
    return values.get(name) if isinstance(values, dict) else None


def _list_cohorts(state: Any, values: Any = None) -> Iterator[tuple[AnyCohort, Any]]:
    """Yield the cohorts of all populations in a State, each with its part of the `values` of `state_to_checkpoint`."""
    for field in dataclasses.fields(state):
        value, stored = getattr(state, field.name), _look_up(values, field.name)
        if isinstance(value, Population):
            yield from ((cohort, _look_up(stored, str(i))) for i, cohort in enumerate(value.cohorts))
        elif dataclasses.is_dataclass(value):
            yield from _list_cohorts(value, stored)


def list_checkpoint_rows(state: Any) -> list[Slot]:
    """List the handles of a State's rows in a file, which keep the rows from being overwritten."""
    stored = (cohort for cohort, _ in _list_cohorts(state) if isinstance(cohort, StoredCohort))
    return [handle for cohort in stored for handle in cohort.own.in_file()]


def claim_checkpoint_rows(state: Any, path: Path) -> list[Slot]:
    """Claim the rows on disk that the previous checkpoint refers to.

    Args:
        state: restored from the newest checkpoint.
        path: of the older one; if it is missing or damaged, no rows are claimed.
    """
    with suppress(RunError):
        found = _list_cohorts(state, load_checkpoint(path).get("state"))
        stored = ((of, _look_up(value, "rows")) for of, value in found if isinstance(of, StoredCohort))
        return [handle for cohort, rows in stored for handle in cohort.own.claim(rows, cohort.ids)]
    return []


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint atomically, with a digest of all its bytes; the former file is kept as `PREVIOUS`.

    Raises OSError, as the system reported it.
    """
    write_atomically(path, lambda file: save_with_checksum(content, file), previous=path.with_name(PREVIOUS))


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a file of `save_checkpoint`, without executing any of it, and parse it only if its digest is right.

    Raises Damaged for any other file, and for one with a single bit changed; RunError for one that cannot be read.
    """
    try:
        with open_file(path) as file:
            whole = verify_checksum(file)
            content = torch.load(file, map_location="cpu", weights_only=True) if whole else None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:
        reason = type(error).__name__
        raise Damaged(f"{path}: not a readable checkpoint ({reason}); move it away to start again") from error
    if not isinstance(content, dict):
        raise Damaged(f"{path}: not a checkpoint, or a damaged one; move it away to start again")
    return content


def fits_checkpoint_template(template: Any, value: Any) -> bool:
    """Check that plain containers have a template's structure: names, lengths, and numbers in the same places.

    A whole number must be whole, and not negative. None in the template admits a number, and an empty table any table
    of numbers.
    """
    inside = template.values() if isinstance(template, dict) else template if isinstance(template, list) else ()
    if not inside:
        shape = {...: float} if template == {} else NUMBER if template is None else type(template)
        return find_misfit(shape, value) is None and not (type(value) is int and value < 0)
    if type(value) is not type(template) or len(value) != len(template):
        return False
    if isinstance(template, dict):
        return all(name in value and fits_checkpoint_template(of, value[name]) for name, of in template.items())
    return all(map(fits_checkpoint_template, template, value))
