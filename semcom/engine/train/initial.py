"""The models that a run starts from."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.dropout import _DropoutNd

from semcom.config import ConfigError, Resolved
from semcom.data.federation import Federation
from semcom.engine.host.keys import build_with_key, key_global_generator
from semcom.engine.host.memory import SHARE, measure_free_memory
from semcom.engine.host.ranks import Team
from semcom.engine.store.population import Cohort, Population, Prefix, StoredCohort, in_part
from semcom.engine.store.rows import Disk, Layout, Memory, Rows, Shelf
from semcom.engine.train.descent import find_part_factor
from semcom.engine.train.independence import SAMPLES, check_independent_part, draw_features_to_check
from semcom.engine.train.precision import dtype_of
from semcom.files import ROWS
from semcom.models.frozen import find_frozen
from semcom.models.meta import build_on_meta
from semcom.models.own import replace_by_own_layers
from semcom.models.registry import ENCODERS, HEADS, build_encoder, build_head
from semcom.models.snr import attend_to_snr_before, attend_to_snr_behind, find_snr_inputs
from semcom.models.split import SplitModel
from semcom.models.weights import read_weights

M = TypeVar("M", bound=nn.Module)
LOG = logging.getLogger(__name__)

Extend = Callable[[SplitModel], None]
"""A function that gives a new model further parameters and buffers, or puts a layer around a part; see `World`."""


@dataclass
class Initial:
    """The maker of initial models, with keyed weights.

    Attributes:
        config: of the run.
        federation: its images and classes give the shapes of inputs and outputs.
        device: device of the models.
        shape: of an answer.
        shelves: number of cohorts laid down so far.
        numbers: of the largest model that the run has made, without what a method has put beside it.
        networks: architectures by encoder: populations of one run hold the same objects.
        alike: keys of the weights of the user's heads, by their names.
        told: parts whose source of weights is in the log.
        extended: whether the head of `model.weights` is one that the method has extended, with its own tensors.
    """

    config: Resolved
    federation: Federation
    device: torch.device
    shape: tuple[int, ...]
    shelves: int = 0
    numbers: int = 1
    networks: dict[str, SplitModel] = field(default_factory=dict)
    alike: dict[str, str] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    extended: bool = False

    @property
    def dtype(self) -> torch.dtype:
        """The type of all weights."""
        return dtype_of(self.config.precision)

    def server(self, factory: Callable[[], nn.Module], name: str) -> Population:
        """Make a population of one for a network of the base station; its weights are keyed by `name`."""
        tensors = _read_tensors(build_with_key(factory, self.config.seed, "init", name), self.dtype)
        rows = {n: t.unsqueeze(0).to(self.device) for n, t in tensors.items()}
        return Population((Cohort(_build_template(factory), rows, np.array([0])),))

    def cohort(
        self, encoder: str, ids: np.ndarray, shared: Prefix, team: Team, extend: Extend | None = None
    ) -> StoredCohort:
        """Make the initial models of the clients `ids`, which have the same encoder.

        Args:
            encoder: its name.
            ids: the clients, ascending.
            shared: prefixes of the parts that are common to all.
            team: the processes that share the run's clients.
            extend: adds parts to a model, beside encoder and head.

        Raises:
            ConfigError: the engine cannot run the network.
            ValueError: a prefix names no tensor of a model, or the run has models that are extended otherwise.
        """
        model, shape = self.config.model, self.shape
        network = self._network(encoder, extend)
        self.extended = extend is not None and self._is_extended(encoder, network)
        first = self._start(encoder, extend)
        if first.keys() != network.state_dict().keys():
            raise ValueError("extend: all populations of a run have the same parts")
        for prefix in (shared,) if isinstance(shared, str) else shared:
            if not any(in_part(name, prefix) for name in (*first, "encoder.", "head.")):
                raise ValueError(f"{prefix!r} is no part that clients can share: no tensor's name begins so")
        frozen = find_frozen(network)  # such tensors are the same for all, whatever the method shares
        layout = Layout.of({n: t for n, t in first.items() if not in_part(n, shared) and n not in frozen})
        common = {n: t[None] for n, t in first.items() if n not in layout.places}

        def record(row: Mapping[str, Tensor]) -> Tensor:
            return layout.pack({n: row[n][None] for n in layout.places}, 1)[0]

        images = self.federation.images
        _try_out(network, first, images.shape[1:], model.features, shape)
        if not ENCODERS.ships(encoder):
            some = self.federation.gather(torch.arange(2 * SAMPLES, device=images.device) % len(images))
            check_independent_part(network, "encoder", encoder, first, some)
        if not HEADS.ships(model.head):
            check_independent_part(network, "head", model.head, first, draw_features_to_check(model.features))
        once = record(first) if layout.places else torch.empty(0, dtype=torch.uint8, device=self.device)
        own = model.init == "client" and bool(layout.places)
        initial = (lambda client: record(self._start(encoder, extend, client))) if own else lambda client: once
        rows = Rows(layout, self._shelf(layout.size, team), initial, alike=not own)
        return StoredCohort(network, rows, common, ids, self.device)

    def constant(self, encoder: str, ids: np.ndarray, names: Sequence[str], value: float, team: Team) -> StoredCohort:
        """Make clients' own numbers beside their models: shaped like the tensors `names`, all `value` at first."""
        network = self._network(encoder)
        like = network.state_dict()
        first = {name: torch.full(like[name].shape, value, dtype=self.dtype, device=self.device) for name in names}
        layout = Layout.of(first)
        record = layout.pack({name: t[None] for name, t in first.items()}, 1)[0]
        rows = Rows(layout, self._shelf(layout.size, team), lambda client: record, alike=True)
        return StoredCohort(network, rows, {}, ids, self.device)

    def hold(self, parts: Iterable[Population], team: Team) -> Population:
        """Return models of clients, which come some at a time, at rest, as long as they are referred to."""
        held: dict[int, StoredCohort] = {}
        for cohort in (cohort for part in parts for cohort in part.stacks()):
            key = id(cohort.network)
            if key not in held:
                layout = Layout.of({n: t[0] for n, t in cohort.tensors.items() if n not in cohort.shared})
                rows = Rows(layout, self._shelf(layout.size, team, lasting=False), _raise_for_missing)
                held[key] = StoredCohort(cohort.network, rows, cohort.common, cohort.ids[:0], cohort.device)
            held[key] = replace(held[key].put(cohort), ids=np.union1d(held[key].ids, cohort.ids))
        return Population(tuple(held.values()))

    def heads(self, name: str, ids: np.ndarray) -> Population:
        """Make fresh heads of the clients `ids`, `[n, ...]`, as models whose encoder passes on its input.

        Raises:
            ConfigError: the engine cannot run the head.
        """
        model, shape = self.config.model, self.shape
        head = partial(self._build_head, name)

        def fresh(*client: int) -> dict[str, Tensor]:
            made = self._make("head.", name, head, *client)
            if name == model.head and not self.extended:
                self._begin("head.", made)
            return {f"head.{n}": t.to(self.device) for n, t in _read_tensors(made, self.dtype).items()}

        rows = [fresh(int(client)) for client in ids] if model.init == "client" else [fresh()] * len(ids)
        network = _build_template(lambda: SplitModel(nn.Identity(), head()))
        _try_out(network, rows[0], torch.Size([model.features]), model.features, shape)
        if not HEADS.ships(name):
            check_independent_part(network, "head", name, rows[0], draw_features_to_check(model.features))
        return Population((Cohort(network, {n: torch.stack([row[n] for row in rows]) for n in rows[0]}, ids),))

    def _make(self, part: str, name: str, factory: Callable[[], nn.Module], *client: int) -> nn.Module:
        """Build a part by `factory`, with weights drawn for its `name`, and for a client if it has its own."""
        if part == "head." and not HEADS.ships(name):
            if name not in self.alike:
                self.alike[name] = self._find_equal_head(name)
            name = self.alike[name]
        return build_with_key(factory, self.config.seed, "init", part, name, *client).to(self.dtype)

    def _begin(self, part: str, made: nn.Module) -> None:
        """Put the weights of `model.weights` into a part. Raises ConfigError as `_given`."""
        if self.weights:
            made.load_state_dict(self._given(part, made.state_dict()), strict=False)

    def _is_extended(self, encoder: str, network: SplitModel) -> bool:
        """Check whether the head of `model.weights` has the names of an extended network, and not of a plain one."""
        head = {name for name in self.weights if name.startswith("head.")}
        plain = _build_template(self._factories(encoder)["head."]).state_dict()
        return not head <= {f"head.{name}" for name in plain} and head <= network.state_dict().keys()

    def _find_equal_head(self, name: str) -> str:
        """Find the key for the weights of a user's head: a head that ships with tensors alike, or else its tensors.

        So a copy of a head, or two of one architecture, begin with the same weights, whatever their names.
        """
        model = self.config.model

        def list_tensors(name: str) -> str:
            head = _build_template(lambda: build_head(name, model.features, self.shape))
            return ", ".join(f"{n} {list(t.shape)}" for n, t in head.state_dict().items())

        own = list_tensors(name)
        for other in filter(HEADS.ships, HEADS.names()):
            with suppress(ConfigError):  # a decoder of images does not give every shape
                if list_tensors(other) == own:
                    return other
        return own

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The weights of `model.weights`, named as a model's; without the name of a part they are an encoder's."""
        path = self.config.model.weights
        found = {} if path is None else read_weights(path)
        parts = ("encoder.", "head.")
        named = any(name.startswith(parts) for name in found)
        if others := [name for name in found if named and not name.startswith(parts)]:
            LOG.warning("model.weights: %s is of neither encoder nor head, and left out", _list_some(others))
        return {name if named else f"encoder.{name}": t for name, t in found.items()}

    def _given(self, part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Select the tensors of a part from a file, which may have them in a network inside, a backbone.

        Further tensors of an encoder in the file, such as the last layer of a network for other classes, are left out.

        Raises ConfigError if none fits, a head has others besides, most of the file and most of the part have nothing
        to do with each other, or a tensor has another shape.
        """
        path, size = self.config.model.weights, len(part)
        own = {n[size:]: t for n, t in self.weights.items() if n.startswith(part)}
        inside = dict.fromkeys(n.removesuffix(k) for n in tensors for k in own if n.endswith(f".{k}"))
        start = max(("", *inside), key=lambda start: sum(start + k in tensors for k in own))
        given = {start + k: t.to(tensors[start + k].dtype) for k, t in own.items() if start + k in tensors}
        others, drawn = (
            [n for n in names if n not in taken and not n.endswith("num_batches_tracked")]
            for names, taken in (((start + k for k in own), tensors), (tensors, given))
        )
        fits = [n for n in given if not n.endswith("num_batches_tracked")]
        if own and (not fits or (others and part == "head.") or len(fits) < min(len(others), len(drawn))):
            wanted = f"it has {part}{[*others, *own][0]}, the network {part}{[*drawn, *tensors][0]}"
            raise ConfigError(f"model.weights: {path!r} is of another network: {wanted}")
        odd = [name for name, t in given.items() if t.shape != tensors[name].shape]
        if part == "encoder." and {name.rpartition(".")[0] for name in odd} == {[*tensors][-1].rpartition(".")[0]}:
            # The last layer of a network for other classes, or for other features, is drawn as if it were not there.
            given = {name: t for name, t in given.items() if name not in odd}
            drawn, others, odd = [*drawn, *odd], [*others, *odd], []
        for name in odd:
            shapes = f"{list(given[name].shape)}, and {list(tensors[name].shape)} in the network"
            remedy = (
                "the head, the features (model.features) and as many classes as the file has"
                if part == "head."
                else "an encoder with the layers of the file, as resnet18-imagenet has torchvision's, or your own"
            )
            raise ConfigError(f"model.weights: {part}{name} of {path!r} is {shapes}; take {remedy}")
        if part not in self.told:
            self.told.add(part)
            rest = {"drawn are": drawn, "left out of the file are": others}
            more = "".join(f"; {what} {_list_some(names)}" for what, names in rest.items() if names)
            level = logging.WARNING if more and own else logging.INFO
            LOG.log(level, "%s: %d of %d tensors are those of %s%s", part[:-1], len(given), len(tensors), path, more)
        return given

    def outside(self, encoder: str, kind: type[nn.Module]) -> tuple[str, ...]:
        """List a model's parameters and buffers that are in no layer of a kind."""
        network = self._network(encoder)
        inside = tuple(f"{path}." for path, layer in network.named_modules() if isinstance(layer, kind))
        return tuple(name for name in network.state_dict() if not name.startswith(inside))

    def _start(self, encoder: str, extend: Extend | None, client: int | None = None) -> dict[str, Tensor]:
        """Make the initial tensors of a model by name, for a client if it has its own."""
        names, key = {"encoder.": encoder, "head.": self.config.model.head}, () if client is None else (client,)
        made = {
            part: self._make(part, names[part], factory, *key) for part, factory in self._factories(encoder).items()
        }
        model = SplitModel(made["encoder."], made["head."])
        self._begin("encoder.", model.encoder)
        if not self.extended:  # what is a copy of the head, or of the model, begins alike
            self._begin("head.", model.head)
        build_with_key(partial(_extend_model, model, extend), self.config.seed, "init", "extend", *key)
        if self.extended:
            self._begin("head.", model.head.to(self.dtype))
        return {n: t.to(self.device) for n, t in _read_tensors(model, self.dtype).items()}

    def _factories(self, encoder: str) -> dict[str, Callable[[], nn.Module]]:
        """List the functions that build the parts of a model."""
        model = self.config.model
        image, pictured = self.federation.images.shape[1:], self.federation.pictured

        def make_encoder() -> nn.Module:
            made = build_encoder(encoder, image, model.features, pictured)
            return replace_by_own_layers(attend_to_snr_behind(made, model.features) if model.snr_input else made)

        return {"encoder.": make_encoder, "head.": partial(self._build_head, model.head)}

    def _build_head(self, name: str) -> nn.Module:
        """Build a head, which sees the SNR if the run's does."""
        model = self.config.model
        build = partial(build_head, name, model.features, self.shape)
        return replace_by_own_layers(attend_to_snr_before(build, model.features) if model.snr_input else build())

    def _network(self, encoder: str, extend: Extend | None = None) -> SplitModel:
        """Build the architecture with an encoder: one object per run."""
        if encoder not in self.networks:
            parts = self._factories(encoder)
            made = _build_template(lambda: SplitModel(parts["encoder."](), parts["head."]()))
            self.numbers = max(self.numbers, sum(t.numel() for t in made.state_dict().values()))
            made = _build_template(lambda: _extend_model(made, extend))
            self._freeze(made)
            self.networks[encoder] = made
        return self.networks[encoder]

    def _freeze(self, network: SplitModel) -> None:
        """Take the gradients from the parts of a network whose rate is 0.

        Raises:
            ConfigError: no network of the run has weights of that name.
        """
        factors = self.config.train.part_factors
        names = {name for name, _ in network.named_parameters()}
        for encoder in self.config.model.encoder.split(",")[1:] if factors else ():
            other = _build_template(self._factories(encoder)["encoder."])
            names |= {f"encoder.{name}" for name, _ in other.named_parameters()}
        for part, _ in factors:
            if not any(f"{name}.".startswith(f"{part}.") for name in names):
                inside = part.rpartition(".")[0]
                while not any(name.startswith(f"{inside}.") for name in names) and inside:
                    inside = inside.rpartition(".")[0]
                within = f"{inside}." if inside else ""
                known = sorted({n[len(within) :].partition(".")[0] for n in names if n.startswith(within)})
                told = ", ".join(within + name for name in known)
                raise ConfigError(f"train.lr-parts: {part!r} has no weights in the network, whose parts are {told}")
        for name, parameter in network.named_parameters():
            if not find_part_factor(factors, name):
                parameter.requires_grad_(False)

    def _shelf(self, size: int, team: Team, lasting: bool = True) -> Shelf:
        """Choose the place of a cohort's records of `size` bytes: where those that can be alive at once fit first.

        Args:
            size: R.
            team: the processes that share the run's clients.
            lasting: whether records come from rounds and are in checkpoints; otherwise each client has one at most.
        """
        store = self.config.store
        self.shelves += lasting  # in memory too: a cohort's file has the same name wherever the others lie
        if store == "auto":
            rounds, clients = self.config.train.rounds, self.config.clients
            # A checkpoint's version and the newest one, in each process: at worst all of them are on one machine.
            records = 2 * min(clients, rounds * self.config.participants) if lasting else clients
            alive = size * records * team.size
            places = {"device": self.device, "host": torch.device("cpu")}
            room = {name: measure_free_memory(place) / SHARE for name, place in places.items()}
            store = next((name for name, bytes_ in room.items() if alive <= bytes_), "disk")
        if store == "disk":
            folder = None if self.config.out is None else Path(self.config.out)
            path = folder / ROWS.format(self.shelves) if lasting and folder is not None and team.rank == 0 else None
            return Disk(size, path, folder)
        return Memory(self.device if store == "device" else torch.device("cpu"))


def _raise_for_missing(client: int) -> Tensor:
    raise KeyError(f"client {client} has no row")


def _extend_model(model: SplitModel, extend: Extend | None) -> SplitModel:
    if extend is not None:
        extend(model)
        replace_by_own_layers(model)
    return model


def _build_template(factory: Callable[[], M]) -> M:
    """Build the architecture on the meta device, where a forgotten tensor is an error instead of a stale weight."""
    with build_on_meta(), key_global_generator("template"):
        return factory()


def _list_some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"


def _read_tensors(module: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    return {n: t.detach().to(dtype) if t.is_floating_point() else t for n, t in module.state_dict().items()}


def _try_out(
    network: SplitModel, tensors: Mapping[str, Tensor], image: torch.Size, features: int, shape: tuple[int, ...]
) -> None:
    """Check that the engine can run a network, on two images.

    They are real images: BatchNorm on the meta device would import torch's compiler, which takes seconds.

    Raises:
        ConfigError: it has dropout of another kind or a buffer that is not kept, fails, or gives another shape.
    """
    for layer in network.modules():
        if isinstance(layer, _DropoutNd):
            # Its draws would come from torch's global generator: neither reproducible nor the same in chunks.
            raise ConfigError(f"model: the engine does not key the draws of {type(layer).__name__}; take nn.Dropout")
    kept = network.state_dict()
    for name, _ in network.named_buffers():
        if name not in kept:
            raise ConfigError(f"model: the buffer {name} is not persistent, so the engine would lose it; make it so")
    network.eval()
    some = next(iter(tensors.values()))
    x = torch.zeros(2, *image, dtype=some.dtype, device=some.device)
    for part, wanted in (("encoder", (features,)), ("head", shape)):
        try:
            own = {n.removeprefix(f"{part}."): t for n, t in tensors.items() if n.startswith(f"{part}.")}
            own |= {n: torch.zeros_like(x[:1, :1]).flatten()[:1] for n in find_snr_inputs(network.get_submodule(part))}
            x = functional_call(network.get_submodule(part), own, (x,))
        except Exception as error:  # whatever a network of the user's raises
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ConfigError(f"model.{part}: it does not run on {[*x.shape[1:]]} per sample ({reason})") from None
        if x.shape not in ((2, *wanted), (2, math.prod(wanted))):
            raise ConfigError(f"model.{part}: it gives {[*x.shape[1:]]} per sample; {[*wanted]} is needed")
