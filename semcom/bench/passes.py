"""What `semcom bench channels` times: the bare encoder step, a pass through a link, and the draw of a realisation.

Legend: K clients, b samples per client and step, d features.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from channels import Meter, make_link
from semcom.bench.rounds import wait
from semcom.bench.workloads import CLASSES, SNR_DB
from semcom.engine.train.forward import Batch, StackedModel, channels_last
from semcom.models.own import own_layers
from semcom.models.registry import ENCODERS, HEADS
from semcom.models.split import SplitModel

CLIENTS, SAMPLES, FEATURES = 20, 64, 64
"""K, b and d: 32 complex symbols per sample."""
STEPS = 5
"""Steps of a round, whose realisation is drawn at once."""
CALLS = 5
"""Calls of a link whose mean is taken: one is short against the moods of a machine."""


@dataclass(frozen=True)
class Case:
    """A link with its options.

    Attributes:
        name: what the table calls it.
        kind, options: of `make_link`.
        most: targets: device -> largest share of the bare step that a call may take.
    """

    name: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    most: Mapping[str, float] = field(default_factory=dict)


class EncoderStep:
    """The bare training step of the DCGAN encoder: forward and backward, nothing else.

    As the engine runs it: client by client on a CPU, all of them at once on a GPU.
    """

    def __init__(self, device: torch.device, clients: int) -> None:
        shape = (clients, SAMPLES, 32, 32, 3)
        images = torch.randn(shape, device=device).movedim(-1, 2)  # channels last in memory
        network = SplitModel(own_layers(ENCODERS.get("dcgan")(3, FEATURES)), HEADS.get("linear")(FEATURES, CLASSES))
        chunk = clients if device.type == "cuda" else 1
        self.gradient = torch.randn(chunk, SAMPLES, FEATURES, device=device)
        self.passes = [(_model(network, device, chunk), _batch(x)) for x in images.split(chunk)]

    def __call__(self) -> None:
        """The step, once."""
        for model, batch in self.passes:
            torch.autograd.grad(model.encode(batch), list(model.params.values()), self.gradient)


def _model(network: SplitModel, device: torch.device, clients: int) -> StackedModel:
    """Encoders of some clients, with the same weights."""
    encoder = {f"encoder.{n}": t for n, t in network.encoder.state_dict().items()}
    stacks = {n: channels_last(t.detach().to(device).expand(clients, *t.shape).clone()) for n, t in encoder.items()}
    leaves = {f"encoder.{n}" for n, _ in network.encoder.named_parameters()}
    params = {n: t.requires_grad_() for n, t in stacks.items() if n in leaves}
    return StackedModel(network, params, {n: t for n, t in stacks.items() if n not in leaves}, ("encoder.",))


def _batch(images: Tensor) -> Batch:
    """Images `[k, b, 3, 32, 32]` as a mini-batch of each client."""
    k, b = images.shape[:2]
    labels = torch.zeros(k, b, dtype=torch.int64, device=images.device)
    return Batch(images, labels, None, labels[:, 0] > 0, CLASSES)


class Pass:
    """A link between features of all clients and their gradient, with one step's part of a round's realisation."""

    def __init__(self, case: Case, device: torch.device, clients: int) -> None:
        self.link = make_link(case.kind, **case.options).in_band(clients, clients, SAMPLES, FEATURES)
        self.generator = torch.Generator(device).manual_seed(0)
        self.features = torch.randn(clients, SAMPLES, FEATURES, device=device, requires_grad=True)
        self.gradient = torch.randn(clients, SAMPLES, FEATURES, device=device)
        self.snr_db = torch.full((clients,), SNR_DB, device=device)
        self.meters = Meter(), Meter()
        self.up, self.down = self._rows(clients), self._rows(clients)

    def __call__(self) -> None:
        """Features up, gradient down, both metered, as in a training step of a split method."""
        up_meter, down_meter = self.meters
        received = self.link(
            self.features,
            self.up,
            self.snr_db,
            down=self.down,
            down_snr_db=self.snr_db,
            meter=up_meter,
            down_meter=down_meter,
            check=False,
        )
        torch.autograd.grad(received, self.features, self.gradient)

    def draw(self, client: int = 0) -> dict[str, Tensor]:
        """One client's realisation of a round, in one direction."""
        return self.link.of(client).draw([SAMPLES] * STEPS, FEATURES, self.generator)

    def _rows(self, clients: int) -> dict[str, Tensor]:
        """The first step of a round: a view of its rows, as the engine takes it."""
        drawn = [self.draw(client) for client in range(clients)]
        return {name: torch.stack([rows[name] for rows in drawn])[:, :SAMPLES] for name in drawn[0]}


def seconds(work: Callable[[], object], device: torch.device, times: int = 1) -> float:
    """Mean over `times`."""
    wait(device)
    begun = time.perf_counter()
    for _ in range(times):
        work()
    wait(device)
    return (time.perf_counter() - begun) / times
