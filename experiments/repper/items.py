"""The tables and figures of RepPer, and the gradients that its section 5 speaks of.

Jing, Huang, Zhuang, Sun, Huang, Xiao, Ding, "A Closer Look at Personalization in Federated Image Classification",
arXiv:2204.11841, 2022.

The paper gives (Sec. 6.1): 20 clients; a Dirichlet division with alpha 100 (its IID), 1 or 0.5; 100 rounds of 10 or
20 local epochs; a share C of 0.2, 0.4 or 0.8 of the clients in each round; mini-batches of 256; Adam at 0.001, which
decays by 0.1, with weight decay 0.0001; tau 0.1; ResNet-34 and MobileNet; 10 epochs of SGD for heads that are trained
or fine-tuned after the rounds; 100 steps for those of new clients. There is no channel.

It does not give, and here is: rounds of the decay (50 and 75); rate of the SGD of heads (0.1); epochs of FedRep's
head in a round (10, its authors' number, before E on the body); mu of FedProx and the augmentation (semcom's
defaults); the tests (the dataset's own test images in the proportions of the training images); number of seeds
(three); alpha of Figs. 1 and 5 (0.5, as in Fig. 4), and C and E of Figs. 1, 4 and 5 (0.2 and 10, as in Table 2); the
dataset of Fig. 5 (CIFAR-10). Fig. 3 has three datasets in the paper; here it has CIFAR-10, and others by `--set`.

Our readings. Fig. 1 and 4 show local data: the images of one client each, and silhouettes are taken client by client.
Fig. 4's clients have local models in the paper, which are gone after the last average: here they have the common
body. Fig. 5 shows two clients drawn at random: here clients 0 and 1, and the mean over all. Table 3's MLP has one
layer (Sec. 6.3), so it is `linear`, a new head of each client for all methods; the printed column repeats Table 1,
where the other methods have their own heads. Section 6.1 may be read so that LG-FedAvg and FedRep are fine-tuned
after the rounds too; here they are not, as their heads are personal from the start. Eqs. 15 and 25 lack 1 / (tau
||r||) in print, see `semcom_papers.experiments.measures.gradients`.

Scale `small` is CIFAR-10 on two cores: a tenth of each client's training images (250 on average) and half of its test
images, so that rare classes are tested; 64 features of the encoder `dcgan-narrow`; mini-batches of 50; 5 local epochs
for 10 and 10 for 20, and 5 of FedRep's head for 10; 20 rounds with decay at 16 and 19, but 40 with decay at 32 and 37
where C is 0.2, so that every client takes part before it; and heads that are trained after the rounds by semcom's
defaults, since 10 epochs of so few images do not train them. So a client trains some eight times with C 0.2 and 0.4,
and sixteen with 0.8, where the paper has 20, 40 and 80; and with twice the epochs short runs are trained twice as long:
what the paper says of C and of E is held against that. Of Table 1 it has C 0.4, and C 0.2 and 0.8 for E 5, where alpha
is 100 or 1; of Table 2 CIFAR-10 and CIFAR-100; its two networks in Table 4 are others than the paper's, so no claim
about these is held against them. Fig. 6 needs CIFAR-100 and has no such scale. RepPer is tested once, after its last
stage, the others in the last ten rounds too, so that figures and claims have `last`, the accuracy at the end, of all.
At scale `smoke` five clients divide the digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from semcom.config import ChannelConfig, DataConfig, FinishConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.studies.experiment import Grid
from semcom.studies.results.outcome import train_and_add_outcome
from semcom_papers.experiments.measures import class_groups, gradients
from semcom_papers.experiments.papers.items import make_item

if TYPE_CHECKING:
    from semcom.runs.result.result import Result

ARMS = ("fedavg", "lg_fedavg", "fedrep", "repper")
"""Methods of Tables 1, 3 and 4 and of Fig. 1."""
ALL = ("fedavg", "fedavg_ft", "fedprox", "fedprox_ft", "fedrep", "lg_fedavg", "repper")
"""Methods of Table 2 and Fig. 5."""
SCHEDULES: Mapping[str, dict[str, Any]] = {
    "smoke": {"rounds": 2, "batch_size": 50},
    "small": {"rounds": 20, "batch_size": 50, "lr_milestones": (16, 19), "lr_decay": 0.1},
    "paper": {"rounds": 100, "batch_size": 256, "lr_milestones": (50, 75), "lr_decay": 0.1},
}
"""Scale -> its own part of the schedule."""
DIVISIONS: Mapping[str, dict[str, Any]] = {
    "smoke": {"fraction": 0.25, "min_size": 100},
    "small": {"fraction": 0.5, "min_size": 100},
    "paper": {},
}
"""Scale -> options of its division beside alpha; a client of `small` keeps ten images at least."""
FEWER: Mapping[str, dict[str, Any]] = {"small": {"scarce": tuple(range(20)), "scarce_fraction": 0.2}}
"""Scale -> options by which all clients keep fewer training images, and all of their test images."""
EPOCHS = {"smoke": (1, 2), "small": (5, 10), "paper": (10, 20)}
"""Scale -> its two numbers of local epochs."""
REDUCED: Mapping[str, Mapping[str, Mapping[Any, Any]]] = {
    "small": {"train.local_epochs": {5: 10, 10: 20}, "model.encoder": {"dcgan-narrow": "resnet34-pooled"}}
}
"""Scale -> field -> value -> the paper's value that it stands for (the encoder in Tables 1 to 3)."""
FEW = 0.2
"""The smallest share of the clients in a round."""
LONGER: Mapping[str, Any] = {"rounds": 40, "lr_milestones": (32, 37)}
"""Differences of `small`'s schedule with that share: each client takes part before the rate decays."""
HEADS: Mapping[str, dict[str, Any]] = {
    "smoke": {"finish.epochs": 10},
    "small": {},
    "paper": {"finish.epochs": 10, "finish.optimizer": "sgd", "finish.lr": 0.1},
}
"""Scale -> training of heads after the rounds, if not by default; the rate is ours."""
TUNED = ("fedavg_ft", "fedprox_ft", "repper")
"""Methods with a last stage."""
BETA, SHARE, LOCAL = "partition.beta", "train.participation", "train.local_epochs"
IID, MILD, STRONG = 100.0, 1.0, 0.5
"""Values of alpha."""


def make_repper_base(scale: str, alpha: float = MILD, share: float = 0.4) -> RunConfig:
    """Make the configuration that the runs of a scale share; C is `share`."""
    paper, smoke = scale == "paper", scale == "smoke"
    longer = LONGER if scale == "small" and share == FEW else {}
    return RunConfig(
        data=DataConfig(name="digits" if smoke else "cifar10"),
        partition=PartitionConfig(
            "dirichlet", options={"beta": alpha, "test": "own", **DIVISIONS[scale]}, **FEWER.get(scale, {})
        ),
        model=ModelConfig("resnet34-pooled" if paper else "dcgan-narrow", features=512 if paper else 64),
        channel=ChannelConfig(kind="none"),
        clients=5 if smoke else 20,
        train=TrainConfig(
            lr=1e-3,
            optimizer="adam",
            weight_decay=1e-4,
            participation=share,
            local_epochs=EPOCHS[scale][0],
            **{**SCHEDULES[scale], **longer},
        ),
    )


def make_repper_grid(
    scale: str, vary: Mapping[Any, tuple[Any, ...]], start: RunConfig | None = None, **more: Any
) -> Grid:
    """Make a grid of a scale over its seeds: one in a smoke test, three otherwise."""
    seeds = (0,) if scale == "smoke" else (0, 1, 2)
    heads = {name: HEADS[scale] for name in TUNED}
    own = {**heads, "fedrep": {"hyper.head_epochs": 5}} if scale == "small" else heads
    return Grid(start or make_repper_base(scale), {**vary, "seed": seeds}, own=own, **more)


# Measurements beside the accuracy -------------------------------------------------------------------------------------


def train_and_group(config: RunConfig) -> None:
    """Train; then store accuracy and silhouette of frequent and rare classes as `groups`, and `clusters` of all."""
    train_and_add_outcome(config, _measure_groups)


def _measure_groups(result: Result) -> dict[str, Any]:
    confusion = result.confusion[next(iter(result.views))]
    whole, silhouettes = class_groups.measure_separation_by_thirds(result)
    accuracies = class_groups.measure_accuracy_of_thirds(confusion, class_groups.count_training_images(result))
    return {"clusters": whole, "groups": class_groups.merge_tables(accuracies, silhouettes)}


def train_and_pull(config: RunConfig) -> None:
    """Train; then store the lengths of gradients for frequent and rare classes as `groups`.

    `gradient` is of the loss that trains the method's encoder. `groups_initial` is for the models before the first
    round.
    """
    train_and_add_outcome(config, _measure_pull)


def _measure_pull(result: Result) -> dict[str, Any]:
    from semcom.engine.train.view import View

    own = gradients.CONTRAST if result.config.method == "repper" else gradients.ENTROPY
    start = View(result.world.population(shared=("encoder.", "head.")))
    views = {"groups": next(iter(result.views.values())), "groups_initial": start}
    tables = {name: gradients.measure_view(result, view) for name, view in views.items()}
    return {
        name: {group: {**numbers, "gradient": numbers[own]} for group, numbers in table.items() if own in numbers}
        for name, table in tables.items()
    }


# Tables and figures ---------------------------------------------------------------------------------------------------


def _make_repper_table1(scale: str) -> Grid:
    if scale == "paper":
        return make_repper_grid(scale, {SHARE: (0.2, 0.4, 0.8), LOCAL: EPOCHS[scale], BETA: (IID, MILD, STRONG)})
    if scale == "smoke":
        return make_repper_grid(scale, {SHARE: (0.4,), LOCAL: (1,), BETA: (IID, STRONG)})
    few, many = EPOCHS[scale]
    settings = ((0.4, few), (0.4, many), (0.2, few), (0.8, few))
    places = tuple((share, epochs, alpha) for share, epochs in settings for alpha in (IID, MILD))
    return make_repper_grid(
        scale,
        {(SHARE, LOCAL, BETA): (*places, (0.4, few, STRONG))},
        apart={SHARE: {FEW: {f"train.{name}": value for name, value in LONGER.items()}}},
    )


def _make_repper_table2(scale: str) -> Grid:
    paper = ("cinic10", "cifar10", "cifar100")
    data = {"smoke": ("digits",), "small": ("cifar10", "cifar100"), "paper": paper}[scale]
    alphas = (MILD, STRONG) if scale != "smoke" else (MILD,)
    return make_repper_grid(scale, {"data.name": data, BETA: alphas}, make_repper_base(scale, share=FEW))


def _make_repper_table3(scale: str) -> Grid:
    kinds = ("linear", "svm", "lr") if scale != "smoke" else ("linear", "svm")
    return make_repper_grid(scale, {"finish.kind": kinds}, apart={"finish.kind": {"linear": HEADS[scale]}})


def _make_repper_table4(scale: str) -> Grid:
    networks = (("mobilenet-v1", 1024), ("resnet34-pooled", 512))
    small = (("dcgan-narrow", 64), ("cnn", 64))
    data = {"smoke": ("digits",), "small": ("cifar10",), "paper": ("cifar10", "cifar100")}[scale]
    vary: dict[Any, Any] = {("model.encoder", "model.features"): networks if scale == "paper" else small}
    return make_repper_grid(scale, {**vary, "data.name": data})


def _make_repper_skewed(scale: str, *keep: Literal["confusion", "features"]) -> Grid:
    start = make_repper_base(scale, STRONG, share=FEW)
    return make_repper_grid(scale, {BETA: (STRONG,)}, replace(start, keep=keep))


def _make_repper_fig1(scale: str) -> Grid:
    return _make_repper_skewed(scale, "confusion", "features")


def _make_repper_fig4(scale: str) -> Grid:
    return replace(_make_repper_fig1(scale), vary={BETA: (STRONG,), "seed": (0,)})


def _make_repper_fig3(scale: str) -> Grid:
    start = make_repper_base(scale)
    schedule = replace(start.train, rounds=1, local_epochs=None, local_steps=1, lr_milestones=None, lr_decay=None)
    whole = PartitionConfig("dirichlet", options={"test": "own"})
    shown = replace(start, model=ModelConfig("dcgan-narrow"), partition=whole, train=schedule, keep=("confusion",))
    alphas = (IID, MILD, STRONG) if scale != "smoke" else (IID, STRONG)
    return Grid(shown, {BETA: alphas, "seed": (0,)})


def _make_repper_fig6(scale: str) -> Grid:
    if scale == "smoke":
        return make_repper_grid(
            scale, {BETA: (MILD,)}, replace(make_repper_base(scale, share=1.0), new_clients=3, new_steps=10)
        )
    start = make_repper_base(scale, share=1.0)
    joined = replace(start, new_clients=20, new_data="cifar10", new_steps=100, data=DataConfig(name="cifar100"))
    heads = FinishConfig(optimizer="sgd", lr=HEADS[scale]["finish.lr"])
    return make_repper_grid(scale, {BETA: (MILD,)}, replace(joined, finish=heads))


# fmt: off
TABLE1 = make_item("repper-table1", "RepPer, Table 1", "Accuracy over alpha, clients per round and local epochs",
                   ARMS, _make_repper_table1, BETA, reduced=REDUCED)
TABLE2 = make_item("repper-table2", "RepPer, Table 2", "Accuracy on three datasets",
                   ALL, _make_repper_table2, "data.name", reduced=REDUCED)
TABLE3 = make_item("repper-table3", "RepPer, Table 3",
                   "Accuracy with a head of one layer, a support vector machine and logistic regression",
                   ARMS, _make_repper_table3, "finish.kind", reduced=REDUCED)
TABLE4 = make_item("repper-table4", "RepPer, Table 4", "Accuracy with two encoders",
                   ARMS, _make_repper_table4, "data.name")
# With numbers for what the drawings show, in all and for frequent and rare classes.
FIG1 = make_item("repper-fig1", "RepPer, Fig. 1", "Features of a client's images: their clusters",
                 ARMS, _make_repper_fig1, BETA, train=train_and_group)
# Runs of one step, as runs are what keeps the numbers of images.
FIG3 = make_item("repper-fig3", "RepPer, Fig. 3", "Images of 20 clients by class", ("fedavg",), _make_repper_fig3, BETA)
FIG4 = make_item("repper-fig4", "RepPer, Fig. 4", "Features of RepPer on the images of seven clients and of all",
                 ("repper",), _make_repper_fig4, BETA, train=train_and_group)
FIG5 = make_item("repper-fig5", "RepPer, Fig. 5", "Accuracy from a client's frequent classes to its rare ones",
                 ALL, lambda scale: _make_repper_skewed(scale, "confusion"), BETA, train=train_and_group)
# Trained on CIFAR-100; the new clients have CIFAR-10. In a smoke test they have the digits too.
FIG6 = make_item("repper-fig6", "RepPer, Fig. 6", "Accuracy of 20 new clients with other data",
                 ("fedavg", "fedprox", "lg_fedavg", "fedrep", "repper"), _make_repper_fig6, BETA,
                 scales=("smoke", "paper"))
# Eqs. 10 to 17, measured.
GRADIENTS = make_item("repper-gradients", "RepPer, section 5", "Gradients of images of frequent and rare classes",
                      ("repper", "fedavg"), _make_repper_skewed, BETA, train=train_and_pull)
# fmt: on
