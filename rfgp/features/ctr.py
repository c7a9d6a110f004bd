"""Complex-to-real features: a complex map of D columns as a real one of 2 D."""

from __future__ import annotations

from typing import Self

import torch
from torch import Generator, Tensor

from .._support import checks
from .base import EstimateVariance, FeatureMap
from .polynomial_sketch import PolynomialSketch
from .sketch_registry import FORMS, SKETCHES


class ComplexToReal(FeatureMap):
    r"""Real and imaginary part of a complex map side by side, whose kernel is the real part of the complex one.

    .. math:: \phi_{CtR}(x) = [\mathrm{Re}\, \phi(x), \mathrm{Im}\, \phi(x)], \qquad
        \phi_{CtR}(x)^\top \phi_{CtR}(y) = \mathrm{Re}\, \phi(x) \phi(y)^H

    :param feature_map: a complex map of D columns; this one has 2 D.
    :raises ValueError: where the map is real already.

    Source: T Algorithm 3, Eq. 4.1 to 4.3.

    >>> from rfgp.features import ProductSketch
    >>> ComplexToReal(ProductSketch(3, 50, degree=2, is_complex=True)).num_features
    100
    """

    feature_map: FeatureMap

    def __init__(self, feature_map: FeatureMap) -> None:
        if not isinstance(feature_map, FeatureMap) or not feature_map.is_complex:
            raise ValueError(f"expected a complex feature map, got {feature_map!r}; pass is_complex=True to the map")
        super().__init__(feature_map.input_dim, 2 * feature_map.num_features, is_complex=False)
        self.feature_map = feature_map
        self.is_unbiased = feature_map.is_unbiased

    def target(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> Tensor:
        exact = self.feature_map.target(x, y, **hyperparameters)
        return exact.real if exact.is_complex() else exact

    def moments(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> EstimateVariance | None:
        """Half the sum of variance and pseudo-variance of the complex map, T Eq. 4.3; None where that has none."""
        moments = self.feature_map.moments(x, y, **hyperparameters)
        if moments is None:
            return None
        pseudo = moments.pseudo_variance
        variance = 0.5 * (moments.variance + (pseudo.real if pseudo.is_complex() else pseudo))
        return EstimateVariance(variance, variance)

    def waves(self, **hyperparameters: Tensor) -> tuple[Tensor, Tensor] | None:
        return self.feature_map.waves(**hyperparameters)

    def columnwise(self) -> FeatureMap | None:
        """The complex map, where its single columns are unbiased."""
        return self.feature_map.columnwise()

    def resample(self, generator: Generator | None = None) -> Self:
        self.feature_map.resample(generator)
        return self

    def forward_pair(self, x: Tensor, y: Tensor) -> Tensor:
        """Real and imaginary part of the complex sketch's ``forward_pair``, (..., N, 2 D)."""
        return self.forward_tensor(x, y)

    def forward_tensor(self, *factors: Tensor) -> Tensor:
        """Real and imaginary part of the complex sketch's ``forward_tensor``, (..., N, 2 D)."""
        if not isinstance(self.feature_map, PolynomialSketch):
            raise ValueError(
                f"expected a polynomial sketch, got {type(self.feature_map).__name__}; call the map itself"
            )
        features = self.feature_map.forward_tensor(*factors)
        return torch.cat([features.real, features.imag], dim=-1)

    def _draw(self, generator: Generator | None) -> dict[str, Tensor]:
        return {}

    def rows(self, x: Tensor, **hyperparameters: Tensor) -> Tensor:
        return self.feature_map.rows(x, **hyperparameters)

    @property
    def operations(self) -> float:
        """Those of the complex map."""
        return self.feature_map.operations

    @classmethod
    def examples(cls) -> list[Self]:
        from .product import ProductSketch
        from .srht import TensorSRHT
        from .tensor_sketch import TensorSketch

        bases = [*ProductSketch.examples(), *TensorSRHT.examples(), *TensorSketch.examples()]
        return [cls(base) for base in bases if base.is_complex]


def polynomial_sketch(
    name: str,
    form: str,
    input_dim: int,
    num_features: int,
    degree: int,
    generator: Generator | None = None,
    dtype: torch.dtype | None = None,
) -> FeatureMap:
    """A sketch of the homogeneous polynomial kernel by its name and form.

    :param form: "real", "complex", or "ctr" for a complex sketch of half the width as a real one.
    :param num_features: the number of columns that come out; even for "ctr".
    :raises ValueError: for an unknown name or form, or an odd width for "ctr".

    >>> polynomial_sketch("tensor_srht", "ctr", 3, 10, degree=2).num_features
    10
    """
    named = SKETCHES[checks.choice("name", name, tuple(SKETCHES))]
    is_complex = checks.choice("form", form, FORMS) != "real"
    width = paired_width(num_features, name) if form == "ctr" else num_features
    sketch = named.make(input_dim, width, degree, is_complex=is_complex, generator=generator, dtype=dtype)
    return ComplexToReal(sketch) if form == "ctr" else sketch


def paired_width(num_features: int, name: str) -> int:
    """Half of an even number of columns that come in pairs, or raise."""
    if checks.positive_integer("num_features", num_features) % 2:
        raise ValueError(
            f"expected an even num_features for {name}:ctr, whose columns come in pairs, got {num_features}; "
            f"use {num_features + 1}, or {name}:real"
        )
    return int(num_features) // 2
