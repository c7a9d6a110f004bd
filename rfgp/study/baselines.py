"""What a model has to beat: one that looks at no input, a linear one, and boosting."""

from __future__ import annotations

import time
import warnings

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Normal

from .._support import optional
from .losses import Losses, classification_losses, regression_losses

_MOST_ROWS = 20_000
_PENALTIES = np.logspace(-6, 6, 25)


def baselines(
    x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, num_classes: int | None
) -> dict[str, tuple[Losses, float]]:
    """The losses of all baselines on the M test rows, and the seconds that they took.

    "trivial" predicts the mean and variance of the targets, or the frequencies of the classes. "linear" is ridge or
    logistic regression of at most 20,000 standardized rows. "boosting" is scikit-learn's with its defaults; its
    variance is that of the errors of a fifth of the rows, which it then has not seen.
    """
    for module in ("linear_model", "exceptions", "ensemble"):
        optional.require(f"sklearn.{module}", "scikit-learn", "the linear model")  # not part of its time
    results = {}
    for name, predict in (("linear", _linear), ("boosting", _boosting), ("trivial", _trivial)):
        began = time.perf_counter()
        losses = predict(x, y, x_test, y_test, num_classes)
        results[name] = losses, time.perf_counter() - began
    return results


def _trivial(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, num_classes: int | None) -> Losses:
    if num_classes is None:
        mean, std = (part.expand_as(y_test) for part in (y.mean(0), y.std(0)))
        return regression_losses(Normal(mean, std), y_test)
    counts = torch.bincount(y, minlength=num_classes).double() + 1.0
    return classification_losses((counts / counts.sum()).expand(len(y_test), -1), y_test)


def _linear(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, num_classes: int | None) -> Losses:
    models = optional.require("sklearn.linear_model", "scikit-learn", "the linear model")
    some = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:_MOST_ROWS]
    mean, std = x[some].mean(0), x[some].std(0)
    std = torch.where(std > 0, std, torch.ones_like(std))
    train, test = (((part - mean) / std).numpy() for part in (x[some], x_test))
    if num_classes is None:
        columns = [_ridge(models, train, column.numpy(), test) for column in y[some].reshape(len(some), -1).T]
        means, stds = (torch.stack(parts, -1).reshape(y_test.shape) for parts in zip(*columns, strict=True))
        return regression_losses(Normal(means, stds), y_test)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", category=optional.require("sklearn.exceptions", "scikit-learn", "").ConvergenceWarning
        )
        model = models.LogisticRegression(max_iter=200).fit(train, y[some].numpy())
    probabilities = torch.zeros(len(y_test), num_classes, dtype=torch.float64)
    probabilities[:, torch.from_numpy(model.classes_)] = torch.from_numpy(model.predict_proba(test)).double()
    return classification_losses(probabilities, y_test)


def _boosting(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, num_classes: int | None) -> Losses:
    ensemble = optional.require("sklearn.ensemble", "scikit-learn", "boosting")
    if num_classes is not None:
        model = ensemble.HistGradientBoostingClassifier(random_state=0).fit(x.numpy(), y.numpy())
        probabilities = torch.zeros(len(y_test), num_classes, dtype=torch.float64)
        probabilities[:, torch.from_numpy(model.classes_)] = torch.from_numpy(model.predict_proba(x_test.numpy()))
        return classification_losses(probabilities, y_test)
    held, rest = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).tensor_split([len(x) // 5])
    means, stds = [], []
    for column in y.reshape(len(y), -1).unbind(-1):
        model = ensemble.HistGradientBoostingRegressor(random_state=0).fit(x[rest].numpy(), column[rest].numpy())
        errors = torch.from_numpy(model.predict(x[held].numpy())) - column[held]
        means.append(torch.from_numpy(model.predict(x_test.numpy())))
        stds.append(errors.square().mean().sqrt().clamp_min(1e-6).expand(len(x_test)))
    mean, std = (torch.stack(part, -1).reshape(y_test.shape) for part in (means, stds))
    return regression_losses(Normal(mean, std), y_test)


def _ridge(models: object, x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of one output at test inputs."""
    model = models.RidgeCV(alphas=_PENALTIES).fit(x, y)  # type: ignore[attr-defined]
    mean = torch.from_numpy(model.predict(x_test))
    return mean, torch.full_like(mean, max(-model.best_score_, 1e-12) ** 0.5)
