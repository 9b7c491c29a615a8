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
# # Images that come back
#
# Here the base station rebuilds the image itself, in place of naming its class. The encoder turns a picture into a few
# complex symbols, the channel adds noise, and the decoder turns the noisy symbols back into a picture: joint
# source-channel coding (DeepJSCC). Two clients train one such pair together.

# %%
from IPython.display import Image

import semcom

# %% [markdown]
# ## Two runs
#
# Three settings make the difference to a classification: the task, the encoder and the decoder. Two features
# are one complex symbol, so 32 and 128 features are 16 and 64 symbols for the 256 pixels of a digit: bandwidth ratios
# of 1/16 and 1/4. We train both at 10 dB, and test them at four SNRs. `keep` stores some test images and the trained
# weights.

# %%
semcom.sweep(
    methods=("fedavg",),
    seeds=(0,),
    set={
        "task": "reconstruction",
        "data.size": 16,
        "model.encoder": "deepjscc",
        "model.head": "deepjscc",
        "clients": 2,
        "partition.kind": "iid",
        "partition.fraction": 0.5,
        "channel.snr_db": 10,
        "train.rounds": 16,
        "train.batch_size": 8,
        "train.lr": 0.003,
    },
    vary={"model.features": (32, 128), "channel.test_snr_db": (10, 0, 5, 20)},
    keep=("images", "weights"),
    out="results/images",
)

# %% [markdown]
# ## What comes back
#
# With 64 symbols (128 features), at each test SNR:

# %%
wanted = semcom.Plot(kind="images", at={"model.features": 128})
semcom.plot("results/images", wanted, out="drawn")
Image("drawn/images.png", width=700)

# %% [markdown]
# ## How good is it?
#
# PSNR is the peak signal-to-noise ratio of pixels in dB. It falls little by little as the channel gets worse than in
# training, and hardly rises where it gets better:

# %%
wanted = semcom.Plot(x="channel.test_snr_db", y="psnr_last", hue="model.features")
semcom.plot("results/images", wanted, name="psnr", out="drawn")
Image("drawn/psnr.png", width=450)

# %% [markdown]
# Sixteen rounds are few: read the shape of the curves and not their height. On CIFAR-10, with longer training, [the
# results](../../experiments/deepjscc.md) compare DeepJSCC with a digital chain of codec, channel code and modulation
# (the method `digital-chain`), which is perfect above some SNR and useless below it.
#
# ## Your own picture through the trained code
#
# `decode` sends images through a client's encoder, the channel and the decoder. Here is a picture that no client has
# seen: two strokes.

# %%
import matplotlib.pyplot as plt
import numpy as np

runs = semcom.study("results/images").runs
result = semcom.load(runs[runs["model.features"] == 128]["folder"].iloc[0])

drawn = np.zeros((1, 1, 16, 16), dtype=np.uint8)  # [number, colours, height, width]
drawn[..., 3:13, 4:6] = drawn[..., 3:5, 4:12] = 255
back = result.decode(0, drawn)

figure, (left, right) = plt.subplots(1, 2, figsize=(4, 2))
left.imshow(drawn[0, 0], cmap="gray")
right.imshow(back[0, 0], cmap="gray")
for axes, title in ((left, "sent"), (right, "came back")):
    axes.set_title(title)
    axes.axis("off")

# %% [markdown]
# It comes back as something like a digit, as these are all that the code has learned to send.
#
# ## What to try next
#
# * `"channel.kind": "rayleigh"` lets the symbols fade, `"model.snr_input": True` tells encoder and decoder the SNR.
# * `methods=("local", "fedavg", "fedper")` asks whether clients with other digits should share a code.
# * `"data.name": "cifar10"` and `"data.size": 32` are the pictures of the papers; give them 60 rounds.
#
# [Images that come back](../tasks.md) explains ratio, metrics and the digital chain.
