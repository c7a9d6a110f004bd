"""Fourier series: periodic kernels without randomness."""

from __future__ import annotations

from typing import Self

import torch
from torch import Generator, Tensor

from .._support import checks
from .base import EstimateVariance, FeatureMap


class FourierSeries(FeatureMap):
    r"""Cosines and sines of whole multiples of the inputs, the exact features of a truncated Fourier series.

    .. math:: k(x, y) = \sum_j c_j \cos(n_j^\top (x - y)), \qquad
        \phi(x) = [\sqrt{c_j} \cos(n_j^\top x), \sqrt{c_j} \sin(n_j^\top x)]_j

    :param orders: the multi-indices n, (J, d), no two of them opposite; the sine of a zero one is left out.
    :param coefficients: c >= 0, (J,), unless the hyperparameters have others (..., J).
    :param dtype: the dtype that both are stored in; default: PyTorch's default dtype.
    :raises ValueError: for shapes that disagree, negative coefficients, or values that are not finite.

    >>> series = FourierSeries(torch.tensor([[0], [1]]), torch.tensor([0.5, 0.5]))
    >>> series(torch.zeros(1, 1))
    tensor([[0.7071, 0.7071, 0.0000]])
    """

    orders: Tensor
    coefficients: Tensor

    def __init__(self, orders: Tensor, coefficients: Tensor, dtype: torch.dtype | None = None) -> None:
        for name, value in (("orders", orders), ("coefficients", coefficients)):
            if checks.tensor(value, name).is_complex() or not bool(torch.isfinite(value).all()):
                raise ValueError(f"expected a tensor of finite real numbers for {name}, got {value!r}; correct it")
        if bool((coefficients.double() < 0).any()):
            raise ValueError(f"expected non-negative coefficients, got {coefficients.tolist()}; others give no kernel")
        if orders.dim() != 2 or not len(orders) or coefficients.shape != orders.shape[:1]:
            raise ValueError(
                f"expected orders (J, d) and coefficients (J,), got {tuple(orders.shape)} and "
                f"{tuple(coefficients.shape)}; pass one coefficient per multi-index"
            )
        is_wave = (orders != 0).any(-1)
        super().__init__(orders.shape[1], len(orders) + int(is_wave.sum()))
        stored = checks.weight_dtype(dtype)
        self.register_buffer("orders", orders.to(stored))
        self.register_buffer("coefficients", coefficients.to(stored))
        self.register_buffer("is_wave", is_wave)

    def _draw(self, generator: Generator | None) -> dict[str, Tensor]:
        return {}

    def _coefficients(self, hyperparameters: dict[str, Tensor]) -> Tensor:
        return hyperparameters.get("coefficients", self.coefficients)

    def rows(self, x: Tensor, **hyperparameters: Tensor) -> Tensor:
        phases = x @ self.orders.mT
        root = self._coefficients(hyperparameters).sqrt().unsqueeze(-2)
        sines = (phases.sin() * root)[..., self.get_buffer("is_wave")]
        return torch.cat([phases.cos() * root, sines], dim=-1)

    def waves(self, **hyperparameters: Tensor) -> tuple[Tensor, Tensor]:
        return self.orders, self._coefficients(hyperparameters).sqrt()

    def target(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> Tensor:
        left, right = self._check(x) @ self.orders.mT, self._check(y, "y") @ self.orders.mT
        root = self._coefficients(hyperparameters).sqrt().unsqueeze(-2)
        return (left.cos() * root) @ (right.cos() * root).mT + (left.sin() * root) @ (right.sin() * root).mT

    def moments(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> EstimateVariance:
        """Zeros: the features of the series are exact."""
        self._check_pair(x, y)
        zero = torch.zeros_like(x @ y.mT)
        return EstimateVariance(zero, zero)

    @property
    def operations(self) -> float:
        return self.num_features * (self.input_dim + 10.0)

    @classmethod
    def examples(cls) -> list[Self]:
        orders = torch.tensor([[0, 0], [1, 0], [1, -1], [2, 3]])
        return [
            cls(torch.arange(4)[:, None], torch.tensor([0.4, 0.3, 0.2, 0.1])),
            cls(orders, torch.tensor([0.1, 0.4, 0.2, 0.3])),
        ]
