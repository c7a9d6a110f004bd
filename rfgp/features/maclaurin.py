"""Maclaurin features: dot-product kernels, and the Gaussian kernel, as weighted sums of polynomial sketches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Generator, Tensor

from .._support import checks
from .base import EstimateVariance, FeatureMap
from .ctr import polynomial_sketch
from .random_weights import weights_kept_on_error


class Maclaurin(FeatureMap):
    r"""Concatenated sketches of the terms of a power series with coefficients :math:`a_n \ge 0`.

    .. math:: \phi(x) = w(x) \big[\sqrt{a_0}, \sqrt{m_1 a_1} \phi_1(x), \sqrt{m_2 a_2} \phi_2(x), \dots\big], \qquad
        E[\phi(x) \phi(y)^H] = w(x) w(y) \sum_n m_n a_n (x^\top y)^n

    with w = 1 for dot-product kernels, and :math:`\exp(-\|x\|^2/2)` for the Gaussian kernel.

    :param maps_by_degree: a map of the homogeneous polynomial kernel for every degree n >= 1 that is kept; all complex,
        or all real.
    :param coefficients: a_0, a_1, ..., non-negative, (p + 1,), unless the hyperparameters have others (..., p + 1).
    :param importance: m_n >= 0, (p + 1,), the weights of random degrees; default: ones.
    :param constant_columns: the number of equal columns that the constant is spread over, where a_0 > 0.
    :param dtype: the dtype of the coefficients and maps; default: PyTorch's default dtype.
    :raises ValueError: where maps and coefficients do not fit together.

    Source: T Algorithm 6, Eq. 5.9 and 5.28.

    >>> from rfgp.features import ProductSketch
    >>> maps = {1: ProductSketch(3, 4, degree=1), 2: ProductSketch(3, 8, degree=2)}
    >>> Maclaurin(maps, torch.tensor([1.0, 1.0, 0.5])).num_features
    13
    """

    coefficients: Tensor
    importance: Tensor
    is_unbiased = False

    def __init__(
        self,
        maps_by_degree: Mapping[int, FeatureMap],
        coefficients: Tensor,
        is_gaussian: bool = False,
        importance: Tensor | None = None,
        constant_columns: int = 1,
        dtype: torch.dtype | None = None,
    ) -> None:
        values = _series(coefficients, "coefficients")
        maps = _maps(maps_by_degree)
        if not maps or min(maps) < 1 or max(maps) >= len(values):
            raise ValueError(
                f"expected maps of degrees 1 to {values.numel() - 1}, one per coefficient at most, got {list(maps)}; "
                "correct the degrees"
            )
        if len({(m.input_dim, m.is_complex) for m in maps.values()}) > 1:
            raise ValueError("expected maps of one input_dim, all real or all complex, got a mixture; make them alike")
        first = next(iter(maps.values()))
        weights = torch.ones_like(values) if importance is None else _series(importance, "importance")
        if weights.shape != values.shape:
            raise ValueError(f"expected one importance per coefficient, {len(values)}, got {len(weights)}; correct it")
        constant = int(values[0] * weights[0] > 0)
        repeats = checks.positive_integer("constant_columns", constant_columns)
        super().__init__(
            first.input_dim, constant * repeats + sum(m.num_features for m in maps.values()), first.is_complex
        )
        self.has_constant, self.constant_columns = bool(constant), repeats
        self.is_gaussian = checks.flag("is_gaussian", is_gaussian)
        self.maps = torch.nn.ModuleDict({str(n): m for n, m in maps.items()})
        stored = checks.weight_dtype(dtype)
        self.register_buffer("coefficients", values.to(stored))
        self.register_buffer("importance", weights.to(stored))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, is_gaussian={self.is_gaussian}, num_columns={self.num_columns}"

    @property
    def maps_by_degree(self) -> dict[int, FeatureMap]:
        """The sketches by degree."""
        return {int(n): m for n, m in self.maps.items() if isinstance(m, FeatureMap)}

    @property
    def num_columns(self) -> dict[int, int]:
        """The number of columns by degree, the constant included."""
        constant = {0: self.constant_columns} if self.has_constant else {}
        return constant | {n: m.num_features for n, m in self.maps_by_degree.items()}

    def resample(self, generator: Generator | None = None) -> Self:
        with weights_kept_on_error(self):
            for sketch in self.maps_by_degree.values():
                sketch.resample(generator)
        return self

    def _draw(self, generator: Generator | None) -> dict[str, Tensor]:
        return {}

    def _weighted(self, hyperparameters: dict[str, Tensor]) -> Tensor:
        """The coefficients m_n a_n, (..., p + 1)."""
        return hyperparameters.get("coefficients", self.coefficients) * self.importance

    def rows(self, x: Tensor, **hyperparameters: Tensor) -> Tensor:
        weighted = self._weighted(hyperparameters)[..., None, None, :]
        envelope = self._envelope(x).unsqueeze(-1)
        batch = torch.broadcast_shapes(x.shape[:-2], weighted.shape[:-3])
        columns = []
        if self.has_constant:
            constant = envelope * (weighted[..., 0] / self.constant_columns).sqrt()
            columns = [constant.expand(*batch, x.shape[-2], self.constant_columns)]
        imaginary = [torch.zeros_like(column) for column in columns]
        for degree, sketch in self.maps_by_degree.items():
            factor = envelope * weighted[..., degree].sqrt()
            if self.is_complex:
                real, imag = sketch.rows(x).chunk(2, dim=-1)
                imaginary.append(factor * imag)
            else:
                real = sketch.rows(x)
            columns.append(factor * real)
        return torch.cat([*columns, *imaginary] if self.is_complex else columns, dim=-1)

    def _envelope(self, x: Tensor) -> Tensor:
        return torch.exp(-0.5 * x.square().sum(-1)) if self.is_gaussian else x.new_ones(x.shape[:-1])

    def _envelopes(self, x: Tensor, y: Tensor) -> Tensor:
        return self._envelope(x)[..., :, None] * self._envelope(y)[..., None, :]

    def target(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> Tensor:
        inner, weighted = self._check(x) @ self._check(y, "y").mT, self._weighted(hyperparameters)[..., None, None, :]
        degrees = [*([0] if self.has_constant else []), *self.maps_by_degree]
        return self._envelopes(x, y) * torch.stack([weighted[..., n] * inner**n for n in degrees]).sum(0)

    def moments(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> EstimateVariance | None:
        """Those of the sketches, times the squared coefficients, summed; None where a sketch has none; (..., N, M)."""
        self._check_pair(x, y)
        weighted = self._weighted(hyperparameters).square()[..., None, None, :]
        parts = {n: sketch.moments(x, y) for n, sketch in self.maps_by_degree.items()}
        moments = {n: part for n, part in parts.items() if part is not None}
        if len(moments) < len(parts):
            return None
        factor = self._envelopes(x, y).square()
        variance = factor * torch.stack([weighted[..., n] * part.variance for n, part in moments.items()]).sum(0)
        if not self.is_complex:
            return EstimateVariance(variance, variance)
        pseudo = [weighted[..., n] * part.pseudo_variance for n, part in moments.items()]
        return EstimateVariance(variance, factor * torch.stack(pseudo).sum(0))

    @property
    def operations(self) -> float:
        """Those of the sketches."""
        return sum(m.operations for m in self.maps_by_degree.values()) + self.num_features

    @classmethod
    def examples(cls) -> list[Self]:
        def maps(form: str) -> dict[int, FeatureMap]:
            seeded = torch.Generator().manual_seed(len(form))
            widths = {1: ("real" if form == "ctr" else form, 3), 2: (form, 6), 4: (form, 4)}
            return {
                n: polynomial_sketch("tensor_srht_stacked", kind, 3, w, n, seeded) for n, (kind, w) in widths.items()
            }

        coefficients = torch.tensor([1.0, 1.0, 0.5, 0.0, 0.2])
        forms = ("real", "complex", "ctr")
        plain = [cls(maps(form), coefficients, is_gaussian) for form in forms for is_gaussian in (False, True)]
        without_constant = cls(maps("ctr"), torch.tensor([0.0, 1.0, 0.5, 0.0, 0.2]))
        weighted = cls(maps("real"), coefficients, False, torch.tensor([0.5, 1.5, 2.0, 0.0, 0.7]), constant_columns=2)
        return [*plain, without_constant, weighted]


def _series(values: Any, name: str) -> Tensor:
    """Return finite non-negative numbers as a vector, or raise."""
    is_list = isinstance(values, list | tuple) and all(isinstance(value, int | float) for value in values)
    if not isinstance(values, Tensor) and not is_list:
        raise ValueError(f"expected a vector of numbers for {name}, got {values!r}; use a tensor")
    series = checks.tensor(torch.as_tensor(values), name)
    is_vector = series.dim() == 1 and not series.is_complex() and series.dtype != torch.bool
    if not is_vector or bool((series.double() < 0).any()) or not bool(torch.isfinite(series).all()):
        raise ValueError(
            f"expected finite non-negative {name} of shape (p + 1,), got {series.tolist()}; others give no kernel"
        )
    return series


def _maps(maps_by_degree: Any) -> dict[int, FeatureMap]:
    """Return the sketches sorted by degree, or raise where they are no feature maps by whole degrees."""
    is_map = isinstance(maps_by_degree, Mapping)
    if not is_map or not all(type(n) is int and isinstance(m, FeatureMap) for n, m in maps_by_degree.items()):
        raise ValueError(f"expected a dict of feature maps by degree, got {maps_by_degree!r}; such as {{2: sketch}}")
    return dict(sorted(maps_by_degree.items()))
