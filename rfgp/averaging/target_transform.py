"""Transforms of a target that make its noise even, and predictions in its own units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import scipy
import torch
from torch import Tensor
from torch.distributions import Normal

_NODES, _WEIGHTS = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(32))


@dataclass(frozen=True)
class TargetTransform:
    r"""A monotone function of a target y: y, log y, :math:`2 \sqrt{y + c}`, or that of Yeo and Johnson.

    :param kind: "none", "log", "square root" or "yeo-johnson".
    :param center: c, or what is subtracted before the function of Yeo and Johnson.
    :param scale: by what is divided before it.
    :param power: its power, between 0 and 2.

    Source: Yeo and Johnson, 2000.
    """

    kind: Literal["none", "log", "square root", "yeo-johnson"] = "none"
    center: float = 0.0
    scale: float = 1.0
    power: float = 1.0

    @classmethod
    def candidates(cls, y: Tensor) -> list[Self]:
        """The transforms that a target (N,) can have."""
        made = [cls()]
        if float(y.min()) > 0.0:
            made.append(cls("log"))
        if float(y.min()) >= 0.0:
            made.append(cls("square root", 0.375 * float(y[y > 0.0].min())))
        center, scale = float(y.median()), float(y.std())
        power = float(scipy.stats.yeojohnson_normmax(((y - center) / scale).numpy()))
        return [*made, cls("yeo-johnson", center, scale, min(max(power, 0.0), 2.0))]

    def forward(self, y: Tensor) -> Tensor:
        """The transformed target."""
        if self.kind == "log":
            return y.log()
        if self.kind == "square root":
            return 2.0 * (y + self.center).sqrt()
        if self.kind == "none":
            return y
        u = (y - self.center) / self.scale
        return torch.where(u >= 0.0, _power(u, self.power), -_power(-u, 2.0 - self.power))

    def inverse(self, z: Tensor) -> Tensor:
        """The target of its transformed values."""
        if self.kind == "log":
            return z.exp()
        if self.kind == "square root":
            return ((0.5 * z.clamp_min(0.0)).square() - self.center).clamp_min(0.0)
        if self.kind == "none":
            return z
        u = torch.where(z >= 0.0, _root(z, self.power), -_root(-z, 2.0 - self.power))
        return self.center + self.scale * u

    def log_slope(self, y: Tensor) -> Tensor:
        """The logarithm of the derivative of the transform."""
        if self.kind == "log":
            return -y.log()
        if self.kind == "square root":
            return -0.5 * (y + self.center).log()
        if self.kind == "none":
            return torch.zeros_like(y)
        u = (y - self.center) / self.scale
        power = torch.where(u >= 0.0, self.power - 1.0, 1.0 - self.power)
        return power * u.abs().log1p() - np.log(self.scale)


def yeo_johnson(y: Tensor) -> TargetTransform:
    """That of Yeo and Johnson of targets (N,), with the power in [0, 2] under which they are most probably normal."""
    center, scale = float(y.mean()), float(y.std(correction=0))

    def loss(power: float) -> float:
        transform = TargetTransform("yeo-johnson", center, scale, power)
        variance = float(transform.forward(y).var(correction=0))
        return 0.5 * len(y) * np.log(variance) - float(transform.log_slope(y).sum())

    power = float(scipy.optimize.minimize_scalar(loss, bounds=(0.0, 2.0), method="bounded").x)
    return TargetTransform("yeo-johnson", center, scale, power)


class TransformedNormal:
    """The distribution of targets whose transforms are independent normals (N,) or (N, T).

    :param latent: the normals.
    :param transforms: the transforms of the T columns.
    """

    def __init__(self, latent: Normal, transforms: Sequence[TargetTransform]) -> None:
        self.latent, self.transforms = latent, tuple(transforms)
        nodes = self._each(TargetTransform.inverse, latent.mean + latent.stddev * _along(_NODES, latent.mean))
        weights = _along(_WEIGHTS / _WEIGHTS.sum(), latent.mean)
        self.mean = (weights * nodes).sum(0)
        """The means (N,) or (N, T), by quadrature."""
        self.stddev = (weights * (nodes - self.mean).square()).sum(0).sqrt()
        """The standard deviations."""

    def log_prob(self, y: Tensor) -> Tensor:
        """The log densities of targets."""
        inside = self.latent.log_prob(self._each(TargetTransform.forward, y))
        return inside + self._each(TargetTransform.log_slope, y)

    def icdf(self, probability: Tensor) -> Tensor:
        """The quantiles."""
        return self._each(TargetTransform.inverse, self.latent.icdf(probability))

    def _each(self, function: Any, values: Tensor) -> Tensor:
        if self.latent.mean.dim() == 1:
            return function(self.transforms[0], values)
        columns = zip(self.transforms, values.unbind(-1), strict=True)
        return torch.stack([function(transform, column) for transform, column in columns], dim=-1)


def transformed(y: Tensor, transforms: tuple[TargetTransform, ...]) -> Tensor:
    """Targets (N,) or (N, T) by their transforms."""
    if not transforms:
        return y
    columns = zip(transforms, y.reshape(len(y), -1).unbind(-1), strict=True)
    return torch.stack([transform.forward(column) for transform, column in columns], dim=-1).reshape(y.shape)


def _power(u: Tensor, power: float) -> Tensor:
    """The function of Yeo and Johnson for positive values."""
    logs = u.clamp_min(0.0).log1p()
    return logs if power == 0.0 else (power * logs).expm1() / power


def _root(z: Tensor, power: float) -> Tensor:
    values = z.clamp_min(0.0)
    return values.expm1() if power == 0.0 else ((power * values).log1p() / power).expm1()


def _along(values: Tensor, like: Tensor) -> Tensor:
    """Numbers (Q,) along a dimension before those of a tensor."""
    return values.reshape(-1, *([1] * like.dim())).to(like)
