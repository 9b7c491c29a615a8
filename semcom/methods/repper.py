"""RepPer: a common body learned by contrast, without a classifier; then each client's own classifier on top of it.

Jing, Huang, Zhuang, Sun, Huang, Xiao, Ding, "A Closer Look at Personalization in Federated Image Classification",
arXiv:2204.11841, 2022, Algorithm 1, Eqs. 4-9. Up and down: the encoder, parameters and BatchNorm buffers; never a head.

Each image has two random views, each with its own way through the link. The loss is the supervised contrastive loss
with the mean over positives inside the logarithm (Eq. 5; `form` `outside` is that of Khosla et al.), of normalised
received features without projection. Heads are trained after the last round on the frozen body, so earlier rounds are
not evaluated. `finish.kind` has the classifiers of Table 3: its "MLP" is our default `linear`, one layer trained by SGD
(Sec. 6.3), beside `svm` and `lr` (Sec. 6.4). Eqs. 15 and 25 lack the factor 1/(tau ||r||) of Eqs. 14 and 23;
`semcom.methods.parts.contrast.anchor_gradient` has it in both.

Choices where the paper is silent: augmentations, here SimCLR's crop, mirror, colour jitter and grey, the last two for
three channels; the rate at which heads train (the paper: 10 epochs of SGD), as the last stage has one optimiser for all
methods. In the preset the rate decays by 0.1 in rounds 50 and 75, where the paper gives the factor only, and of the
paper's values of C and E the preset has those of Table 2, 0.2 and 10.

Departures: the loss is a mean over images, not a sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from semcom.channels.options import POSITIVE, SHARE, require
from semcom.config import ConfigError
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase, Take
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.fedavg import FedAvg
from semcom.methods.parts.augment import SMALLEST, UNIFORMS, augment
from semcom.methods.parts.contrast import supervised_contrastive
from semcom.methods.parts.heads import with_classifiers


class RepPer(FedAvg):
    """Stage 1: FedAvg of the body under the supervised contrastive loss of two views of each image.

    Stage 2, after the last round: a head per client on the frozen body, which is then evaluated.
    """

    paper = "Jing et al., arXiv:2204.11841, 2022"
    classifies = True
    preset = {
        "optimizer": "adam", "lr": 1e-3, "weight_decay": 1e-4, "lr_milestones": (50, 75), "lr_decay": 0.1,
        "rounds": 100, "local_epochs": 10, "batch_size": 256, "participation": 0.2,
    }  # fmt: skip
    averages = ("encoder.",)
    finishing = {}
    shares = "encoder"
    personal = "head, trained at the end"
    unused: tuple[str, ...] = ("train.eval_every",)  # nothing is evaluated before the end
    sends = "theta up, theta down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of RepPer."""

        tau: float = 0.1
        """tau: temperature of Eq. 5."""
        form: Literal["inside", "outside"] = "inside"
        """Place of the mean over positives: inside the logarithm (Eq. 5) or outside (Khosla et al.'s choice)."""
        crop: float = SMALLEST
        """Smallest part of an image's area that a crop takes (1: no crops)."""

        def check(self) -> None:
            """Check the sign and the range."""
            require("tau", self.tau, POSITIVE)
            require("crop", self.crop, SHARE)

    def setup(self, world: World) -> Any:
        """Start as FedAvg does. Raises ConfigError for data that are no images, which it could not crop."""
        if not world.pictured:
            raise ConfigError("method: repper learns from crops of images, and the data are arrays of numbers")
        return super().setup(world)

    def local(self, received: Population, state: FedAvg.State, world: World) -> Population:
        """Train E epochs on the body (Eq. 7)."""
        second = Take("second", same=True)  # the same images over draws of its own
        phase = Phase(takes=(second,), uniforms=2 * UNIFORMS)
        return world.fit(received, self.objective, train=self.averages, phase=phase).models

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> Tensor:
        """Compute Eq. 5 per client, `[k]`, over both views of every image, each with its own way through the link."""
        assert batch.uniforms is not None
        views = zip((batch, context.takes["second"]), batch.uniforms.split(UNIFORMS, -1), strict=True)
        seen = [replace(view, x=augment(view.x, u, self.hyper.crop)) for view, u in views]
        features = torch.cat([model.receive(model.encode(view), view) for view in seen], 1)
        mask = None if batch.mask is None else batch.mask.repeat(1, 2)
        return supervised_contrastive(features, batch.y.repeat(1, 2), mask, self.hyper.tau, self.hyper.form)

    def views(self, state: FedAvg.State, world: World) -> dict[str, View]:
        """Return no views: clients have no classifiers before the end."""
        return {}

    def finish(self, state: FedAvg.State, world: World) -> dict[str, View]:
        """Evaluate the common body with the heads of the tested clients (Eq. 9) as `personal`."""
        return {"personal": with_classifiers(world, state.model.narrow(world.tested()))}
