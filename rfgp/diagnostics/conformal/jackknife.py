"""Jackknife+ and CV+ intervals, from one fit."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..._support import checks
from ...models import WeightSpaceGP
from .split import Interval, columns, rank

_NUMBERS = 2**23
"""The means without every row are held at so many pairs of rows and points at once."""


@torch.no_grad()
def jackknife_plus(
    model: WeightSpaceGP,
    x: Tensor,
    y: Tensor,
    new_x: Tensor,
    level: float = 0.9,
    *,
    groups: Tensor | int | None = None,
    noise: Tensor | None = None,
    seed: int = 0,
) -> Interval:
    r"""Jackknife+ intervals of new observations, or CV+ ones, without refits: O(N D) per point beside leaving out.

    .. math:: \Big[\,\lfloor \alpha (N + 1) \rfloor\text{-th smallest of } \mu_{-i}(x) - R_i,\;
        \lceil (1 - \alpha)(N + 1) \rceil\text{-th smallest of } \mu_{-i}(x) + R_i\Big], \qquad
        R_i = |y_i - \mu_{-i}(x_i)|

    They cover with a probability of at least :math:`1 - 2 \alpha` for any model, and of about :math:`1 - \alpha` where
    means hardly depend on a single row. Parameters learned from the same rows make them somewhat too narrow.

    :param model: a fitted model of real targets, without blocks and with one draw of the weights.
    :param x: the inputs (N, d) that were fitted.
    :param y: their targets, as in the fit; several outputs have intervals each.
    :param new_x: inputs of new observations, (n, d).
    :param level: the coverage :math:`1 - \alpha`; default: 0.9.
    :param groups: labels of groups that are left out together (CV+), or their number; default: every row alone.
    :param noise: the noise variances of the rows, for a fixed-noise likelihood.
    :returns: ``(lower, upper)``, each (n,) or (n, T); infinite where there are too few rows for the level.
    :raises ValueError: for models of another kind, rows other than those of the fit, and bad inputs or levels.

    Source: R. F. Barber, E. J. Candes, A. Ramdas and R. J. Tibshirani, Predictive inference with the jackknife+, 2021,
    Eq. 1.3, Theorems 1 and 4.

    >>> import gpytorch, rfgp
    >>> x = torch.rand(100, 2)
    >>> y = torch.sin(6.0 * x[:, 0])
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2, seed=0)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
    >>> lower, upper = jackknife_plus(model, x, y, torch.rand(5, 2), level=0.9)
    >>> bool((lower < upper).all())
    True
    """
    share = checks.share("level", level)
    if not isinstance(model, WeightSpaceGP):
        raise ValueError(f"expected a WeightSpaceGP, got {type(model).__name__}; use split_conformal for other models")
    checks.finite(checks.inputs(new_x, checks.inputs(x).shape[-1], "new_x"), "new_x")
    if new_x.dim() != 2:
        raise ValueError(f"expected new_x of shape (n, d), got {tuple(new_x.shape)}; flatten its batches")
    functions = model.leave_out_functions(x, y, groups, noise, seed=seed)
    scores = columns(functions.errors).abs()
    points = max(1, _NUMBERS // (scores.numel() + 1))
    ends = [_ends(functions(part), scores, functions.numbers, share) for part in new_x.split(points)]
    lower, upper = (torch.cat(parts).to(y.dtype) for parts in zip(*ends, strict=True))
    return Interval(lower, upper) if y.dim() == 2 else Interval(lower.squeeze(-1), upper.squeeze(-1))


def _ends(means: Tensor, scores: Tensor, numbers: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """The ends (n, T) of intervals, from means (G, n, T) without each group, scores (N, T) and groups (N,) of rows."""
    lower, upper = [], []
    for output in range(scores.shape[-1]):
        column = scores[:, output]
        seen = ~column.isnan()
        values, score = means[numbers[seen], :, output], column[seen].unsqueeze(-1)
        number = rank(len(values), level)
        if number > len(values):
            infinite = means.new_full(means.shape[1:2], math.inf)
            lower.append(-infinite)
            upper.append(infinite)
            continue
        lower.append(-(score - values).kthvalue(number, dim=0).values)
        upper.append((score + values).kthvalue(number, dim=0).values)
    return torch.stack(lower, dim=-1), torch.stack(upper, dim=-1)
