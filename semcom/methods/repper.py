"""RepPer: a common body learned by contrast, without a classifier; then each client's own classifier on top of it.

Jing, Huang, Zhuang, Sun, Huang, Xiao, Ding, "A Closer Look at Personalization in Federated Image Classification",
arXiv:2204.11841, 2022, Algorithm 1, Eqs. 4-9. Up and down: the encoder, parameters and BatchNorm buffers; never a head.

The paper says neither how images are augmented (here as SimCLR does, see `semcom.methods.parts.augment`) nor at what
rate heads train. Its loss is a sum over samples, here their mean. z is the received feature, normalised; there is no
projection.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from channels.options import COUNT, POSITIVE, SHARE, require
from semcom.config.options import Needs
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase, Take
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.base import Method, cross_entropy
from semcom.methods.fedavg import FedAvg
from semcom.methods.parts.augment import SMALLEST, UNIFORMS, augment
from semcom.methods.parts.classifiers import linear_classifiers, linear_scores
from semcom.methods.parts.contrast import supervised_contrastive


class RepPer(FedAvg):
    """Stage 1: FedAvg of the body under the supervised contrastive loss of two views of each image.

    Stage 2, after the last round: a head per client on the frozen body, which is what is evaluated.
    """

    paper = "Jing et al., arXiv:2204.11841, 2022"
    preset = {
        **{"optimizer": "adam", "lr": 1e-3, "weight_decay": 1e-4, "lr_milestones": (50, 75), "lr_decay": 0.1},
        **{"rounds": 100, "local_epochs": 10, "batch_size": 256, "participation": 0.4},
    }
    averages = ("encoder.",)
    shares = "encoder"
    personal = "head, trained at the end"
    unused: tuple[str, ...] = ("train.eval_every",)  # nothing is evaluated before the end
    sends = "theta up, theta down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of RepPer."""

        needs: ClassVar[Needs] = dict.fromkeys(("head_epochs", "head_lr"), {"head": ("mlp",)})

        tau: float = 0.1
        """tau: temperature of Eq. 5."""
        form: Literal["inside", "outside"] = "inside"
        """Place of the mean over positives: inside the logarithm (Eq. 5) or outside (Khosla et al.'s choice)."""
        crop: float = SMALLEST
        """Smallest part of an image's area that a crop takes (1: no crops)."""
        head: Literal["mlp", "svm", "lr"] = "mlp"
        """Classifier: the model's head by SGD, a linear support vector machine, or logistic regression."""
        head_epochs: int = 10
        """`mlp`: number of epochs."""
        head_lr: float = 0.01
        """`mlp`: learning rate, eta_c of Eq. 9, which the run's schedule leaves alone."""

        def check(self) -> None:
            """Check the signs and ranges."""
            for name in ("tau", "head_lr"):
                require(name, getattr(self, name), POSITIVE)
            require("crop", self.crop, SHARE)
            require("head_epochs", self.head_epochs, COUNT)

    def __init__(self, hyper: RepPer.Hyper) -> None:
        super().__init__(hyper)
        if hyper.head != "mlp":
            self.unused = (*self.unused, "model.head")

    def local(self, received: Population, state: FedAvg.State, world: World) -> Population:
        """Train E epochs on the body alone (Eq. 7)."""
        second = Take("second", same=True)
        phase = Phase(takes=(second,), uniforms=2 * UNIFORMS)
        return world.fit(received, self.objective, train=self.averages, phase=phase).models

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> Tensor:
        """Return Eq. 5 per client, `[k]`, over both views of every image, each with its own way through the link."""
        assert batch.uniforms is not None
        views = zip((batch, context.takes["second"]), batch.uniforms.split(UNIFORMS, -1), strict=True)
        seen = [replace(view, x=augment(view.x, u, self.hyper.crop)) for view, u in views]
        features = torch.cat([model.receive(model.encode(view), view) for view in seen], 1)
        mask = None if batch.mask is None else batch.mask.repeat(1, 2)
        return supervised_contrastive(features, batch.y.repeat(1, 2), mask, self.hyper.tau, self.hyper.form)

    def views(self, state: FedAvg.State, world: World) -> dict[str, View]:
        """Evaluate nothing: before the end no client has a classifier."""
        return {}

    def finish(self, state: FedAvg.State, world: World) -> dict[str, View]:
        """Evaluate the common body with the classifiers of the tested clients (Eq. 9) as `personal`."""
        hyper, tested = self.hyper, state.model.select(world.tested())
        if hyper.head != "mlp":
            return {"personal": View(tested, linear_scores, linear_classifiers(world, tested, hyper.head))}
        sgd = replace(world.optimizer(name="sgd"), lr=hyper.head_lr)
        head = Phase("head", epochs=hyper.head_epochs)
        own = world.fit(tested, cross_entropy, train="head.", phase=head, optimizer=sgd).models
        return {"personal": View(own)}
