"""Kernels with landmarks, whose values there are the features."""

from __future__ import annotations

import torch
from torch import Tensor

from ..._support import checks
from ...inference.posterior.covariance import ResidualCovariance
from ..family import Family, KernelMoments
from ..landmarks import Landmarks
from ..registry import OF_MAPS
from ..request import Request
from ..values import accurate_values


class LandmarkFamily(Family):
    r"""Any scalar kernel with Nystrom features: its values at landmarks Z.

    .. math:: \phi(x) = k(x, Z) L^{-\top}, \qquad K_{ZZ} + \epsilon I = L L^\top

    All is computed in float64, with a jitter of 1e-8 of the mean of the diagonal or as little more as is needed.

    Source: Williams and Seeger (2001); Quinonero-Candela and Rasmussen (2005).
    """

    maps: Landmarks

    def draw(self, request: Request) -> torch.nn.Module:
        return self.draw_landmarks(request)

    @property
    def num_scalar_features(self) -> int:
        return self.maps.landmarks.shape[-2]

    @property
    def input_dim(self) -> int:
        return self.maps.landmarks.shape[-1]

    @property
    def has_residual_covariance(self) -> bool:
        return True

    def active_features(self, x: Tensor) -> Tensor:
        return self._accurate_features(x).to(x.dtype)

    def active_residual(self, x: Tensor) -> ResidualCovariance:
        missing = accurate_values(self.kernel, x, x, diag=True) - self._accurate_features(x).square().sum(-1)
        missing = missing.to(x.dtype).clamp_min(torch.finfo(x.dtype).tiny)  # not zero, where its root has no gradient
        return ResidualCovariance.of_variance(missing)

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments:
        mean = self.active_features(x) @ self.active_features(y).mT
        return KernelMoments(mean, torch.zeros_like(mean))

    def _accurate_features(self, x: Tensor) -> Tensor:
        """The features in float64."""
        checks.inputs(x, self.input_dim)
        values = accurate_values(self.kernel, self.maps.landmarks, x)
        return torch.linalg.solve_triangular(self.maps.factor(self.kernel), values, upper=False).mT


OF_MAPS[Landmarks] = LandmarkFamily
