"""What labels say of the kernel of a small table, by Laplace's approximation of latent functions."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from .table_kernel import Floats, KernelPrior

_LOGISTIC = math.pi**2 / 3.0
"""The variance of the logistic distribution."""
_MOST_STEPS, _MOST_HALVES = 50, 20
_CLOSE, _WORSE = 1e-15, 1e-9
"""Newton's method ends where a step gains so much of the log density, and takes one that loses at most so much."""


class LatentMode(NamedTuple):
    """Normal approximations of C latent functions at N rows, by Laplace.

    :param kernel: the prior covariance (N, N).
    :param mode: the most probable values (C, N).
    :param slope: derivatives of the log likelihood there, (C, N).
    :param root: square roots of minus its second derivatives, (C, N).
    :param factor: Cholesky factors (C, N, N) of the identity and, between these roots, the kernel.
    """

    kernel: Tensor
    mode: Tensor
    slope: Tensor
    root: Tensor
    factor: Tensor

    def half_reduction(self, cross: Tensor) -> Tensor:
        """Roots (C, N, M) of what the rows take from the covariance of M values, with covariances (N, M) to them."""
        return torch.linalg.solve_triangular(self.factor, self.root.unsqueeze(-1) * cross, upper=False)


class LabelKernel(KernelPrior):
    r"""The kernel of C latent functions, whose signs under logistic noise are the labels (C, N) of rows (N, d).

    .. math:: p(y | f) = \frac{1}{1 + e^{-y f}}, \qquad f \sim GP\Big(0, \frac{\pi^2}{3 \sigma^2} k\Big)

    The noise variance :math:`\sigma^2` is that of a target of variance one whose sign is the label: latent functions
    have the unit in which this noise is logistic. One of several functions tells a class from all others. A label
    counts in its own and, about as much, in the others, so that half of their log evidence is that of the labels.

    :param signs: the labels, 1 or -1.

    Source: Rasmussen and Williams (2006), algorithms 3.1 and 5.1.
    """

    def __init__(self, x: Tensor, signs: Tensor, fixed: Tensor, has_lengthscales: bool) -> None:
        super().__init__(x, fixed, has_lengthscales)
        self.signs = signs
        self.share = 1.0 if len(signs) == 1 else 0.5
        """How much of the log evidence of all functions counts."""
        self.last = torch.zeros_like(signs)
        """The slopes of the latent functions that were found last, where the next search begins."""

    def unit(self, vector: Floats) -> float:
        """The prior variance of latent functions where the kernel is one."""
        return _LOGISTIC / self.noise(vector)

    def covariance(self, vector: Floats) -> Tensor:
        """The prior covariance (N, N) of a latent function at the rows."""
        return self.of_rows(vector)[0].mul_(self.unit(vector))

    def latent(self, covariance: Tensor) -> LatentMode:
        """The latent functions (C, N) of a prior covariance (N, N), by Newton's method."""
        nowhere = torch.zeros_like(self.last)
        is_far = self._log_joint(self.last, self.last @ covariance) < self._log_joint(nowhere, nowhere)
        weights = torch.where(is_far.unsqueeze(-1), nowhere, self.last)
        mode = weights @ covariance
        value = self._log_joint(weights, mode)
        for _ in range(_MOST_STEPS):
            slope = self._slope(mode)
            curvature = torch.sigmoid(mode) * torch.sigmoid(-mode)
            root = curvature.sqrt()
            inner = (root.unsqueeze(-1) * covariance).mul_(root.unsqueeze(-2))
            inner.diagonal(dim1=-2, dim2=-1).add_(1.0)
            factor = torch.linalg.cholesky(inner)
            target = curvature * mode + slope
            solved = torch.cholesky_solve((root * (target @ covariance)).unsqueeze(-1), factor).squeeze(-1)
            change = target - root * solved - weights
            moved = change @ covariance
            if bool((((slope - weights) * moved).sum(-1) < _CLOSE * (1.0 + value.abs())).all()):
                mode = mode + moved
                break
            weights, mode, value = self._after_step(weights, mode, value, change, moved)
        self.last = self._slope(mode)
        return LatentMode(covariance, mode, self.last, root, factor)

    def _slope(self, mode: Tensor) -> Tensor:
        return self.signs * torch.sigmoid(-self.signs * mode)

    def _log_joint(self, weights: Tensor, mode: Tensor) -> Tensor:
        """The log densities (C,) of labels and latent functions, up to a constant, which are products of weights."""
        return logsigmoid(self.signs * mode).sum(-1) - 0.5 * (weights * mode).sum(-1)

    def _after_step(
        self, weights: Tensor, mode: Tensor, value: Tensor, change: Tensor, moved: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Weights, latent functions and log densities after a step, which is halved until it loses nothing."""
        step = torch.ones_like(value).unsqueeze(-1)
        for _ in range(_MOST_HALVES):
            new = self._log_joint(weights + step * change, mode + step * moved)
            is_worse = new < value - _WORSE * value.abs()
            if not bool(is_worse.any()):
                break
            step = torch.where(is_worse.unsqueeze(-1), 0.5 * step, step)
        return weights + step * change, mode + step * moved, new

    def loss(self, vector: Floats, has_gradient: bool = True) -> tuple[float, Floats]:
        """Minus the log posterior density of the parameters up to a constant, by Laplace, and its gradient."""
        matrix, slope_by = self.of_rows(vector)
        unit = self.unit(vector)
        covariance, mode, slope, root, factor = self.latent(matrix * unit)
        prior, gradient = self.prior(vector)
        volume = float(factor.diagonal(dim1=-2, dim2=-1).log().sum())
        value = prior + self.share * (volume - float(self._log_joint(slope, mode).sum()))
        if not has_gradient:
            return value, gradient
        inverse = torch.cholesky_inverse(factor)
        by_mode = -0.5 * (1.0 - inverse.diagonal(dim1=-2, dim2=-1)) * (1.0 - 2.0 * torch.sigmoid(mode))
        precision = inverse.mul_(root.unsqueeze(-1)).mul_(root.unsqueeze(-2))
        implied = by_mode - (precision @ (by_mode @ covariance).unsqueeze(-1)).squeeze(-1)
        by_covariance = 0.5 * self.share * (precision.sum(0) - slope.mT @ (slope + implied) - implied.mT @ slope)
        gradient += slope_by(by_covariance * unit)
        gradient[-1] -= float((by_covariance * covariance).sum())
        return value, gradient
