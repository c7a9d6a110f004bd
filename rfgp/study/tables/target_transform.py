"""Transforms of a target that make its noise even, and predictions in its own units."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
import scipy
import torch
from torch import Tensor
from torch.distributions import Normal

from ...averaging.column_scale import log_slope, powered, unpowered
from ...averaging.logit import Logit

_NODES, _WEIGHTS = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(32))


class TargetTransform(ABC):
    """A monotone function of a target, learned from its values."""

    kind: ClassVar[str]

    @classmethod
    @abstractmethod
    def of(cls, y: Tensor) -> Self:
        """That of a target (N,)."""

    @classmethod
    def allows(cls, y: Tensor) -> Tensor:
        """Which targets can be transformed, of the same shape."""
        return torch.ones_like(y, dtype=torch.bool)

    @abstractmethod
    def forward(self, y: Tensor) -> Tensor:
        """The transformed target."""

    @abstractmethod
    def inverse(self, z: Tensor) -> Tensor:
        """The target of its transformed values."""

    @abstractmethod
    def log_slope(self, y: Tensor) -> Tensor:
        """The logarithm of the derivative of the transform."""


@dataclass(frozen=True)
class Untransformed(TargetTransform):
    """The target as it is."""

    kind = "none"

    @classmethod
    def of(cls, y: Tensor) -> Self:
        return cls()

    def forward(self, y: Tensor) -> Tensor:
        return y

    def inverse(self, z: Tensor) -> Tensor:
        return z

    def log_slope(self, y: Tensor) -> Tensor:
        return torch.zeros_like(y)


@dataclass(frozen=True)
class Logarithm(TargetTransform):
    """The logarithm of a positive target."""

    kind = "log"

    @classmethod
    def of(cls, y: Tensor) -> Self:
        return cls()

    @classmethod
    def allows(cls, y: Tensor) -> Tensor:
        return y > 0.0

    def forward(self, y: Tensor) -> Tensor:
        return y.log()

    def inverse(self, z: Tensor) -> Tensor:
        return z.exp()

    def log_slope(self, y: Tensor) -> Tensor:
        return -y.log()


@dataclass(frozen=True)
class SquareRoot(TargetTransform):
    r"""The root :math:`2 \sqrt{y + c}` of a target that is not negative.

    :param shift: c, three eighths of the smallest positive value.
    """

    kind = "square root"
    shift: float

    @classmethod
    def of(cls, y: Tensor) -> Self:
        return cls(0.375 * float(y[y > 0.0].min()))

    @classmethod
    def allows(cls, y: Tensor) -> Tensor:
        return y >= 0.0

    def forward(self, y: Tensor) -> Tensor:
        return 2.0 * (y + self.shift).sqrt()

    def inverse(self, z: Tensor) -> Tensor:
        return ((0.5 * z.clamp_min(0.0)).square() - self.shift).clamp_min(0.0)

    def log_slope(self, y: Tensor) -> Tensor:
        return -0.5 * (y + self.shift).log()


@dataclass(frozen=True)
class ShareLogit(TargetTransform):
    """The :class:`Logit` of a target between 0 and 1."""

    kind = "logit"

    @classmethod
    def of(cls, y: Tensor) -> Self:
        return cls()

    @classmethod
    def allows(cls, y: Tensor) -> Tensor:
        return (y >= 0.0) & (y <= 1.0)

    def forward(self, y: Tensor) -> Tensor:
        return self._logit(y).forward(y)

    def inverse(self, z: Tensor) -> Tensor:
        return self._logit(z).inverse(z)

    def log_slope(self, y: Tensor) -> Tensor:
        return self._logit(y).log_slope(y)

    def _logit(self, like: Tensor) -> Logit:
        return Logit(like.new_zeros(()), like.new_ones(()))


@dataclass(frozen=True)
class YeoJohnson(TargetTransform):
    """Yeo and Johnson's function of a target of any sign.

    :param center: what is subtracted first, the median.
    :param scale: by what is divided then.
    :param power: between 0 and 2, under which the target is most probably normal.

    Source: Yeo and Johnson, 2000.
    """

    kind = "yeo-johnson"
    center: float
    scale: float
    power: float

    @classmethod
    def of(cls, y: Tensor) -> Self:
        center, scale = float(y.median()), float(y.std())
        power = float(scipy.stats.yeojohnson_normmax(((y - center) / scale).numpy()))
        return cls(center, scale, min(max(power, 0.0), 2.0))

    def forward(self, y: Tensor) -> Tensor:
        return powered((y - self.center) / self.scale, y.new_tensor(self.power))

    def inverse(self, z: Tensor) -> Tensor:
        return self.center + self.scale * unpowered(z, z.new_tensor(self.power))

    def log_slope(self, y: Tensor) -> Tensor:
        return log_slope((y - self.center) / self.scale, y.new_tensor(self.power)) - math.log(self.scale)


def candidates(y: Tensor, every: Tensor) -> list[TargetTransform]:
    """The transforms that a target (N,) can have, none at first, that allow every known value (M,) of it."""
    kinds: list[type[TargetTransform]] = [Untransformed, Logarithm, SquareRoot, ShareLogit, YeoJohnson]
    return [kind.of(y) for kind in kinds if bool(kind.allows(every).all())]


class TransformedNormal:
    """The distribution of targets whose transforms are independent normals (N,) or (N, T).

    :param latent: the normals.
    :param transforms: the transforms of the T columns.
    """

    def __init__(self, latent: Normal, transforms: Sequence[TargetTransform]) -> None:
        self.latent, self.transforms = latent, tuple(transforms)
        nodes = self._each("inverse", latent.mean + latent.stddev * _along(_NODES, latent.mean))
        weights = _along(_WEIGHTS / _WEIGHTS.sum(), latent.mean)
        self.mean = (weights * nodes).sum(0)
        """The means (N,) or (N, T), by quadrature."""
        self.stddev = (weights * (nodes - self.mean).square()).sum(0).sqrt()
        """The standard deviations."""

    def log_prob(self, y: Tensor) -> Tensor:
        """The log densities of targets; minus infinity of those that a transform does not allow."""
        allowed = self._each("allows", y)
        inside = self.latent.log_prob(self._each("forward", y)) + self._each("log_slope", y)
        return torch.where(allowed | y.isnan(), inside, -math.inf)

    def icdf(self, probability: Tensor) -> Tensor:
        """The quantiles."""
        return self._each("inverse", self.latent.icdf(probability))

    def _each(self, name: Literal["forward", "inverse", "log_slope", "allows"], values: Tensor) -> Tensor:
        """What the transforms have by that name, of values whose last dimension is that of several targets."""
        if self.latent.mean.dim() == 1:
            return getattr(self.transforms[0], name)(values)
        columns = zip(self.transforms, values.unbind(-1), strict=True)
        return torch.stack([getattr(transform, name)(column) for transform, column in columns], dim=-1)


def transformed(y: Tensor, transforms: tuple[TargetTransform, ...]) -> Tensor:
    """Targets (N,) or (N, T) by their transforms."""
    if not transforms:
        return y
    columns = zip(transforms, y.reshape(len(y), -1).unbind(-1), strict=True)
    return torch.stack([transform.forward(column) for transform, column in columns], dim=-1).reshape(y.shape)


def _along(values: Tensor, like: Tensor) -> Tensor:
    """Numbers (Q,) along a dimension before those of a tensor."""
    return values.reshape(-1, *([1] * like.dim())).to(like)
