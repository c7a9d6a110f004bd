"""The noise of rows with missing cells, relative to that of complete rows."""

from __future__ import annotations

import copy
import warnings

import torch
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
_FEWEST_ROWS, _MOST_ROWS, _EVALUATIONS = 10, 150, 25
"""Of how many rows of either kind the ratio is learned, and how."""
_RATIOS = tuple(2.0**power for power in range(-2, 15))
_LEVELS = tuple(2.0**power for power in range(-8, 3))
_SMALLEST_GAIN = 8.0
"""The nats of evidence that a second noise has to gain, each with parameters learned for it."""


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
    model = WeightSpaceGP(kernel, parts.likelihood, parts.mean)

    def learned(model: WeightSpaceGP, ratio: float, initialize: bool = False) -> dict[float, float]:
        of_rows, strategy = own / torch.where(is_gap, ratio, 1.0), Subset(initialize=initialize)
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*noise ends at the lower bound")
            fit(model, x, y, weights=of_rows, strategy=strategy, max_evaluations=_EVALUATIONS, progress=False)
        return _evidences(model, x, y, is_gap, own)

    first = learned(model, 1.0, initialize=True)
    proposed = max(first, key=first.__getitem__)
    if proposed == 1.0:
        return 1.0
    of_one = learned(copy.deepcopy(model), 1.0)[1.0]
    evidences = learned(model, proposed)
    best = max(evidences, key=evidences.__getitem__)
    return best if evidences[best] > of_one + _SMALLEST_GAIN else 1.0


@torch.no_grad()
def _evidences(model: WeightSpaceGP, x: Tensor, y: Tensor, is_gap: Tensor, own: Tensor) -> dict[float, float]:
    """The evidence of every ratio at the present kernel, with the best noise for each."""
    noise, residual = model.noise.covariance().reshape(()), y - model.mean_module(x)
    matrix = covariance(model.covar_module.exact_kernel, x)
    return {
        ratio: max(
            float(GaussianLogDensity.apply(matrix, level * noise * torch.where(is_gap, ratio, 1.0) / own, residual))
            for level in _LEVELS
        )
        for ratio in _RATIOS
    }
