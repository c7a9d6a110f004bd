"""What landmarks leave over: a process whose covariance is the kernel minus that of its features."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from linear_operator import to_dense
from torch import Tensor

from ...linalg.cholesky_factor import factor_of


class Conditional(NamedTuple):
    r"""Values at t points given noisy values y at m rows: :math:`f_* = g w + S (y - \mu) + \epsilon`.

    :param features: :math:`g = \phi_* - S \Phi_n`, (..., t, D), in float64.
    :param weights: :math:`S = R_{*n} (R_{nn} + \Sigma)^{-1}`, (..., t, m).
    :param covariance: :math:`R_{**} - S R_{n*}`, (..., t, t).
    """

    features: Tensor
    weights: Tensor
    covariance: Tensor


class ResidualProcess:
    r"""The process :math:`r \sim GP(0, k - \phi \phi^\top)` that the features of a kernel leave over."""

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.exact = kernel, kernel.exact_kernel

    @property
    def root(self) -> Tensor:
        """The root of the output scale, which the features do not contain."""
        scale: Tensor = self.kernel.total_outputscale
        return scale.double().sqrt()

    def features(self, x: Tensor) -> Tensor:
        """The features at (N, d), output scale included, in float64."""
        return self.root * self.kernel.scalar_features(x).double()

    def covariance(self, x: Tensor, features: Tensor) -> Tensor:
        """The covariance (..., N, N) at points with known features."""
        return to_dense(self.exact(x)).double() - features @ features.mT

    def cross_covariance(self, x: Tensor, features: Tensor, y: Tensor, other: Tensor) -> Tensor:
        """The covariance (..., N, M) between points x and y with known features."""
        return to_dense(self.exact(x, y)).double() - features @ other.mT

    def conditional(
        self, x: Tensor, at_points: Tensor, rows: Tensor, features: Tensor, variances: Tensor
    ) -> Conditional:
        """The values at x (..., t, d) with features (..., t, D), given noisy ones at rows (..., m, d).

        :param features: the features of the rows, (..., m, D).
        :param variances: their noise variances, (..., m); a negative one stands for a negative precision.
        """
        matrix = self.covariance(rows, features) + torch.diag_embed(variances)
        cross = self.cross_covariance(x, at_points, rows, features)
        if bool((variances > 0).all()):
            weights = torch.cholesky_solve(cross.mT, factor_of(matrix)).mT
        else:
            weights = torch.linalg.solve(matrix, cross.mT).mT
        return Conditional(at_points - weights @ features, weights, self.covariance(x, at_points) - weights @ cross.mT)
