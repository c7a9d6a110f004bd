"""Checks of the noise that little data, or few features, have taught, against predictions of rows from near ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from gpytorch.likelihoods import Likelihood
from torch import Tensor

from .._support.constrained import set_within
from ..linalg.last_rows import RowGroups, log_densities
from ..linalg.prediction_errors import normal_log_density
from . import timing
from .exact_regression import ExactRegression
from .near_rows import NearRows
from .prediction_errors import conditional_log_density
from .starts import random_rows
from .stationary import covariance

if TYPE_CHECKING:
    from .session import Training

NUM_NEIGHBORS = 64
_CHECKS = (500, NUM_NEIGHBORS), (20_000, 8)
"""How many rows are predicted from how many others: rows of large errors may be rare, or seen by many others alone."""
_SMALLEST_GAIN = 0.05
_FACTORS = tuple(2.0**power for power in range(17))
_FIRST_ROWS, _FEW_ROWS, _LARGE_LOSS = 50, 200, 0.1
_SMALLER, _SHORTER = tuple(0.5**power for power in range(1, 6)), tuple(2.0**power for power in range(6))
"""Features are compared with the exact kernel on so many rows, if the first of them gain. The rows have to gain so many
nats with smaller noises and shorter lengthscales, by these factors."""


def has_one_noise(regression: ExactRegression) -> bool:
    """Whether a model has one target per row, and noise of one variance that it learns."""
    if not regression.is_plain or regression.noise is not None:
        return False
    noise = getattr(regression.model.likelihood, "noise_covar", None)
    return noise is not None and bool(noise.raw_noise.requires_grad)


@torch.no_grad()
def noise_factor(regression: ExactRegression, rows: Tensor, near: NearRows | None = None) -> tuple[float, float]:
    r"""By what the noise is to be multiplied so that rows are predicted best, and their mean log density then.

    .. math:: \max_{c \in \{1, 2, 4, \dots\}} \sum_i \log p(y_i \mid y_{n(i)}, c \sigma^2)

    n(i) are 64 rows near one of 500, or eight near one of up to 20,000: the larger factor counts, unless the other rows
    lose more than these gain. It is one where the gain is below 0.05 nats a row.

    :param near: finds rows near others among these rows; default: made here.
    """
    near, of_checks = NearRows(regression.x[rows]) if near is None else near, []
    for count, size in _CHECKS:
        some = random_rows(len(rows), count).to(regression.x.device)
        groups = RowGroups(rows.to(some.device)[near.nearest(regression.kernel, some, size)])
        of_checks.append(_densities_of_larger(regression, groups))
    densities = torch.stack(of_checks)
    gains = densities - densities[:, :1]
    wanted = [int(gain.argmax()) for gain in gains if float(gain.max()) > _SMALLEST_GAIN]
    index = max((each for each in wanted if float(gains[:, each].sum()) > 0.0), default=0)
    return _FACTORS[index], float(densities[:, index].mean())


def multiply_noise(likelihood: Likelihood, factor: float) -> bool:
    """Multiply the noise variances that a likelihood learns, within their bounds; whether it has any."""
    owner, found = getattr(likelihood, "noise_covar", likelihood), False
    for name in ("noise", "task_noises"):
        raw = getattr(owner, f"raw_{name}", None)
        if isinstance(raw, Tensor) and raw.requires_grad:
            set_within(owner, name, factor * getattr(owner, name).double())
            found = True
    return found


def raise_noise(training: Training, regression: ExactRegression, rows: Tensor, near: NearRows | None = None) -> None:
    """Raise a noise with which rows are predicted badly from those near them."""
    began = timing.clock()
    factor, density = noise_factor(regression, rows, near)
    if factor > 1.0:
        multiply_noise(regression.model.likelihood, factor)
    name = "noise as it is" if factor == 1.0 else f"noise times {factor:g}"
    training.add_stage(name, "rows given those near them", began, density)


@torch.no_grad()
def advice_on_features(regression: ExactRegression) -> str | None:
    r"""What to do where features have taught a noise that is far above that of the exact kernel, else None.

    Rows are predicted by all rows with the features, and by others near them with the exact kernel, a smaller noise,
    the variance that this leaves, and lengthscales divided by powers of two: the latter knows less, and predicts better
    only where the features are too few.

    .. math:: \max_{a \ge 1,\, c < 1} \sum_i \log p(y_i \mid y_{n(i)}, \ell / a, c \sigma^2)
        - \sum_i \log \hat p(y_i \mid y, \ell, \sigma^2)
    """
    model, count = regression.model, len(regression.x)
    if regression.weights is not None or count <= NUM_NEIGHBORS or not has_one_noise(regression):
        return None
    some = random_rows(count, _FEW_ROWS).to(regression.x.device)
    groups = NearRows(regression.x).nearest(regression.kernel, some, NUM_NEIGHBORS)
    gain, *_ = _gain(regression, groups[:_FIRST_ROWS])
    if not gain > 0.0:
        return None
    gain, density, own, best = _gain(regression, groups)
    if not gain > _LARGE_LOSS:
        return None
    noise = float(model.likelihood.noise)
    return (
        f"the noise variance of {noise:.3g} has some of the function, which {model.covar_module.num_scalar_features} "
        f"features cannot follow: rows are predicted better from {NUM_NEIGHBORS} near ones with the exact kernel and a "
        f"noise of {_SMALLER[best] * noise:.3g}, with mean log densities of {density:.2f} and {own:.2f}; "
        f"take more features, or landmarks with block_size"
    )


def _gain(regression: ExactRegression, groups: Tensor) -> tuple[float, float, float, int]:
    """What the last rows of groups (n, m) gain by smaller noises, their density then and by features, and which noise.

    The gain is that over the features, and over near rows with the noise as it is.
    """
    model, rows = regression.model, groups[:, -1]
    same = float(_densities(regression, groups, (1.0,)).mean())
    of_lengths = [_densities(regression, groups, _SMALLER, shorter).mean(-1) for shorter in _SHORTER]
    density, best = torch.stack(of_lengths).amax(0).max(0)
    latent = model.posterior(regression.x[rows])
    variance = latent.variance.double() + regression.noise_variances(rows)
    own = float(normal_log_density(regression.targets[rows] - latent.mean.double(), variance).mean())
    return float(density) - max(own, same), float(density), own, int(best)


def _densities_of_larger(regression: ExactRegression, groups: RowGroups) -> Tensor:
    """The mean log densities (F,) of the last rows of groups given the others, with the noise times larger factors."""
    rows = regression.stationary_rows(groups.rows)
    if rows is None:
        return _densities(regression, groups.rows[groups.numbers], _FACTORS).mean(-1)
    means = []
    for factor in _FACTORS:
        try:
            means.append(log_densities(rows._replace(noise=factor * rows.noise), groups).mean())
        except ValueError:  # no positive definite matrix
            means.append(rows.noise.new_tensor(-math.inf))
    return torch.stack(means)


def _densities(regression: ExactRegression, groups: Tensor, factors: tuple[float, ...], shorter: float = 1.0) -> Tensor:
    """The log densities (F, n) of the last rows of groups (n, m) given the others, with the noise times factors.

    :param shorter: by what lengthscales are divided.
    """
    x = regression.x[groups]
    matrix = covariance(regression.kernel, shorter * x).double()
    residual = regression.residuals[groups] - regression.mean(x).double()
    noise, level = regression.noise_variances(groups), matrix.diagonal(dim1=-2, dim2=-1).mean()
    densities = []
    for factor in factors:
        missing = (
            residual.square().mean() - factor * noise.mean()
        ) / level  # a variance that was noise is of the kernel
        scale = missing.clamp_min(1.0) if factor < 1.0 else 1.0
        try:
            densities.append(conditional_log_density(scale * matrix, factor * noise, residual, 1))
        except ValueError:  # no positive definite matrix
            densities.append(torch.full_like(residual[:, 0], -math.inf))
    return torch.stack(densities)
