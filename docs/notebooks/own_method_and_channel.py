# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A method and a channel of your own
#
# A method or a channel is a class with a name. This notebook writes one of each in a file, a *plug-in*, and compares
# them with what comes with semcom. Nothing in semcom has to be changed.

# %%
from pathlib import Path

import semcom

# %% [markdown]
# ## The method
#
# FedAvg averages the whole model. Our method averages the encoder only, and adds a pull towards the received model to
# the loss, as FedProx does. A method says what is special about it and nothing else: there is no loop over clients
# and no mini-batch. `objective` returns one loss for each of the `k` clients that are trained together.
#
# `Hyper` declares the hyperparameters. Each one becomes a flag (`--hyper.mu`), a field of `config.json`, and a part
# of what tells one run from another.

# %%
METHOD = '''
from dataclasses import dataclass

from semcom import METHODS
from semcom.engine.train.context import Given
from semcom.methods.fedavg import FedAvg
from semcom.methods.parts.distance import proximal


@METHODS.register("pulled-encoder")
class PulledEncoder(FedAvg):
    """Average the encoder; pull it towards the received one; every client has its own head."""

    paper = "an example"
    averages = ("encoder.",)

    @dataclass(frozen=True)
    class Hyper(FedAvg.Hyper):
        mu: float = 0.1
        """Weight of the pull."""

    def objective(self, model, batch, context):
        task = super().objective(model, batch, context)
        pull = proximal(model, context.models["received"])
        return task + self.hyper.mu / 2 * pull, {"task": task, "pull": pull}

    def local(self, received, state, world):
        return world.fit(received, self.objective, given=Given(anchors={"received": received})).models
'''

# %% [markdown]
# ## The channel
#
# A link says what is random (`draw`) and what the complex gain of a symbol is (`gain`). Noise, equaliser, gradients
# and the measured SNR follow. Ours has a line of sight beside the scattered part of Rayleigh fading. The gain has a
# mean power of 1, so an SNR means the same as in every other link.

# %%
CHANNEL = '''
from dataclasses import dataclass

from semcom.channels import LINKS
from semcom.channels.fading import Rayleigh


@LINKS.register("sight")
class Sight(Rayleigh):
    """`y = h x + n`: a line of sight of known phase beside the scattered part."""

    @dataclass(frozen=True)
    class Options(Rayleigh.Options):
        factor: float = 4.0
        """Power of the line of sight over that of the scattered part."""

    def gain(self, drawn):
        k = self.options.factor
        return (k**0.5 + drawn["fading"]) / (1 + k) ** 0.5
'''
Path("mine.py").write_text(METHOD + CHANNEL)

# %% [markdown]
# ## Check the method
#
# The best test of a method is a special case: with its idea switched off it must be another method. With `mu` = 0
# ours is FedPer, to the last bit.

# %%
small = {
    "clients": 4,
    "model": semcom.ModelConfig(encoder="dcgan-narrow", features=16),
    "train": semcom.TrainConfig(rounds=4, batch_size=15),
}
ours = semcom.run(semcom.RunConfig(method="pulled-encoder", hyper={"mu": 0.0}, plugins=("mine.py",), **small))
theirs = semcom.run(semcom.RunConfig(method="fedper", **small))
assert ours.summary["views"] == theirs.summary["views"]
ours.summary["accuracy"], theirs.summary["accuracy"]

# %% [markdown]
# The pull is logged in each round, as the objective returned it:

# %%
pulled = semcom.run(semcom.RunConfig(method="pulled-encoder", hyper={"mu": 1.0}, plugins=("mine.py",), **small))
[(line["round"], round(line["task"], 3), round(line["pull"], 4)) for line in pulled.metrics]

# %% [markdown]
# ## Check the channel
#
# Draw many coefficients and compare with the closed form: the mean power of the gain is 1, and its variance is `(1 +
# 2 k) / (1 + k)^2` for a power ratio `k`.

# %%
import torch

from semcom.channels import make_link

link = make_link("sight", factor=4.0)
drawn = link.draw([20000], d=2, generator=torch.Generator().manual_seed(0))
power = link.gain(drawn).abs().square()
print(f"mean power {power.mean():.3f}, theory 1")
print(f"variance   {power.var():.3f}, theory {(1 + 2 * 4) / (1 + 4) ** 2:.3f}")
assert abs(power.mean() - 1) < 0.03 and abs(power.var() - 9 / 25) < 0.03

# %% [markdown]
# ## Use both
#
# Three methods over the new channel, two seeds. The plug-in is named once, and every process loads it. Its content is
# part of each run: after an edit they are other runs.

# %%
semcom.sweep(
    methods=("pulled-encoder", "fedper", "local"),
    seeds=(0, 1),
    set={
        "clients": 4,
        "model.encoder": "dcgan-narrow",
        "model.features": 16,
        "train.rounds": 4,
        "train.batch_size": 15,
        "channel.kind": "sight",
        "channel.factor": 2.0,
    },
    plugins=("mine.py",),
    out="results/own",
)
study = semcom.study("results/own")
print(study.compare("pulled-encoder", "fedper").sentence)

# %% [markdown]
# [extending.md](../extending.md) has the same for an encoder, a dataset, a partition and an experiment.
# [own-method.md](../own-method.md) lists the whole vocabulary of methods, and
# [channels.md](../channels.md#a-new-channel) that of channels.
