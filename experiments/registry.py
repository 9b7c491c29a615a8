"""The experiments by name. A new one is a file beside this and a line here."""

from __future__ import annotations

from dataclasses import dataclass

from channels.registry import Registry
from experiments.base import Experiment, Train
from semcom.config import ConfigError, RunConfig
from semcom.registry import find
from semcom.runs.plugins import absolute, load_plugins

EXPERIMENTS: Registry[Experiment] = Registry(
    "experiment",
    {
        "arms-small": "experiments.arms_small:ARMS_SMALL",
        "collaboration": "experiments.collaboration:COLLABORATION",
        "convergence-bound": "experiments.bounds:CONVERGENCE_BOUND",
        "demo": "experiments.demo:DEMO",
        "fedcosr-fig4": "experiments.fedcosr:FIG4",
        "fedcosr-fig5": "experiments.fedcosr:FIG5",
        "fedcosr-fig6": "experiments.fedcosr:FIG6",
        "fedcosr-fig7": "experiments.fedcosr:FIG7",
        "fedcosr-fig8": "experiments.fedcosr:FIG8",
        "fedcosr-fig9": "experiments.fedcosr:FIG9",
        "fedcosr-table2": "experiments.fedcosr:TABLE2",
        "fedcosr-rates": "experiments.fedcosr_rates:FEDCOSR_RATES",
        "fedcosr-table2-rates": "experiments.fedcosr_rates:TABLE2_RATES",
        "fedcosr-table3": "experiments.fedcosr:TABLE3",
        "fedcrc-fig1": "experiments.fedcrc:FIG1",
        "fedcrc-fig3": "experiments.fedcrc:FIG3",
        "fedcrc-table1": "experiments.fedcrc:TABLE1",
        "fedcrc-table2": "experiments.fedcrc:TABLE2",
        "fedcrc-table3": "experiments.fedcrc:TABLE3",
        "fedcrl-curves": "experiments.fedcrl:CURVES",
        "fedcrl-table2": "experiments.fedcrl:TABLE2",
        "fedcrl-table3": "experiments.fedcrl:TABLE3",
        "fedcrl-tsne": "experiments.fedcrl:TSNE",
        "finish-search": "experiments.finish_search:FINISH_SEARCH",
        "letter-ablation": "experiments.fedcl_letter:ABLATION",
        "letter-encoders": "experiments.fedcl_letter:ENCODERS",
        "letter-fig2a": "experiments.fedcl_letter:FIG2A",
        "letter-fig2b": "experiments.fedcl_letter:FIG2B",
        "letter-fig2b-once": "experiments.fedcl_letter:FIG2B_ONCE",
        "letter-fig3a": "experiments.fedcl_letter:FIG3A",
        "letter-fig3b": "experiments.fedcl_letter:FIG3B",
        "letter-fig4": "experiments.fedcl_letter:FIG4",
        "letter-lead": "experiments.letter_lead:LETTER_LEAD",
        "letter-lead-confirm": "experiments.letter_lead:LETTER_LEAD_CONFIRM",
        "letter-regime": "experiments.letter_regime:LETTER_REGIME",
        "letter-encoder": "experiments.letter_regime:LETTER_ENCODER",
        "letter-unseen": "experiments.letter_regime:LETTER_UNSEEN",
        "letter-full": "experiments.letter_full:LETTER_FULL",
        "letter-full-adam": "experiments.letter_full:LETTER_FULL_ADAM",
        "letter-full-search": "experiments.letter_full:LETTER_FULL_SEARCH",
        "letter-low": "experiments.letter_low:LETTER_LOW",
        "letter-low-search": "experiments.letter_low:LETTER_LOW_SEARCH",
        "letter-scg": "experiments.letter_low:LETTER_SCG",
        "letter-weight": "experiments.letter_weight:LETTER_WEIGHT",
        "letter-pull": "experiments.letter_weight:LETTER_PULL",
        "letter-search": "experiments.letter_search:LETTER_SEARCH",
        "letter-search-lambda": "experiments.letter_search:LETTER_SEARCH_LAMBDA",
        "overhead": "experiments.overhead:OVERHEAD",
        "repper-fig1": "experiments.repper:FIG1",
        "repper-fig3": "experiments.repper:FIG3",
        "repper-fig4": "experiments.repper:FIG4",
        "repper-fig5": "experiments.repper:FIG5",
        "repper-fig6": "experiments.repper:FIG6",
        "repper-gradients": "experiments.repper:GRADIENTS",
        "repper-table1": "experiments.repper:TABLE1",
        "repper-table2": "experiments.repper:TABLE2",
        "repper-table3": "experiments.repper:TABLE3",
        "repper-table4": "experiments.repper:TABLE4",
        "wireless-baselines": "experiments.wireless_baselines:WIRELESS_BASELINES",
        "wireless-exchange": "experiments.wireless:WIRELESS_EXCHANGE",
        "wireless-heterogeneity": "experiments.wireless:WIRELESS_HETEROGENEITY",
        "wireless-snr": "experiments.wireless:WIRELESS_SNR",
    },
    base="experiments.base:Experiment",
    made=True,
)
"""Experiments by name."""


def experiment(name: str) -> Experiment:
    """Return the experiment called `name`, or the one that a Python file registers.

    Raises:
        ConfigError: there is none, and the known ones are listed; or the file cannot be imported, or registers none or
            several.
    """
    return find(EXPERIMENTS, declared_in(name) if name.endswith(".py") else name)


@dataclass(frozen=True)
class OwnTrain:
    """The training function of an experiment that a plug-in declares, for processes that have not loaded it.

    They could not import its module; so they load the plug-in and take the function from the experiment.
    """

    name: str
    """Of the experiment."""
    plugin: str
    """The Python file or module that declares it."""

    def __call__(self, config: RunConfig) -> object:
        """Carry out one run."""
        load_plugins((self.plugin,))
        train = find(EXPERIMENTS, self.name).train
        assert train is not None
        return train(config)


def own_train(declared: Experiment) -> Train | None:
    """Return the training function of an experiment, for any process; None where it has none of its own."""
    source = EXPERIMENTS.source(declared.name)
    known = source is not None and find(EXPERIMENTS, declared.name).train is declared.train
    return OwnTrain(declared.name, source) if declared.train and source and known else declared.train


def declared_in(file: str) -> str:
    """Return the name of the experiment that a Python file registers.

    Raises:
        ConfigError: the file cannot be imported, or registers none or several.
    """
    load_plugins((file,))
    names = [name for name in EXPERIMENTS.names() if EXPERIMENTS.source(name) == absolute(file)]
    if not names:
        raise ConfigError(f"experiment: {file} registers none; see the experiments' part of README.md")
    if len(names) > 1:
        raise ConfigError(f"experiment: {file} registers {', '.join(names)}; give one: NAME --plugin {file}")
    return names[0]
