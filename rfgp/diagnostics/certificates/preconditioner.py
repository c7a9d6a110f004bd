"""Features as a preconditioner of the exact kernel matrix, and as a bound on what a residual can do."""

from __future__ import annotations

import torch
from torch import Tensor

from ..._support import checks
from ...linalg import cholesky, log_determinant
from .kernel_matrix import EPS, KernelMatrix

_JITTER = 1e-8


class FeaturePreconditioner:
    r"""The approximate covariance of the observations, :math:`M = \Phi \Phi^\top + S`, by Woodbury's formula.

    The features (N, D), in float64, are overwritten; the noise S is (N,).
    """

    def __init__(self, features: Tensor, noise: Tensor) -> None:
        self._root_noise = noise.sqrt().unsqueeze(-1)
        self._white = features.div_(self._root_noise)
        matrix = self._white.mT @ self._white
        matrix.diagonal().add_(1.0)
        self._factor = cholesky(matrix)

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

    def _weights(self, white: Tensor) -> Tensor:
        return torch.cholesky_solve(self._white.mT @ white, self._factor)


class LandmarkPreconditioner(FeaturePreconditioner):
    r"""The features of landmarks Z (D, d), whose covariance is below the exact one: :math:`M \le K + S`.

    .. math:: \phi(x) = k(x, Z) L^{-\top}, \qquad K_{ZZ} + \epsilon I = L L^\top
    """

    def __init__(self, matrix: KernelMatrix, landmarks: Tensor, noise: Tensor) -> None:
        width = len(landmarks)
        what = f"a preconditioner of {len(matrix)} x {width} features"
        checks.fits_in_memory(16.0 * width * (len(matrix) + 2.0 * width), what, "choose fewer landmarks")
        self._matrix, self._landmarks = matrix, landmarks
        inner = matrix.block(landmarks, landmarks)
        errors = matrix.block_rounding(landmarks, landmarks)
        variance = float(inner.diagonal().mean())
        rounding = float(errors.sum(0).max()) + EPS * width**2 * variance
        inner.diagonal().add_(max(_JITTER * variance, 2.0 * rounding))
        self._root = cholesky(inner)
        outer = matrix.columns(landmarks)
        super().__init__(torch.linalg.solve_triangular(self._root.mT, outer, upper=True, left=False), noise)

    def norm_bound(self, columns: Tensor) -> Tensor:
        r"""An upper bound of :math:`\sqrt{r^\top (K + S)^{-1} r}` of columns r (N, R): (R,).

        .. math:: r^\top (K + S)^{-1} r \le \|S^{-1/2} (r - \Phi w)\|^2 + \|w\|^2, \qquad w = B^{-1} \Phi^\top S^{-1} r
        """
        white = columns / self._root_noise
        weights = self._weights(white)
        size = torch.linalg.vector_norm(weights, dim=0)
        left = torch.linalg.vector_norm(white.addmm(self._white, weights, alpha=-1.0), dim=0)
        bound = torch.hypot(left + self.white_norm(self._rounding(weights)), size)
        return (1.0 + len(columns) * EPS) * torch.minimum(bound, torch.linalg.vector_norm(white, dim=0))

    def white_norm(self, columns: Tensor) -> Tensor:
        r""":math:`\|S^{-1/2} r\|` of columns r (N, R): (R,)."""
        return torch.linalg.vector_norm(columns / self._root_noise, dim=0)

    def _rounding(self, weights: Tensor) -> Tensor:
        """A bound on the error of the values of g (N, R), which triangular solves and products make."""
        coefficients = torch.linalg.solve_triangular(self._root.mT, weights, upper=True)
        values = self._matrix.rounding_of(self._landmarks, coefficients)
        width, root = len(weights), torch.linalg.matrix_norm(self._root)
        sizes = width * EPS * root * torch.linalg.vector_norm(coefficients, dim=0)
        sizes = sizes + width * EPS * torch.linalg.vector_norm(weights, dim=0)
        return values + self._matrix.deviations[:, None] * sizes
