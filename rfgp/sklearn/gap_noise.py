"""The noise of rows with missing cells, relative to that of complete rows."""

from __future__ import annotations

import warnings

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..approximation.entry import approximate
from ..models import WeightSpaceGP
from ..training import fit
from ..training.exact_stages import Subset
from ..training.starts import random_rows
from ..training.stationary import GaussianLogDensity, covariance
from .choice import Parts

SECONDS = 5.0
"""What :func:`noise_ratio` takes, at most."""
_FEWEST_ROWS, _MOST_ROWS, _ROUNDS, _EVALUATIONS = 10, 150, 2, 25
"""Of how many rows of either kind the ratio is learned, and how."""
_RATIOS = tuple(2.0**power for power in range(-2, 15))
_LEVELS = tuple(2.0**power for power in range(-8, 3))
_SMALLEST_GAIN = 2.0
"""The nats of evidence that a second noise has to gain."""


def noise_ratio(parts: Parts, x: Tensor, y: Tensor, is_gap: Tensor, weights: Tensor | None) -> float:
    r"""The noise variance of rows with gaps over that of others, of the best evidence of some rows; one for few.

    .. math:: \max_{\rho, s} \log N\big(y;\ m, K + s\, \mathrm{diag}(\rho^{g_i} / w_i)\big)

    :param parts: kernel, likelihood and mean of one output, which are learned here.
    :param x: standardized inputs (N, d), with targets (N,).
    :param is_gap: whether cells of a row are missing, (N,).
    :param weights: those of the rows, (N,).
    """
    kinds = [kind.nonzero().squeeze(-1) for kind in (is_gap, ~is_gap)]
    if min(map(len, kinds)) < _FEWEST_ROWS:
        return 1.0
    some = torch.cat([kind[random_rows(len(kind), _MOST_ROWS)] for kind in kinds])
    x, y, is_gap = x[some], y[some], is_gap[some]
    own = torch.ones_like(y) if weights is None else weights[some]
    kernel = approximate(parts.kernel, len(x), method="landmarks", train_inputs=x, seed=parts.seed)
    model, ratio = WeightSpaceGP(kernel, parts.likelihood, parts.mean), 1.0
    for number in range(_ROUNDS):
        of_rows = own / torch.where(is_gap, ratio, 1.0)
        strategy = Subset(initialize=number == 0)
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*noise ends at the lower bound")
            fit(model, x, y, weights=of_rows, strategy=strategy, max_evaluations=_EVALUATIONS, progress=False)
        ratio = _best_ratio(model, parts.kernel, x, y, is_gap, own)
    return ratio


@torch.no_grad()
def _best_ratio(model: WeightSpaceGP, kernel: Kernel, x: Tensor, y: Tensor, is_gap: Tensor, own: Tensor) -> float:
    """The ratio of the best evidence at the present kernel, with the best noise for each."""
    matrix, residual, noise = covariance(kernel, x), y - model.mean_module(x), model.noise.covariance().reshape(())
    evidences = [
        max(
            float(GaussianLogDensity.apply(matrix, level * noise * torch.where(is_gap, ratio, 1.0) / own, residual))
            for level in _LEVELS
        )
        for ratio in _RATIOS
    ]
    best = max(range(len(_RATIOS)), key=evidences.__getitem__)
    return _RATIOS[best] if evidences[best] > evidences[_RATIOS.index(1.0)] + _SMALLEST_GAIN else 1.0
