"""What landmarks leave over of a function, drawn as a function: it is zero at the landmarks, and smooth between."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...approximation import FeatureKernel
from ...approximation.entry import approximate

_WAVES = 1024


class ResidualFunctions:
    r"""Draws of the process that landmarks Z leave over, from waves :math:`g_s` of the prior.

    .. math:: r_s(x) = g_s(x) - k(x, Z)\, k(Z, Z)^{-1} g_s(Z)

    Source: Wilson et al. (2020), pathwise conditioning.

    :raises ValueError: for a kernel without Fourier features.
    """

    def __init__(self, kernel: FeatureKernel, num_functions: int) -> None:
        self.kernel = kernel
        self.waves = approximate(kernel.exact_kernel, _WAVES, input_dim=kernel.input_dim, method="fourier")
        landmarks: Any = kernel.maps
        like = landmarks.landmarks
        self.weights = torch.randn(self.waves.all_features(like[:1]).shape[-1], num_functions).to(like)
        at_landmarks = self.waves.all_features(like) @ self.weights
        self.update = torch.linalg.solve_triangular(
            landmarks.factor(kernel.exact_kernel).to(like), at_landmarks, upper=False
        )

    def __call__(self, x: Tensor) -> Tensor:
        """The values at x (N, d), (S, N)."""
        return (self.waves.all_features(x) @ self.weights - self.kernel.features(x) @ self.update).mT
