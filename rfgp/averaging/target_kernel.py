"""What kernels of a target have in common: the evidence of their parameters, which are a vector."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from .functions import PriorFunctions

Floats = NDArray[np.float64]


class TargetKernel(abc.ABC):
    """A kernel and noise with parameters, the last of which is the logarithm of the noise variance.

    :ivar x: scaled inputs (N, d).
    :ivar y: targets (N,) of variance one.
    :ivar bounds: the least and the largest value of each parameter.
    """

    x: Tensor
    y: Tensor
    bounds: Sequence[tuple[float, float]]

    @property
    @abc.abstractmethod
    def start(self) -> Floats:
        """Where the search for the most probable parameters begins."""

    @abc.abstractmethod
    def prior(self, vector: Floats) -> tuple[float, Floats]:
        """Minus the log prior density, and its gradient."""

    @abc.abstractmethod
    def scale(self, vector: Floats) -> float:
        """The scale of the part of all inputs together."""

    @abc.abstractmethod
    def inverse_lengths(self, vector: Floats) -> Tensor:
        """The inverse lengthscales (d,) of this part."""

    @abc.abstractmethod
    def of_rows(self, vector: Floats) -> tuple[Tensor, Callable[[Tensor], Floats]]:
        """The kernel (N, N) of the rows, and what makes derivatives by it, symmetric, those by the vector."""

    @abc.abstractmethod
    def between(self, x: Tensor, z: Tensor) -> Callable[[Floats], Tensor]:
        """For vectors the kernel (N, M) at inputs (N, d) and (M, d), of which is computed once what has no parameters.

        It is the same for all targets.
        """

    @abc.abstractmethod
    def variance(self, vector: Floats, x: Tensor) -> Tensor:
        """The kernel of inputs (N, d) with themselves, (N,)."""

    @abc.abstractmethod
    def drawn(self, vector: Floats, num_functions: int, generator: Generator | None) -> PriorFunctions:
        """Functions drawn from the prior."""

    def noise(self, vector: Floats) -> float:
        """The noise variance."""
        return math.exp(vector[-1])

    def loss(self, vector: Floats, has_gradient: bool = True) -> tuple[float, Floats]:
        """Minus the log posterior density of the parameters up to a constant, and its gradient."""
        total, slope = self.of_rows(vector)
        total.diagonal().add_(self.noise(vector))
        factor, failed = torch.linalg.cholesky_ex(total)
        if bool(failed):
            return math.inf, np.zeros_like(vector)
        alpha = torch.cholesky_solve(self.y.unsqueeze(-1), factor).squeeze(-1)
        prior, gradient = self.prior(vector)
        value = 0.5 * float(self.y @ alpha) + float(factor.diagonal().log().sum()) + prior
        if not has_gradient:
            return value, gradient
        by_matrix = torch.cholesky_inverse(factor).addr_(alpha, alpha, beta=0.5, alpha=-0.5)
        gradient += slope(by_matrix)
        gradient[-1] += self.noise(vector) * float(by_matrix.trace())
        return value, gradient
