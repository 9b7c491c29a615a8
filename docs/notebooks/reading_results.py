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
# # Reading results
#
# What does a run leave, and what may be concluded from it? This notebook trains one short run on digits and looks at
# every part of its result. Then it reads a study on CIFAR-10 that is stored in semcom's repository.

# %%
import matplotlib.pyplot as plt
import numpy as np

import semcom

result = semcom.run(
    semcom.RunConfig(
        method="fedproto",
        clients=5,
        model=semcom.ModelConfig(encoder="dcgan-narrow", features=16),
        channel=semcom.ChannelConfig(test_snr_db="10,0,-10"),
        train=semcom.TrainConfig(rounds=10, batch_size=15, eval_every=1),
        keep=("confusion", "features"),
        out="runs/fedproto",
    )
)
sorted(path.name for path in result.out.iterdir())

# %% [markdown]
# `semcom.load("runs/fedproto")` gives the same result back at any time, with its models.
#
# ## Which accuracy?
#
# A *view* is one way to use what a method trained. FedProto has two: each client's own model (`personal`), and the
# nearest prototype (`prototype`). The first view is the headline. Its `accuracy` is the mean over clients and over
# the last ten evaluations. `best` is there too, but the best round cannot be known without looking at the test data,
# so it is no result.

# %%
numbers = semcom.study("runs/fedproto").results
numbers[numbers["test_snr_db"] == 10][["view", "accuracy", "best", "last"]].round(3)

# %% [markdown]
# ## How unequal are the clients?
#
# The standard deviation is over clients. It says how unequal they are, and not how sure the mean is. `worst10` is the
# mean of the worst tenth of the clients, and Jain's index is 1 if all are equal.

# %%
print("clients", np.round(result.summary["views"]["personal"]["clients"], 3))
numbers[numbers["test_snr_db"] == 10][["view", "accuracy_std", "worst10", "jain"]].round(3)

# %% [markdown]
# ## What noise does
#
# The run was trained at 10 dB and tested at three SNRs. A client has images of three classes. Some of its errors name
# a class that it does not have. `among_own` is the accuracy if the model may choose among the client's own classes
# only.

# %%
numbers[numbers["view"] == "personal"][["test_snr_db", "accuracy", "among_own"]].round(3)

# %% [markdown]
# ## Learning curve and confusion
#
# `metrics` has a line for each round. `confusion` has a matrix for each client, true class by predicted class.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
left.plot(
    [line["round"] for line in result.metrics],
    [line["views"]["personal"]["accuracy"] for line in result.metrics],
)
left.set(xlabel="round", ylabel="accuracy")
right.imshow(result.confusion["personal"].sum(0))
right.set(xlabel="predicted class", ylabel="true class")
figure.tight_layout()

# %% [markdown]
# ## Features before and after the channel
#
# `features` has those of the test images as they leave the encoder (`raw`) and as they arrive (`received`). The
# purity is the fraction of the ten nearest neighbours of the same class.

# %%
found = result.features()
for name in ("raw", "received"):
    features = getattr(found, name)
    print(f"{name:9} purity {semcom.knn_purity(features, found.labels, k=10, images=found.images):.3f}")

# %% [markdown]
# ## What crossed the air
#
# Means per participating client and round. FedProto sends a prototype for each class that a client has, and receives
# all.

# %%
for way, sent in result.summary["traffic"].items():
    print(way, {name: round(value, 4) for name, value in sent.items()})
print("received SNR in dB:", result.summary["snr_received_db"])

# %% [markdown]
# ## A stored study
#
# `experiments/results/` holds the studies behind [what reproduces](../../experiments/README.md). Each is one file
# that every command takes. This one is accuracy against SNR on CIFAR-10 (the FedCL letter's Fig. 2b, smaller):

# %%
from semcom_papers.experiments.catalogue import RESULTS

stored = semcom.study(RESULTS / "letter-fig2b-small.zip")
print(stored)
stored.mean().query("`channel.snr_db` in (-9, 9)")

# %% [markdown]
# Two methods, compared seed by seed at two SNRs. The p-values are corrected for the number of comparisons (Holm).
# Read the sentence, not the means: it claims a difference only if the interval excludes 0 and the corrected p-value
# is below 0.05.

# %%
for answer in stored.where({"channel.snr_db": [-9, 9]}).compare_all(["fedcl", "fedproto"]):
    print(answer.sentence)
    print()

# %% [markdown]
# Three questions to ask of any such sentence:
#
# * **How many seeds?** With two or three, Student's intervals are wide, and "inconclusive" is the usual answer.
# * **How many comparisons?** Of twenty true null hypotheses, one seems to be significant at 5 %.
# * **Was the setting fair?** Here FedCL's regulariser was tuned at 10 dB, and its runs at low SNR warn that it
#   dominates. [The letter's results](../../experiments/letter/README.md#what-the-loss-at-low-snr-rests-on) explain it.
