"""The contract of every random feature map."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .._support import checks
from .random_weights import RandomWeights


class EstimateVariance(NamedTuple):
    r""":math:`E|\hat k - E \hat k|^2` and :math:`E(\hat k - E \hat k)^2` of an estimate, (..., N, M) each."""

    variance: Tensor
    pseudo_variance: Tensor


class FeatureMap(RandomWeights):
    r"""A random function :math:`\phi` with :math:`E[\phi(x) \phi(y)^H] = k(x, y)`; it has buffers and no parameters.

    Weights are drawn in float64 on the CPU, the same on every device, and rounded once, to the dtype of the map.

    :param input_dim: the number of columns d of the inputs.
    :param num_features: the number of columns D that come out; complex columns for complex maps.
    :param is_complex: whether the features are complex.
    :param generator: a CPU generator for the weights; default: PyTorch's own.
    :param dtype: the dtype of the weights; default: PyTorch's default dtype.

    >>> from rfgp.features import ProductSketch
    >>> features = ProductSketch(3, 4000, degree=2, generator=torch.Generator().manual_seed(0))
    >>> x = torch.eye(3)
    >>> bool((features(x) @ features(x).mT - features.target(x, x)).abs().max() < 0.2)
    True
    """

    is_unbiased: bool = True
    """Whether ``target`` is the kernel that was asked for, and not one close to it."""
    has_unbiased_columns: bool = False
    """Whether every column alone, times the root of D, estimates the kernel without bias."""

    def __init__(self, input_dim: int, num_features: int, is_complex: bool = False) -> None:
        super().__init__()
        self.input_dim = checks.positive_integer("input_dim", input_dim)
        self.num_features = checks.positive_integer("num_features", num_features)
        self.is_complex = checks.flag("is_complex", is_complex)

    def forward(self, x: Tensor, **hyperparameters: Tensor) -> Tensor:
        r"""Features (..., N, D) of x, scaled so that :math:`\phi(x) \phi(y)^H` estimates the kernel.

        :param x: (..., N, d), of the dtype of the weights.
        :param hyperparameters: those that do not act through the inputs, for maps that have some; differentiable.
        :raises ValueError: where x has the wrong dtype, device or number of columns, or no rows.
        """
        rows = self.rows(self._check(x), **hyperparameters)
        return torch.complex(*rows.chunk(2, dim=-1)) if self.is_complex else rows

    def planes(self, x: Tensor, **hyperparameters: Tensor) -> tuple[Tensor, Tensor]:
        """Real and imaginary part (..., N, D) of the features of a complex map, without a complex tensor."""
        if not self.is_complex:
            raise ValueError("expected a complex map for planes(), got a real one; call the map itself")
        real, imaginary = self.rows(self._check(x), **hyperparameters).chunk(2, dim=-1)
        return real, imaginary

    @abc.abstractmethod
    def rows(self, x: Tensor, **hyperparameters: Tensor) -> Tensor:
        """Features (..., N, D) of checked inputs; (..., N, 2 D) with [real, imaginary] parts for complex maps."""

    @abc.abstractmethod
    def target(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> Tensor:
        """The exact kernel that the map approximates, (..., N, d) and (..., M, d) to (..., N, M)."""

    def moments(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> EstimateVariance | None:
        """Variance and pseudo-variance (..., N, M) of the kernel estimate in closed form; None where there is none."""
        self._check_pair(x, y)
        return None

    def waves(self, **hyperparameters: Tensor) -> tuple[Tensor, Tensor] | None:
        """Frequencies (..., m, d) and amplitudes (..., m) of the plane waves that the features are; None for others."""
        return None

    def columnwise(self) -> FeatureMap | None:
        """A map with the same weights in unbiased columns, complex where they are pairs; None where there is none."""
        return self if self.has_unbiased_columns else None

    @property
    @abc.abstractmethod
    def operations(self) -> float:
        """Real multiplications for the features of one input, to leading order: a prediction of the cost."""

    @classmethod
    @abc.abstractmethod
    def examples(cls) -> Sequence[FeatureMap]:
        """Instances for the generic tests: every option, and widths on both sides of every case distinction."""

    def _check(self, x: Tensor, name: str = "x") -> Tensor:
        checks.inputs(x, self.input_dim, name)
        for buffer in self.buffers():
            if buffer.is_floating_point():
                return checks.same_kind(x, buffer, name, "the feature map")
        return x

    def _check_pair(self, x: Tensor, y: Tensor) -> None:
        self._check(x)
        self._check(y, "y")

    def extra_repr(self) -> str:
        return f"input_dim={self.input_dim}, num_features={self.num_features}, is_complex={self.is_complex}"
