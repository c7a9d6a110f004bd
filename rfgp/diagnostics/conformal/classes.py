"""Sets of classes that contain the true one, calibrated for every class by itself."""

from __future__ import annotations

import torch
from torch import Tensor

from ..._support import checks
from .split import quantile


class ClassConditionalSets:
    r"""Sets of classes from the probabilities of any classifier, calibrated class by class.

    .. math:: C(x) = \{c : 1 - p_c(x) \le q_c\}, \qquad
        q_c = \text{the } \lceil (n_c + 1)(1 - \alpha) \rceil\text{-th smallest of } 1 - p_c(x_i),\ y_i = c

    A row of class c, exchangeable with the calibration rows of c, has it in its set with probability
    :math:`1 - \alpha` or more. A class with too few of these rows is in every set.

    :param probabilities: those of the classes at calibration rows, (n, C), such as those of ``predict_proba``.
    :param labels: the classes of these rows, (n,), integers from 0 to C - 1.
    :param level: the coverage :math:`1 - \alpha`; default: 0.9.
    :raises ValueError: for probabilities, labels or a level of another kind.

    Source: V. Vovk, Conditional validity of inductive conformal predictors, 2012.

    >>> probabilities = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]])
    >>> sets = ClassConditionalSets(probabilities, torch.tensor([0, 0, 1, 1]), level=0.6)
    >>> sets.sets(torch.tensor([[0.95, 0.05], [0.65, 0.35]]))
    tensor([[ True, False],
            [ True, False]])
    """

    @torch.no_grad()
    def __init__(self, probabilities: Tensor, labels: Tensor, level: float = 0.9) -> None:
        checked, share = _probabilities(probabilities), checks.share("level", level)
        checks.labels(labels, checked, checked.shape[1], "labels")
        scores = 1.0 - checked
        self.thresholds = torch.stack([quantile(scores[labels == c, c], share) for c in range(checked.shape[1])])

    @torch.no_grad()
    def sets(self, probabilities: Tensor) -> Tensor:
        """Which classes are in the sets of new rows, from their probabilities (m, C): (m, C), bool."""
        checked = _probabilities(probabilities)
        if checked.shape[1] != len(self.thresholds):
            classes = len(self.thresholds)
            raise ValueError(f"expected probabilities of {classes} classes, got {checked.shape[1]}; pass a column each")
        return 1.0 - checked <= self.thresholds.to(checked)


def _probabilities(values: Tensor) -> Tensor:
    checked = checks.floating(values, "probabilities")
    if checked.dim() != 2 or not bool(((checked >= 0) & (checked <= 1)).all()):
        raise ValueError(
            f"expected probabilities (n, C) between 0 and 1, got a tensor {tuple(checked.shape)}; pass those"
        )
    return checked
