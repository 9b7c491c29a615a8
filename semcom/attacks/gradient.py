"""Inversion of an update: images whose gradient is that of a client's mini-batch.

J. Geiping, H. Bauermeister, H. Droege, M. Moeller, "Inverting Gradients - How easy is it to break privacy in federated
learning?", NeurIPS 2020: the cosine distance of gradients and the total variation of the images, by Adam on the signs
of its gradient, at falling rates. Here the update is of one step from the trained model, in evaluation mode. The
attacker is given its classes, which for small batches follow from the update of a classifier, and the parts of the
model that do not go up: more than he has. A run that trains through the channel has noise in its update that the
attacker does not know.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from semcom.attacks.invert import Judge, Rebuilt, refuse_other_inputs
from semcom.attacks.known import choose_known_images
from semcom.attacks.labels import find_shared_view
from semcom.attacks.options import Attack
from semcom.config import ConfigError
from semcom.engine.host.keys import key_global_generator, keyed
from semcom.engine.store.population import in_part
from semcom.methods.base import Method
from semcom.methods.registry import METHODS
from semcom.runs.result.module import Noisy, UnitPower
from semcom.runs.result.result import Result

RATE = 0.1
"""Rate of Adam, for images in [-1, 1]; a tenth of it after 3/8, 5/8 and 7/8 of the steps."""
SMOOTH = 1e-2
"""Weight of the total variation, the mean absolute difference of neighbouring pixels."""


class Scale(nn.Module):
    """`UnitPower`, which can be differentiated twice."""

    def forward(self, features: Tensor) -> Tensor:
        """Scale `[b, d]`."""
        return features * features.square().mean(-1, keepdim=True).clamp_min(torch.finfo(features.dtype).tiny).rsqrt()


def invert_gradients(result: Result, victims: np.ndarray, wanted: Attack) -> Rebuilt:
    """Rebuild a batch of each victim's training images from one update of what the method averages.

    Raises:
        ConfigError: the method sends no models, the data are no images of a multiple of 4 pixels a side or the task
            asks for no classes, training passes a channel that couples clients or rounds, the networks take the SNR,
            no image is left to the attacker, or the model cannot be taken out of the run.
    """
    method: Method = METHODS.get(result.config.method)(result.config.hyper)
    if method.split or not method.averages:
        raise ConfigError(f"kind: gradient is about models that go up, and {result.config.method} sends none")
    link = result.world.session.draws.link
    if result.config.train.through_link and (link.users > 1 or link.lasting):
        raise ConfigError("kind: gradient is of a client by itself, and this run's channel couples clients or rounds")
    if result.config.model.snr_input:
        raise ConfigError("kind: gradient is about networks of images alone, and this run's take the SNR, too")
    if not result.world.session.draws.task.classifies:
        raise ConfigError(f"kind: gradient is about the losses of classes, and the task is {result.config.task}")
    federation = result.federation
    refuse_other_inputs("gradient", federation)
    view = find_shared_view(result, wanted.view)
    mine = choose_known_images(federation, victims, result.clients, "encoder", wanted.known, wanted.seed)
    judge = Judge(federation, mine.index, wanted.steps, wanted.seed)
    for victim in victims.tolist():
        owned = federation.train[victim].cpu()
        some = torch.randperm(len(owned), generator=keyed(wanted.seed, "batch", victim))[: wanted.batch]
        index = owned[some]
        model = result.module(victim, view)
        dtype = next(model.parameters()).dtype
        images = federation.gather(index.to(federation.images.device), dtype).cpu()
        labels = federation.labels.cpu()[index]
        through = result.module(victim, view, link=True) if result.config.train.through_link else model
        if isinstance(through.between, Noisy):  # the update is of training, whatever tests meet
            through.between.snr_db = float(result.world.session.draws.snr_db("up", np.array([victim]))[0])
        names = [n for n, p in model.named_parameters() if p.requires_grad and in_part(n, method.averages)]
        if not names:
            raise ConfigError("kind: gradient is about models that go up, and all that this run would send is frozen")
        with key_global_generator(wanted.seed, "update", victim):
            sent = compute_gradient(through, names, images, labels, again=False)
        if isinstance(model.between, UnitPower):
            model.between = Scale()
        start = torch.randn(images.shape, generator=keyed(wanted.seed, "search", victim), dtype=dtype).clamp(-1, 1)
        rebuilt = search_images(model, names, sent, start, labels, wanted.steps)
        judge.note(victim, index, rebuilt[match_images(rebuilt, images)].float())
    return judge.sum_up()


def compute_gradient(
    model: nn.Module, names: list[str], images: Tensor, labels: Tensor, *, again: bool
) -> list[Tensor]:
    """Compute the gradient of the mean cross-entropy of images `[b, c, h, w]` by some parameters.

    Args:
        model: images to scores `[b, C]`.
        names: of the parameters.
        images, labels: of the batch.
        again: whether the gradient is differentiated in turn.
    """
    parameters = dict(model.named_parameters())
    loss = nn.functional.cross_entropy(model(images), labels)
    chosen = [parameters[name] for name in names]
    found = torch.autograd.grad(loss, chosen, create_graph=again, materialize_grads=True)
    return [t if again else t.detach() for t in found]


def search_images(
    model: nn.Module, names: list[str], sent: list[Tensor], start: Tensor, labels: Tensor, steps: int
) -> Tensor:
    """Search for the images, like `start` `[b, c, h, w]` in [-1, 1], whose gradient has the direction of `sent`."""
    x = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([x], RATE)
    falling = torch.optim.lr_scheduler.MultiStepLR(optimizer, [steps * part // 8 for part in (3, 5, 7)], 0.1)
    length = torch.stack([t.square().sum() for t in sent]).sum().sqrt()
    for _ in range(steps):
        own = compute_gradient(model, names, x, labels, again=True)
        along = torch.stack([(t * s).sum() for t, s in zip(own, sent, strict=True)]).sum()
        norm = torch.stack([t.square().sum() for t in own]).sum().sqrt()
        rough = x.diff(dim=-1).abs().mean() + x.diff(dim=-2).abs().mean()
        loss = 1 - along / (norm * length).clamp_min(torch.finfo(x.dtype).tiny) + SMOOTH * rough
        (slope,) = torch.autograd.grad(loss, [x])
        x.grad = slope.sign()
        optimizer.step()
        falling.step()
        with torch.no_grad():
            x.clamp_(-1, 1)
    return x.detach()


def match_images(found: Tensor, wanted: Tensor) -> Tensor:
    """Find which of the found images stands for each wanted one, `[b]`, by the least squared error of all together."""
    from scipy.optimize import linear_sum_assignment  # takes half a second to import

    cost = (wanted[:, None] - found[None]).square().flatten(2).mean(2)
    return torch.from_numpy(linear_sum_assignment(cost.numpy())[1])
