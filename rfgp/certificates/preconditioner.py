"""Features as a preconditioner of the exact kernel matrix, and as a bound on what a residual can do."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .. import _checks
from ..linalg import cholesky, log_determinant, row_chunks
from .kernel_matrix import EPS

_SMALLEST_JITTER = 1e-8


class FeaturePreconditioner:
    r"""The approximate covariance of the observations, :math:`M = \Phi \Phi^\top + S`, by Woodbury's formula.

    .. math:: M^{-1} r = S^{-1} r - S^{-1} \Phi B^{-1} \Phi^\top S^{-1} r, \qquad B = I + \Phi^\top S^{-1} \Phi

    :param kernel: a kernel of one output with features (a :class:`rfgp.kernels.RandomFeatureKernel`), in float64.
    :param x: inputs (N, d), in float64.
    :param noise: the diagonal of S, (N,).
    :param deviations: the roots of k(x, x), (N,).
    :raises ValueError: where N x D features do not fit in memory.
    """

    def __init__(self, kernel: Any, x: Tensor, noise: Tensor, deviations: Tensor) -> None:
        self._root_noise = noise.sqrt().unsqueeze(-1)
        width = kernel.num_scalar_features * (2 if kernel.is_complex else 1)
        what = f"a preconditioner of {len(x)} x {width} features"
        _checks.fits_in_memory(8.0 * width * (len(x) + 3.0 * width), what, "choose fewer features or landmarks")
        root = kernel.output_factor().reshape(()).detach()
        self._white = x.new_empty(len(x), width)
        for rows in row_chunks(len(x), width):
            features = root * kernel.scalar_features(x[rows]).detach()
            parts = torch.cat([features.real, features.imag], dim=-1) if features.is_complex() else features
            self._white[rows] = parts / self._root_noise[rows]
        matrix = self._white.mT @ self._white
        matrix.diagonal().add_(1.0)
        self._factor = cholesky(matrix)
        self.is_below = kernel.has_residual_covariance
        """Whether :math:`M \\le K + S`, as for landmarks."""
        size = float(torch.linalg.vector_norm(deviations / noise.sqrt()))
        self._feature_error = EPS * (width**1.5 + 500.0 * width**0.5) / math.sqrt(_SMALLEST_JITTER) * size

    @property
    def log_determinant(self) -> Tensor:
        r""":math:`\log |M|`."""
        return log_determinant(self._factor) + 2.0 * self._root_noise.log().sum()

    def solve(self, columns: Tensor) -> Tensor:
        r""":math:`M^{-1}` times columns (N, R)."""
        white = columns / self._root_noise
        return white.addmm_(self._white, self._weights(white), alpha=-1.0).div_(self._root_noise)

    def draw(self, num_columns: int, generator: torch.Generator) -> Tensor:
        """Independent draws of N(0, M), (N, R)."""
        sizes = self._white.shape[1], len(self._white)
        weights, noise = (torch.randn(n, num_columns, generator=generator, dtype=torch.float64) for n in sizes)
        return (self._white @ weights.to(self._white) + noise.to(self._white)).mul_(self._root_noise)

    def norm_bound(self, columns: Tensor) -> Tensor:
        r"""An upper bound of :math:`\sqrt{r^\top (K + S)^{-1} r}` of columns r (N, R): (R,).

        .. math:: r^\top (K + S)^{-1} r = \min_{g \in \mathcal H} \sum_i \frac{(r_i - g(x_i))^2}{s_i} + \|g\|^2
            \le \|S^{-1/2} (r - \Phi w)\|^2 + \|w\|^2

        for every w, since :math:`g = \phi^\top w` is a function of the kernel's space with at most the norm of w where
        the features are those of landmarks. No rounding in :math:`w = B^{-1} \Phi^\top S^{-1} r` can make it wrong;
        that of the features is added. For other features w is zero.
        """
        white = columns / self._root_noise
        plain = torch.linalg.vector_norm(white, dim=0)
        if self.is_below:
            weights = self._weights(white)
            size = torch.linalg.vector_norm(weights, dim=0)
            left = torch.linalg.vector_norm(white.addmm_(self._white, weights, alpha=-1.0), dim=0)
            plain = torch.minimum(plain, torch.hypot(left + self._feature_error * size, size))
        return (1.0 + len(columns) * EPS) * plain

    def white_norm(self, columns: Tensor) -> Tensor:
        r""":math:`\|S^{-1/2} r\|` of columns r (N, R): (R,)."""
        return torch.linalg.vector_norm(columns / self._root_noise, dim=0)

    def _weights(self, white: Tensor) -> Tensor:
        return torch.cholesky_solve(self._white.mT @ white, self._factor)
