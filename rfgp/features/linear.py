"""The identity as a feature map: linear kernels need no approximation."""

from __future__ import annotations

from typing import Self

import torch
from torch import Generator, Tensor

from .base import EstimateVariance, FeatureMap


class LinearFeatures(FeatureMap):
    r"""The inputs themselves, the exact features of the linear kernel :math:`k(x, y) = x^\top y` of d columns.

    >>> LinearFeatures(2)(torch.tensor([[1.0, 2.0]]))
    tensor([[1., 2.]])
    """

    degree = 1

    def __init__(self, input_dim: int) -> None:
        super().__init__(input_dim, input_dim)

    def target(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> Tensor:
        return self._check(x) @ self._check(y, "y").mT

    def moments(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> EstimateVariance:
        """Zeros: the features are exact."""
        self._check_pair(x, y)
        zero = torch.zeros_like(x @ y.mT)
        return EstimateVariance(zero, zero)

    def _draw(self, generator: Generator | None) -> dict[str, Tensor]:
        return {}

    def rows(self, x: Tensor, **hyperparameters: Tensor) -> Tensor:
        return x

    @property
    def operations(self) -> float:
        """None: the inputs are handed on."""
        return 0.0

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(1), cls(5)]
