"""What landmarks leave over: a process whose covariance is the kernel minus that of its features."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import torch
from linear_operator import to_dense
from torch import Tensor
from torch.func import functional_call

from ...linalg.cholesky_factor import factor_of
from ..posterior.draws import detached

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel
    from .cells import CellKernel


class Conditional(NamedTuple):
    r"""Values at t points given noisy values y at m rows: :math:`f_* = g w + S (y - \mu) + \epsilon`.

    :param features: :math:`g = \phi_* - S \Phi_n`, (..., t, D).
    :param weights: :math:`S = R_{*n} (R_{nn} + \Sigma)^{-1}`, (..., t, m).
    :param covariance: :math:`R_{**} - S R_{n*}`, (..., t, t).
    """

    features: Tensor
    weights: Tensor
    covariance: Tensor


class _InFloat64(torch.nn.Module):
    """Values and features of a kernel in float64, whatever the dtype of its tensors and inputs; differentiable."""

    def __init__(self, kernel: FeatureKernel | CellKernel) -> None:
        super().__init__()
        self.kernel = kernel
        tensors = itertools.chain(self.parameters(), self.buffers())
        self.is_float64 = all(tensor.dtype == torch.float64 for tensor in tensors if tensor.is_floating_point())

    def forward(self, has_features: bool, x: Tensor, y: Tensor) -> Tensor:
        if has_features:
            features: Tensor = self.kernel.scalar_features(x)
            return features
        return to_dense(self.kernel.exact_kernel(x, y))

    def features(self, x: Tensor) -> Tensor:
        """The features (..., N, D)."""
        return self._evaluated(True, x, x)

    def values(self, x: Tensor, y: Tensor) -> Tensor:
        """The exact kernel (..., N, M)."""
        return self._evaluated(False, x, y)

    def _evaluated(self, has_features: bool, x: Tensor, y: Tensor) -> Tensor:
        if self.is_float64:
            return self(has_features, x, y).double()
        named = [*self.named_parameters(), *self.named_buffers()]
        tensors = {name: value.double() for name, value in named if value.is_floating_point()}
        same = x.double()
        inputs = same, same if y is x else y.double()
        values: Tensor = functional_call(self, tensors, (has_features, *inputs))
        return values.double()


_PARTS = 4
"""A product of features with themselves is made in so many parts, of which those above the diagonal are left out."""


class ResidualProcess:
    r"""The process :math:`r \sim GP(0, k - \phi \phi^\top)` that the features of a kernel leave over.

    Kernels of float32 are evaluated in float64, whose rounding is small beside small noise.

    :param dtype: of covariances; features are made in float64.
    """

    def __init__(self, kernel: FeatureKernel | CellKernel, dtype: torch.dtype = torch.float64) -> None:
        self.kernel, self.exact, self.dtype = kernel, kernel.exact_kernel, dtype
        self._accurate = _InFloat64(kernel)
        if dtype == torch.float32:
            self.exact = detached(self.exact).to(dtype)

    @property
    def root(self) -> Tensor:
        """The root of the output scale, which the features do not contain, () or (Q,) for scales of Q functions."""
        scale: Tensor = self.kernel.total_outputscale
        return scale.double().sqrt()

    def features(self, x: Tensor) -> Tensor:
        """The features at (N, d), output scale included, (N, D), or (Q, N, D) for scales of Q functions."""
        root = self.root if self.root.dim() == 0 else self.root[:, None, None]
        return (root * self.scalar_features(x)).to(self.dtype)

    def scalar_features(self, x: Tensor) -> Tensor:
        """The features (..., N, D) without the output scale, in float64."""
        return self._accurate.features(x)

    def prior(self, x: Tensor, y: Tensor) -> Tensor:
        """The covariance (..., N, M) of the whole function between points x and y."""
        if self.dtype == torch.float32:
            return to_dense(self.exact(x.to(self.dtype), y.to(self.dtype)))
        if self._accurate.is_float64:  # the exact kernel is made once
            return to_dense(self.exact(x, y)).double()
        return self._accurate.values(x, y)

    def covariance(self, x: Tensor, features: Tensor) -> Tensor:
        """The covariance (..., N, N) at points with known features."""
        return self.prior(x, x) - features @ features.mT

    def cross_covariance(self, x: Tensor, features: Tensor, y: Tensor, other: Tensor) -> Tensor:
        """The covariance (..., N, M) between points x and y with known features."""
        return self.prior(x, y) - features @ other.mT

    def factor(self, x: Tensor, features: Tensor, variances: Tensor) -> Tensor:
        """The Cholesky factor of the covariance at (..., m, d) with noise variances (..., m)."""
        if torch.is_grad_enabled():
            return factor_of(self.covariance(x, features) + torch.diag_embed(variances))
        matrix = self.prior(x, x)
        matrix.diagonal(dim1=-2, dim2=-1).add_(variances)
        for part in torch.arange(x.shape[-2]).tensor_split(_PARTS):
            if len(part):
                first, last = int(part[0]), int(part[-1]) + 1
                matrix[..., first:last, :last] -= features[..., first:last, :] @ features[..., :last, :].mT
        return factor_of(matrix)

    def conditional(
        self, x: Tensor, at_points: Tensor, rows: Tensor, features: Tensor, variances: Tensor
    ) -> Conditional:
        """The values at x (..., t, d) with features (..., t, D), given noisy ones at rows (..., m, d).

        :param features: the features of the rows, (..., m, D).
        :param variances: their noise variances, (..., m); a negative one stands for a negative precision.
        """
        cross, noise = self.cross_covariance(x, at_points, rows, features), variances.to(self.dtype)
        if bool((variances > 0).all()):
            weights = torch.cholesky_solve(cross.mT, self.factor(rows, features, noise)).mT
        else:
            weights = torch.linalg.solve(self.covariance(rows, features) + torch.diag_embed(noise), cross.mT).mT
        return Conditional(at_points - weights @ features, weights, self.covariance(x, at_points) - weights @ cross.mT)
