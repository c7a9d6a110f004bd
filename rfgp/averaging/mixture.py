"""Mixtures of normal or Student's t distributions on transformed scales, as distributions of single targets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._support import checks
from .member import Moments, TargetScale

Floats = NDArray[np.float64]

DEGREES = (3.0, 4.0, 6.0, 10.0, 30.0, np.inf)
"""What degrees of freedom tails can have."""
_NODES = np.linspace(-5.0, 5.0, 41)
_NODE_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()
"""Nodes and weights of means over transformed targets: the trapezoidal rule, which is exact for smooth functions."""
_STEPS, _CLOSE = 60, 1e-10


class Tail:
    """A Student's t distribution whose central 95 % interval is that of the standard normal, so that tails are wider.

    :param degrees: its degrees of freedom, infinite for the normal distribution.
    """

    def __init__(self, degrees: float) -> None:
        self.degrees = degrees
        self.scale = (
            1.0 if np.isinf(degrees) else float(scipy.special.ndtri(0.975) / scipy.special.stdtrit(degrees, 0.975))
        )

    @property
    def variance(self) -> float:
        """Its variance."""
        return 1.0 if np.isinf(self.degrees) else self.scale**2 * self.degrees / (self.degrees - 2.0)

    def cdf(self, u: Floats) -> Floats:
        """The distribution function."""
        special = scipy.special
        found: Floats = special.ndtr(u) if np.isinf(self.degrees) else special.stdtr(self.degrees, u / self.scale)
        return found

    def icdf(self, level: Floats) -> Floats:
        """The quantiles."""
        special, degrees = scipy.special, self.degrees
        found: Floats = special.ndtri(level) if np.isinf(degrees) else self.scale * special.stdtrit(degrees, level)
        return found

    def log_density(self, u: Floats) -> Floats:
        """The log density."""
        if np.isinf(self.degrees):
            normal: Floats = scipy.stats.norm.logpdf(u)
            return normal
        found: Floats = scipy.stats.t.logpdf(u / self.scale, self.degrees) - np.log(self.scale)
        return found


class MemberPrediction(NamedTuple):
    """What a member predicts of M targets: moments on its scale, that scale, and tails."""

    moments: Moments
    target: TargetScale
    tail: Tail

    def of_draw(self, place: int) -> MemberPrediction:
        """That of one draw of the parameters."""
        mean, variance = self.moments
        return self._replace(moments=Moments(mean[place : place + 1], variance[place : place + 1]))

    def log_density(self, y: Tensor) -> Floats:
        """The log densities (M,) of targets, each draw with the same weight."""
        mean, std = (part.numpy() for part in (self.moments.mean, self.moments.variance.sqrt()))
        z = (self.target.forward(y).numpy() - mean) / std
        logs = self.tail.log_density(z) - np.log(std)
        mixed: Floats = np.logaddexp.reduce(logs, axis=0) - np.log(len(mean)) + self.target.log_slope(y).numpy()
        return mixed

    def cdf(self, y: Tensor) -> Floats:
        """The probabilities (M,) of smaller targets."""
        mean, std = (part.numpy() for part in (self.moments.mean, self.moments.variance.sqrt()))
        probability: Floats = self.tail.cdf((self.target.forward(y).numpy() - mean) / std).mean(0)
        return probability

    def values(self, levels: Floats) -> Floats:
        """Quantiles (S, Q, M) of every draw in units of the target."""
        mean, std = (part.unsqueeze(1) for part in (self.moments.mean, self.moments.variance.sqrt()))
        steps = torch.from_numpy(self.tail.icdf(levels)).unsqueeze(-1)
        found: Floats = self.target.inverse(mean + std * steps).numpy()
        return found

    def mean_and_square(self, limits: tuple[float, float]) -> tuple[Floats, Floats]:
        """Means (M,) of targets and of their squares; nodes of a transformed scale are kept within the limits."""
        if self.target.transform.kind == "none":
            mean, unit = self.target.inverse(self.moments.mean), self.target.unit
            square = mean.square() + self.tail.variance * unit.square() * self.moments.variance
            return mean.mean(0).numpy(), square.mean(0).numpy()
        nodes = self.values(scipy.special.ndtr(_NODES)).clip(*limits)
        first, second = (np.tensordot(_NODE_WEIGHTS, part.mean(0), 1) for part in (nodes, np.square(nodes)))
        return first, second


class Mixture:
    """The distribution of M new targets, each alone: a weighted mixture of the components.

    Targets of a transformed scale count in means and variances with at most the range of the training targets and half
    of it on both sides: the exponential of Student's t has no mean.

    :param components: what the members predict.
    :param weights: their weights, (K,).
    :param limits: these ends.

    >>> from rfgp.averaging import AveragedGP
    >>> x = torch.linspace(0.0, 6.0, 40, dtype=torch.float64).unsqueeze(-1)
    >>> found = AveragedGP(x, x[:, 0].sin()).predictive(x[:1])
    >>> bool(found.icdf(0.025) < found.mean < found.icdf(0.975))
    True
    """

    def __init__(self, components: list[MemberPrediction], weights: Floats, limits: tuple[float, float]) -> None:
        self.components, self.weights, self.limits = components, weights, limits
        parts = [component.mean_and_square(limits) for component in components]
        first, second = (np.tensordot(weights, np.stack(part), 1) for part in zip(*parts, strict=True))
        self.mean = torch.from_numpy(first)
        """The means (M,)."""
        self.variance = torch.from_numpy(np.maximum(second - first**2, 0.0))
        """The variances (M,)."""

    @property
    def stddev(self) -> Tensor:
        """The standard deviations (M,)."""
        return self.variance.sqrt()

    def log_prob(self, y: Tensor) -> Tensor:
        """The log densities (M,) of targets (M,)."""
        y = self._targets(y)
        logs = [np.log(w) + c.log_density(y) for w, c in zip(self.weights, self.components, strict=True)]
        return torch.from_numpy(np.logaddexp.reduce(logs, axis=0))

    def cdf(self, y: Tensor) -> Tensor:
        """The probabilities (M,) of smaller targets than y (M,)."""
        y = self._targets(y)
        parts = [w * c.cdf(y) for w, c in zip(self.weights, self.components, strict=True)]
        return torch.from_numpy(np.sum(parts, axis=0))

    def _targets(self, y: Tensor) -> Tensor:
        """Targets, checked, in float64."""
        y = checks.real_tensor(y, "y").double()
        if y.shape != self.mean.shape:
            raise ValueError(f"expected y of shape {tuple(self.mean.shape)}, got {tuple(y.shape)}; pass one for each")
        return y

    def icdf(self, level: float) -> Tensor:
        """The quantiles (M,) at a level between 0 and 1, by bisection between the quantiles of all components."""
        level = checks.share("level", level)
        ends = [component.values(np.array([level]))[:, 0] for component in self.components]
        low = torch.from_numpy(np.min([part.min(0) for part in ends], axis=0))
        high = torch.from_numpy(np.max([part.max(0) for part in ends], axis=0))
        for _ in range(_STEPS):
            middle = 0.5 * (low + high)
            is_below = self.cdf(middle) < level
            low, high = torch.where(is_below, middle, low), torch.where(is_below, high, middle)
            if bool(((high - low) <= _CLOSE * (self.stddev + 1e-300)).all()):
                break
        return 0.5 * (low + high)
