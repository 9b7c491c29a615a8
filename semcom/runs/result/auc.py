"""The area under the ROC curve of test samples: how often a sample of a class scores higher on it than another one.

Hand and Till, "A Simple Generalisation of the Area Under the ROC Curve for Multiple Class Classification Problems",
Machine Learning 45, 2001, take all pairs of classes; here each class stands against all others, as PFLlib does.
Legend: M test samples of all clients, n of one, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from semcom.engine.train.session import Session
from semcom.engine.train.view import View
from semcom.engine.train.visit import Outputs


class RocAreas:
    """The scores that each view gives at the first test SNR; called with each batch (`semcom.engine.train.view.Note`).

    Args:
        session: the run.
        views: what is tested.
    """

    def __init__(self, session: Session, views: Mapping[str, View]) -> None:
        self.session, self.views = session, views
        draws = session.draws
        shape = len(draws.federation.test.flat), len(draws.federation.classes)
        self.scores = {name: torch.zeros(shape, dtype=torch.float32, device=draws.device) for name in views}

    def __call__(self, names: Sequence[str], heard: Outputs) -> None:
        """Keep the scores of a batch, for the views of one population."""
        real = heard.batch.weight > 0
        for name in names if heard.test == 0 else ():
            self.scores[name][heard.at[real]] = self.views[name].answer(heard)[real].float()

    def summarize(self, name: str) -> dict[str, float]:
        """Return `auc` and `auc_micro` of a view: means over its clients, the latter weighted by their test samples."""
        federation = self.session.draws.federation
        scores = self.session.team.sum(self.scores[name]).cpu().numpy()
        labels, starts = federation.labels[federation.test.flat].cpu().numpy(), federation.test.offsets
        found = np.array(
            [
                compute_roc_areas(scores[starts[k] : starts[k + 1]], labels[starts[k] : starts[k + 1]])
                for k in self.views[name].population.ids
            ]
        )
        macro = found[:, 0]
        weights = federation.test.sizes[self.views[name].population.ids]
        some = {"auc": float(macro[~np.isnan(macro)].mean())} if not np.isnan(macro).all() else {}
        return {**some, "auc_micro": float(np.average(found[:, 1], weights=weights))}


def compute_roc_areas(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Compute the areas under the ROC curve of scores `[n, C]` and labels `[n]`; ties count half.

    Returns:
        macro: the mean over the classes that some samples have and others have not, NaN where there is none;
        micro: that of all n C scores together, of which n are for the sample's class.
    """
    from scipy.stats import rankdata  # takes half a second to import

    own = labels[:, None] == np.arange(scores.shape[1])
    told = own.any(0) & ~own.all(0)
    each = _compute_area(rankdata(scores[:, told], axis=0), own[:, told])
    micro = _compute_area(rankdata(scores)[:, None], own.reshape(-1, 1))
    return float(each.mean()) if len(each) else float("nan"), float(micro[0])


def _compute_area(ranks: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return Mann and Whitney's U over the number of pairs, for each column."""
    positive, negative = own.sum(0), (~own).sum(0)
    return ((ranks * own).sum(0) - positive * (positive + 1) / 2) / (positive * negative)
