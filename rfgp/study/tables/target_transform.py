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

from ...averaging.column_scale import log_slope, powered, unpowered
from ...averaging.logit import Logit

_NODES, _WEIGHTS = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(32))


@dataclass(frozen=True)
class TargetTransform:
    r"""A monotone function of a target y: y, log y, :math:`2 \sqrt{y + c}`, the logit, or that of Yeo and Johnson.

    :param kind: "none", "log", "square root", "logit" of values between 0 and 1, or "yeo-johnson".
    :param center: c, or what is subtracted before the function of Yeo and Johnson.
    :param scale: by what is divided before it.
    :param power: its power, between 0 and 2.

    Source: Yeo and Johnson, 2000.
    """

    kind: Literal["none", "log", "square root", "logit", "yeo-johnson"] = "none"
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
        if is_share(y):
            made.append(cls("logit"))
        center, scale = float(y.median()), float(y.std())
        power = float(scipy.stats.yeojohnson_normmax(((y - center) / scale).numpy()))
        return [*made, cls("yeo-johnson", center, scale, min(max(power, 0.0), 2.0))]

    def forward(self, y: Tensor) -> Tensor:
        """The transformed target."""
        if self.kind == "log":
            return y.log()
        if self.kind == "square root":
            return 2.0 * (y + self.center).sqrt()
        if self.kind == "logit":
            return _of_shares(y).forward(y)
        if self.kind == "none":
            return y
        return powered((y - self.center) / self.scale, y.new_tensor(self.power))

    def inverse(self, z: Tensor) -> Tensor:
        """The target of its transformed values."""
        if self.kind == "log":
            return z.exp()
        if self.kind == "square root":
            return ((0.5 * z.clamp_min(0.0)).square() - self.center).clamp_min(0.0)
        if self.kind == "logit":
            return _of_shares(z).inverse(z)
        if self.kind == "none":
            return z
        return self.center + self.scale * unpowered(z, z.new_tensor(self.power))

    def log_slope(self, y: Tensor) -> Tensor:
        """The logarithm of the derivative of the transform."""
        if self.kind == "log":
            return -y.log()
        if self.kind == "square root":
            return -0.5 * (y + self.center).log()
        if self.kind == "logit":
            return _of_shares(y).log_slope(y)
        if self.kind == "none":
            return torch.zeros_like(y)
        return log_slope((y - self.center) / self.scale, y.new_tensor(self.power)) - np.log(self.scale)


def is_share(y: Tensor) -> bool:
    """Whether all targets (N,) lie between 0 and 1."""
    return bool(((y >= 0.0) & (y <= 1.0)).all())


def _of_shares(values: Tensor) -> Logit:
    return Logit(values.new_zeros(()), values.new_ones(()))


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


def _along(values: Tensor, like: Tensor) -> Tensor:
    """Numbers (Q,) along a dimension before those of a tensor."""
    return values.reshape(-1, *([1] * like.dim())).to(like)
