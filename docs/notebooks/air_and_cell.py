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
# # The air and a cell
#
# A federated round sends models, and models cross the air too. This notebook counts what that costs, in bits, in
# channel uses and in seconds. Then it places the clients in a cell, where each has an SNR of its own, and compares
# three methods by the time that they take.
#
# All runs are on handwritten digits, without a download, and so short that the accuracies show how to work and not what
# to believe.

# %%
import pandas as pd
from IPython.display import Image

import semcom

# %% [markdown]
# ## One model, six ways to send it
#
# Six clients train FedAvg. Their SNRs go from 3 to 18 dB. `AirConfig` says how models are exchanged:
#
# * `parameters="ideal"` (the default) delivers them without errors, and counts the bits. `rate` turns bits into
#   channel uses: a fixed rate of 2 bit per use, or what each client's SNR allows less a margin (`capacity`), or the
#   fastest scheme of 5G below that (`mcs`).
# * `compress="quantise"` sends fewer bits: each number is rounded to 8.
# * `parameters="analog"` sends the numbers as they are, uncoded, and they arrive with the channel's noise. With
#   `access="superposed"` all clients send at once, and the channel adds up their signals: over-the-air computation.

# %%
ways = {
    "fixed rate": {},
    "by capacity": {"rate": "capacity"},
    "5G's schemes": {"rate": "mcs"},
    "8 bits, by capacity": {"rate": "capacity", "compress": "quantise"},
    "uncoded, one after the other": {"parameters": "analog"},
    "uncoded, all at once": {"parameters": "analog", "access": "superposed"},
}


def send(**air: str) -> dict[str, float]:
    """Train for three rounds, and return the accuracy and what a client sends in a round."""
    config = semcom.RunConfig(
        method="fedavg",
        clients=6,
        model=semcom.ModelConfig(encoder="dcgan-narrow", features=16),
        channel=semcom.ChannelConfig(snr_db="3,6,9,12,15,18"),
        air=semcom.AirConfig(**air),
        train=semcom.TrainConfig(rounds=3, batch_size=15),
    )
    summary = semcom.run(config).summary
    up = summary["traffic"]["up"]
    sent = {"Mbit": up["bits"] / 1e6, "million uses": up["uses"] / 1e6, "seconds": up["airtime_s"]}
    return {"accuracy": summary["accuracy"]} | sent


pd.DataFrame({name: send(**air) for name, air in ways.items()}).T.round(3)

# %% [markdown]
# The first three rows have the same accuracy, as the same bits arrive. The warning above the table says that the client
# at 3 dB cannot receive 2 bit per use, so the first row is too cheap to be true. Eight bits cost a quarter of that, and
# hardly change the accuracy. Uncoded numbers cost half a channel use each, which the clients share where all send at
# once. Both cost accuracy, since the noise stays in the model.
#
# [Models and prototypes on the air](../channels.md#models-and-prototypes-on-the-air) has the formulas of every row.
#
# ## A cell
#
# So far we chose the SNRs. In a cell they follow from where clients are: distance, shadowing, transmit power and
# bandwidth. Places are drawn from the seed.

# %%
cell = {
    "clients": 6,
    "model.encoder": "dcgan-narrow",
    "model.features": 16,
    "network.kind": "cell",
    "network.radius_m": 400,
    "air.rate": "mcs",
    "network.flops": 1e9,
    "network.flops_spread": 0.5,
    "train.rounds": 10,
    "train.batch_size": 15,
}
semcom.sweep(methods=("fedper", "fedproto", "fedavg"), seeds=(0,), set=cell, out="results/cell")

# %%
semcom.plot("results/cell", semcom.Plot(kind="cell"), out="drawn")
Image("drawn/cell.png", width=450)

# %% [markdown]
# ## Accuracy in seconds
#
# `network.flops` starts a clock: a client computes with so many operations per second (here with a spread, so that some
# clients are slow), and sends at the rate of its SNR. A round lasts as long as its slowest client. Rounds of different
# methods take different times, so compare them by seconds instead of rounds:

# %%
semcom.plot("results/cell", semcom.Plot(x="time_s"), name="seconds", out="drawn")
Image("drawn/seconds.png", width=450)

# %% [markdown]
# FedAvg sends the whole model, FedPer its encoder, and FedProto a few prototypes. When does each reach 40 %?

# %%
semcom.study("results/cell").until(0.4, "time_s")

# %% [markdown]
# The timeline shows where the time of the last round went, client by client:

# %%
semcom.plot("results/cell", semcom.Plot(kind="timeline"), out="drawn")
Image("drawn/timeline.png", width=700)

# %% [markdown]
# ## What to try next
#
# * `"train.deadline_s": 5` leaves out whoever is late, and `"network.scheduling": "best-snr"` with
#   `"train.participation": 0.5` lets the better half of the clients take part.
# * `"air.parameters": "analog"` and `"air.access": "superposed"` add the models up on the air.
# * `"channel.kind": "ofdm"` puts a 3GPP channel below all of it.
#
# [A cell](../channels.md#a-cell), [the time of a round](../channels.md#the-time-of-a-round), and [the same on
# CIFAR-10](../../experiments/wireless.md#accuracy-in-seconds) with 20 clients.
