"""The losses of what a model has to beat: one that looks at no input, a linear one, and boosting."""

from __future__ import annotations

from torch import Tensor
from torch.distributions import Normal

from .._support import optional
from .losses import Losses, classification_losses, regression_losses


def baselines(
    x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, num_classes: int | None
) -> dict[str, tuple[Losses, float]]:
    """The losses of all baselines on the M test rows, and the seconds that they took.

    "trivial" predicts the mean and variance of the targets, or the frequencies of the classes. "linear" is ridge or
    logistic regression of at most 10,000 rows, "boosting" scikit-learn's with its defaults; its variance is that of
    the errors of a fifth of the rows by the others.
    """
    optional.require("sklearn", "scikit-learn", "the linear model")
    from ..sklearn.baselines import baselines as predictions

    found = predictions(x, y, x_test, num_classes)
    return {name: (_losses(predicted, y_test), seconds) for name, (predicted, seconds) in found.items()}


def _losses(predicted: Normal | Tensor, y: Tensor) -> Losses:
    return classification_losses(predicted, y) if isinstance(predicted, Tensor) else regression_losses(predicted, y)
