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
# # A first study
#
# The question: clients share the mean features of each class, and nothing else (FedProto). Is that better than
# training alone? And does the answer change in noise?
#
# All of this runs on handwritten digits, which come with scikit-learn. Nothing is downloaded. The runs are short, so
# the numbers show how to work, and not what to believe.

# %%
import semcom

# %% [markdown]
# ## One run
#
# A run is one method, trained on one division of the data, through one channel. Here three clients have three classes
# of digits each, and every image crosses a channel with additive white Gaussian noise (AWGN) of 10 dB.

# %%
config = semcom.RunConfig(
    method="fedproto",
    clients=3,
    model=semcom.ModelConfig(encoder="dcgan-narrow", features=16),
    channel=semcom.ChannelConfig(kind="awgn", snr_db=10.0),
    train=semcom.TrainConfig(rounds=8, batch_size=15),
)
result = semcom.run(config)
result.summary["accuracy"]

# %% [markdown]
# The accuracy is a fraction of 1. It is the mean over the clients and over the last ten evaluations. The summary also
# says what crossed the air. `floats` are real numbers per participating client and round:

# %%
result.summary["traffic"]["up"]

# %% [markdown]
# ## Many runs
#
# One run says little: another seed draws other classes, other first weights and other noise. So we repeat both
# methods with three seeds. Each run is trained at 10 dB and tested at three SNRs. `set` changes a field in all runs,
# `vary` says which field takes several values. Fields are named as on the command line.

# %%
semcom.sweep(
    methods=("fedproto", "local"),
    seeds=range(3),
    set={
        "clients": 3,
        "model.encoder": "dcgan-narrow",
        "model.features": 16,
        "train.rounds": 8,
        "train.batch_size": 15,
    },
    vary={"channel.test_snr_db": (10.0, 0.0, -10.0)},
    out="results/first",
)

# %% [markdown]
# If you stop a sweep and call it again, it resumes where it stopped.
#
# ## The answer
#
# `semcom.study` reads the folder. Its tables are pandas frames. `mean` averages over seeds and gives Student's 95 %
# interval:

# %%
study = semcom.study("results/first")
study.mean()

# %% [markdown]
# Both methods had the same clients, weights and noise in each seed. So `compare` looks at the difference seed by
# seed, which is more precise than two separate intervals. The sentence claims a difference only where its interval
# excludes 0. Otherwise the result is inconclusive, and more seeds may decide: the same sweep with `seeds=range(6)`
# adds them to the folder.

# %%
print(study.where({"test_snr_db": 10}).compare("fedproto", "local").sentence)

# %% [markdown]
# The same at all test SNRs:

# %%
print(study.compare_all(["fedproto", "local"]))

# %% [markdown]
# ## The figure
#
# `semcom.plot` writes a PDF as wide as an IEEE column, a PNG, the plotted numbers as CSV, and a page with the
# caption.

# %%
files = semcom.plot("results/first", semcom.Plot(x="channel.test_snr_db"), name="accuracy", out="drawn")
[path.name for path in files]

# %%
from IPython.display import Image

Image("drawn/accuracy.png", width=450)

# %% [markdown]
# `semcom.report(["results/first"], out="report.html")` writes the whole study as one page with interactive curves.
#
# Next: [a method and a channel of your own](own_method_and_channel.py), and [reading results](reading_results.py).
