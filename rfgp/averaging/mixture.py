"""Mixtures of normal or Student's t distributions on transformed scales, as distributions of single targets."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy
import torch
from torch import Tensor

from .._support import checks
from .column_scale import ColumnScale
from .member import Moments

DEGREES = (3.0, 4.0, 6.0, 10.0, 30.0, math.inf)
"""What degrees of freedom tails can have."""
_NODES = torch.linspace(-5.0, 5.0, 31, dtype=torch.float64)
_NODE_WEIGHTS = torch.softmax(-0.5 * _NODES.square(), 0)
"""Nodes and weights of means over transformed targets: the trapezoidal rule, which is exact for smooth functions."""
_STEPS, _CLOSE, _ROUNDING = 200, 1e-10, 1e-15
"""Quantiles are found in so many steps, to so much of a standard deviation, or of their level."""
_MOST_VALUES = 200_000
"""So many values are transformed at once."""
_FARTHEST = 6.0
_ENDLESS = 1e100
"""So far out a distribution function is zero or one."""


class Tail:
    """Student's t distributions whose central 95 % intervals are those of the standard normal, times some widths.

    :param degrees: degrees of freedom (T,), infinite for the normal distribution.
    :param widths: (T,); default: ones.
    """

    def __init__(self, degrees: Tensor, widths: Tensor | None = None) -> None:
        self.degrees = degrees.double()
        self.widths = torch.ones_like(self.degrees) if widths is None else widths.double()
        self.scale = self.widths * self._each(
            torch.ones_like(self.degrees),
            lambda degrees, u: u * float(scipy.special.ndtri(0.975) / scipy.special.stdtrit(degrees, 0.975)),
            lambda u: u,
        )

    def _each(
        self, u: Tensor, of_student: Callable[[float, Tensor], Tensor], of_normal: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Functions of values (..., T) by the degrees of freedom of their columns."""
        different = self.degrees.unique().tolist()
        if len(different) == 1:
            return of_normal(u) if math.isinf(different[0]) else of_student(different[0], u)
        found = torch.empty_like(u)
        for degrees in different:
            columns = self.degrees == degrees
            part = u[..., columns]
            found[..., columns] = of_normal(part) if math.isinf(degrees) else of_student(degrees, part)
        return found

    def of(self, columns: Tensor) -> Tail:
        """The tails of some columns."""
        return Tail(self.degrees[columns], self.widths[columns])

    def widened(self, widths: Tensor) -> Tail:
        """The same with other widths (T,)."""
        return Tail(self.degrees, widths)

    @property
    def variance(self) -> Tensor:
        """The variances (T,); where there is none, those of normals with the same central 95 % intervals."""
        has_other = self.degrees.isfinite() & (self.degrees > 2.0)
        degrees = torch.where(has_other, self.degrees, 3.0)
        return torch.where(has_other, self.scale.square() * degrees / (degrees - 2.0), self.widths.square())

    def cdf(self, u: Tensor) -> Tensor:
        """The distribution functions of values (..., T)."""
        return self._each(u / self.scale, _student_cdf, torch.special.ndtr)

    def icdf(self, levels: Tensor) -> Tensor:
        """The quantiles at levels (..., T)."""
        return self.scale * self._each(levels, _student_icdf, torch.special.ndtri)

    def log_density(self, u: Tensor) -> Tensor:
        """The log densities of values (..., T)."""
        return self._each(u / self.scale, _student_log_density, _normal_log_density) - self.scale.log()


def _student_cdf(degrees: float, u: Tensor) -> Tensor:
    """By the finite series of whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    odd, terms = int(degrees) % 2, int(degrees) // 2
    u = u.clamp(-_ENDLESS, _ENDLESS)
    square = degrees / (degrees + u.square())
    term, total = torch.ones_like(u), torch.zeros_like(u)
    for k in range(terms):
        total += term
        term = term * square * ((2.0 * k + 2.0) / (2.0 * k + 3.0) if odd else (2.0 * k + 1.0) / (2.0 * k + 2.0))
    sine = u * (square / degrees).sqrt()
    if odd:
        return 0.5 + ((u / degrees**0.5).atan() + sine * square.sqrt() * total) / math.pi
    return 0.5 + 0.5 * sine * total


def _student_icdf(degrees: float, level: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(scipy.special.stdtrit(degrees, level.numpy())))


def _student_log_density(degrees: float, u: Tensor) -> Tensor:
    half = 0.5 * (degrees + 1.0)
    constant = math.lgamma(half) - math.lgamma(0.5 * degrees) - 0.5 * math.log(degrees * math.pi)
    return constant - half * (u.square() / degrees).log1p()


def _normal_log_density(u: Tensor) -> Tensor:
    return -0.5 * u.square() - 0.5 * math.log(2.0 * math.pi)


class Residuals(NamedTuple):
    """Targets (M, T) on the scale of a member.

    :param standard: their distances from the means over standard deviations, (S, M, T).
    :param log_std: the logarithms of the latter.
    :param log_slope: those of the derivatives of the scale, (M, T).
    """

    standard: Tensor
    log_std: Tensor
    log_slope: Tensor

    def log_density(self, tail: Tail) -> Tensor:
        """The log densities (M, T) in the units of the targets, each draw with the same weight.

        They are minus infinity where a residual is infinite, whatever the derivative is there.
        """
        logs = tail.log_density(self.standard) - self.log_std
        mixed = logs.logsumexp(0) - math.log(len(logs)) if len(logs) > 1 else logs[0]
        return torch.where(self.standard[0].isinf(), -math.inf, mixed + self.log_slope)

    def cdf(self, tail: Tail) -> Tensor:
        """The probabilities (M, T) of smaller targets."""
        return tail.cdf(self.standard).mean(0)


class MixtureComponent(NamedTuple):
    """What a member predicts of M values of T targets: moments (S, M, T) on its scale, that scale, and tails."""

    moments: Moments
    target: ColumnScale
    tail: Tail

    def of(self, columns: Tensor) -> MixtureComponent:
        """That of some targets."""
        mean, variance = self.moments
        part = Moments(mean[..., columns], variance[..., columns])
        return MixtureComponent(part, self.target.of(columns), self.tail.of(columns))

    def of_draw(self, place: int) -> MixtureComponent:
        """That of one draw of the parameters."""
        mean, variance = self.moments
        return self._replace(moments=Moments(mean[place : place + 1], variance[place : place + 1]))

    def residuals(self, y: Tensor) -> Residuals:
        """Targets (M, T) less what is predicted of them, infinite for those outside of bounds."""
        std, bounds = self.moments.variance.sqrt(), self.target.logit
        standard = (self.target.forward(y) - self.moments.mean) / std
        standard = torch.where(y < bounds.low, -math.inf, torch.where(y > bounds.high, math.inf, standard))
        return Residuals(standard, std.log(), self.target.log_slope(y))

    def log_density(self, y: Tensor) -> Tensor:
        """The log densities of targets (M, T)."""
        return self.residuals(y).log_density(self.tail)

    def cdf(self, y: Tensor) -> Tensor:
        """The probabilities of smaller targets than y (M, T)."""
        return self.residuals(y).cdf(self.tail)

    def quantiles(self, level: Tensor) -> Tensor:
        """Quantiles (S, M, T) of every draw in units of the targets, at levels (T,) or (M, T)."""
        mean, variance = self.moments
        return self.target.inverse(mean + variance.sqrt() * self.tail.icdf(level))

    def about(self, center: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Means (M, T) of targets less a center (T,), and of the squares of these differences.

        :param low: lower limits (T,) or (M, T) of nodes on a transformed scale.
        :param high: upper limits.
        """
        mean, variance = self.moments
        if self.target.is_linear:
            apart, unit = self.target.inverse(mean) - center, self.target.std * self.target.unit
            square = apart.square() + self.tail.variance * unit.square() * variance
            return apart.mean(0), square.mean(0)
        first, second, std = torch.zeros_like(mean[0]), torch.zeros_like(mean[0]), variance.sqrt()
        steps = self.tail.icdf(torch.special.ndtr(_NODES).unsqueeze(-1).expand(-1, mean.shape[-1]))
        count = max(1, _MOST_VALUES // max(mean.numel(), 1))
        for some, weights in zip(steps.split(count), _NODE_WEIGHTS.split(count), strict=True):
            apart = self.target.inverse(mean + std * some[:, None, None]).clamp(low, high) - center
            first += torch.tensordot(weights, apart.mean(1), dims=1)
            second += torch.tensordot(weights, apart.square().mean(1), dims=1)
        return first, second


class Mixture:
    """The distributions of new targets, each alone: weighted mixtures of what members predict.

    Targets of a transformed scale count in means and variances with at most the range of the training targets and half
    of it on both sides: the exponential of Student's t has no mean. Where the median of the medians of all components
    is outside of this range, they count up to twice its distance from the middle: a component of little weight that
    extrapolates far does not decide.

    :param components: what the members predict of M values of T targets.
    :param weights: their weights, (K, T).
    :param low: the lower end of what counts, (T,).
    :param high: the upper end.
    :param shape: that of values, (M,) or (M, T).

    >>> from rfgp.averaging import AveragedGP
    >>> x = torch.linspace(0.0, 6.0, 40, dtype=torch.float64).unsqueeze(-1)
    >>> found = AveragedGP(x, x[:, 0].sin()).predictive(x[:1])
    >>> bool(found.icdf(0.025) < found.mean < found.icdf(0.975))
    True
    """

    def __init__(
        self, components: Sequence[MixtureComponent], weights: Tensor, low: Tensor, high: Tensor, shape: tuple[int, ...]
    ) -> None:
        self.limits = low, high
        """The ends of what counts, (T,)."""
        self._shape, self._columns = shape, [of.nonzero().flatten() for of in weights]
        pairs = zip(components, self._columns, strict=True)
        self._components = [component.of(columns) for component, columns in pairs]
        self._weights = [of[columns] for of, columns in zip(weights, self._columns, strict=True)]

    @property
    def _matrix_shape(self) -> tuple[int, int]:
        """That of values as a matrix (M, T)."""
        return self._shape[0], math.prod(self._shape[1:])

    @property
    def support(self) -> tuple[Tensor, Tensor]:
        """The least and the largest values that any component allows, (T,) each, infinite where some has no bounds."""
        low, high = (end * torch.ones_like(self.limits[0]) for end in (math.inf, -math.inf))
        for component, columns in zip(self._components, self._columns, strict=True):
            low[columns] = torch.minimum(low[columns], component.target.logit.low)
            high[columns] = torch.maximum(high[columns], component.target.logit.high)
        return low, high

    @functools.cached_property
    def row_limits(self) -> tuple[Tensor, Tensor]:
        """The ends of what counts in each row, (M, T), which no component on a linear scale needs."""
        low, high = self.limits
        if all(component.target.is_linear for component in self._components):
            return low.expand(self._matrix_shape), high.expand(self._matrix_shape)
        shape, parts, shares = self._matrix_shape, list[Tensor](), list[Tensor]()
        for component, columns, weights in zip(self._components, self._columns, self._weights, strict=True):
            medians = component.target.inverse(component.moments.mean).clamp(-_ENDLESS, _ENDLESS)
            part, share = (low.new_zeros(len(medians), *size) for size in (shape, shape[1:]))
            part[..., columns], share[:, columns] = medians, weights / len(medians)
            parts.append(part)
            shares.append(share)
        medians, order = torch.cat(parts).sort(0)
        below = torch.cat(shares).unsqueeze(1).expand_as(medians).gather(0, order).cumsum(0)
        place = (below < 0.5 * below[-1]).sum(0, keepdim=True)
        reach = 2.0 * medians.gather(0, place).squeeze(0) - 0.5 * (low + high)
        return torch.minimum(low, reach), torch.maximum(high, reach)

    @functools.cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Means and variances (M, T)."""
        center, (low, high) = 0.5 * (self.limits[0] + self.limits[1]), self.row_limits
        ends = [(center[columns], low[:, columns], high[:, columns]) for columns in self._columns]
        parts = [part.about(*limits) for part, limits in zip(self._components, ends, strict=True)]
        first, second = self._mixed([one for one, _ in parts]), self._mixed([two for _, two in parts])
        return center + first, (second - first.square()).clamp_min(0.0)

    @property
    def mean(self) -> Tensor:
        """The means (M,) or (M, T)."""
        return self._moments[0].reshape(self._shape)

    @property
    def variance(self) -> Tensor:
        """The variances."""
        return self._moments[1].reshape(self._shape)

    def _mixed(self, parts: Sequence[Tensor]) -> Tensor:
        """The weighted sums (M, T) of what the components have for their targets."""
        total = parts[0].new_zeros(self._matrix_shape)
        for part, columns, weights in zip(parts, self._columns, self._weights, strict=True):
            total[:, columns] += weights * part
        return total

    @property
    def stddev(self) -> Tensor:
        """The standard deviations."""
        return self.variance.sqrt()

    def rescaled(self, center: Tensor, scale: Tensor) -> Mixture:
        """The distributions of center + scale y, for centers and positive scales (T,); a ValueError for others."""
        count = math.prod(self._shape[1:])
        if not center.shape == scale.shape == (count,) or not bool((scale > 0.0).all()):
            raise ValueError(
                f"expected a center and a positive scale for each of {count} targets, got {center.tolist()} and "
                f"{scale.tolist()}; pass tensors"
            )
        twin = copy.copy(self)
        twin._components = [
            component._replace(target=component.target.rescaled(center[columns], scale[columns]))
            for component, columns in zip(self._components, self._columns, strict=True)
        ]
        low, high = self.limits
        twin.limits = center + scale * low, center + scale * high
        for name in ("_moments", "row_limits"):
            vars(twin).pop(name, None)
        return twin

    def widened(self, factor: Tensor) -> Mixture:
        """The distributions whose components have standard deviations times factors (M,) or (M, T)."""
        twin, squares = copy.copy(self), self._targets(factor).square()
        twin._components = []
        for component, columns in zip(self._components, self._columns, strict=True):
            mean, variance = component.moments
            twin._components.append(component._replace(moments=Moments(mean, variance * squares[:, columns])))
        vars(twin).pop("_moments", None)
        return twin

    def imputed(self, rows: Tensor, is_marked: Tensor, parts: Sequence[Mixture]) -> Mixture:
        """The same where some rows are those of imputations, see :meth:`rfgp.averaging.member.Moments.imputed`."""
        twin, of_parts = copy.copy(self), zip(*(part._components for part in parts), strict=True)
        twin._components = [
            own._replace(
                moments=own.moments.imputed(rows, is_marked, [part.moments for part in others], own.tail.widths)
            )
            for own, others in zip(self._components, of_parts, strict=True)
        ]
        for name in ("_moments", "row_limits"):
            vars(twin).pop(name, None)
        return twin

    def log_prob(self, y: Tensor) -> Tensor:
        """The log densities of targets (M,) or (M, T)."""
        return self._log_density(self._residuals(self._targets(y))).reshape(self._shape)

    def _residuals(self, y: Tensor) -> list[Residuals]:
        """Those of every component, for targets (M, T)."""
        pairs = zip(self._components, self._columns, strict=True)
        return [component.residuals(y[:, columns]) for component, columns in pairs]

    def _log_density(self, residuals: Sequence[Residuals]) -> Tensor:
        """The log densities (M, T)."""
        logs = self.limits[0].new_full((len(residuals), *self._matrix_shape), -math.inf)
        for number, (component, columns) in enumerate(zip(self._components, self._columns, strict=True)):
            logs[number][:, columns] = residuals[number].log_density(component.tail) + self._weights[number].log()
        return logs.logsumexp(0)

    def cdf(self, y: Tensor) -> Tensor:
        """The probabilities of smaller targets than y (M,) or (M, T)."""
        return self._cdf(self._residuals(self._targets(y))).reshape(self._shape)

    def _cdf(self, residuals: Sequence[Residuals]) -> Tensor:
        pairs = zip(self._components, residuals, strict=True)
        return self._mixed([found.cdf(component.tail) for component, found in pairs])

    def _targets(self, y: Tensor) -> Tensor:
        """Targets (M, T), checked, in float64."""
        y = checks.real_tensor(y, "y").double()
        if y.shape != self._shape:
            raise ValueError(f"expected y of shape {self._shape}, got {tuple(y.shape)}; pass one value for each")
        return y.reshape(len(y), -1)

    def icdf(self, level: float | Tensor, near: Tensor | None = None) -> Tensor:
        """The quantiles at a level between 0 and 1.

        :param near: values (M,) or (M, T) near them, where the search begins.
        """
        levels = torch.full_like(self.limits[0], checks.share("level", level))
        return self._quantiles(levels, None if near is None else self._targets(near)).reshape(self._shape)

    def of_scores(self, z: Tensor) -> Tensor:
        """The values (M,) or (M, T) whose normal scores are z of this shape: draws, of standard normal values."""
        return self._quantiles(torch.special.ndtr(self._targets(z))).reshape(self._shape)

    def _quantiles(self, level: Tensor, start: Tensor | None = None) -> Tensor:
        """The quantiles (M, T) at levels (T,) or (M, T).

        Newton's method finds where normal scores are those of the levels, between the quantiles of all components.
        """
        pairs = zip(self._components, self._columns, strict=True)
        quantiles = [component.quantiles(level[..., columns]) for component, columns in pairs]
        found = self._mixed([part.mean(0) for part in quantiles]) if start is None else start
        low, high = (found.new_full(found.shape, end) for end in (math.inf, -math.inf))
        for part, columns in zip(quantiles, self._columns, strict=True):
            low[:, columns] = torch.minimum(low[:, columns], part.amin(0))
            high[:, columns] = torch.maximum(high[:, columns], part.amax(0))
        mean, reach = (part.reshape(found.shape) for part in (self.mean, _FARTHEST * self.stddev))
        found = torch.minimum(torch.maximum(found.clamp(mean - reach, mean + reach), low), high)
        close = _CLOSE * (self.stddev.reshape(found.shape) + 1e-300)
        score = torch.special.ndtri(level)
        for _ in range(_STEPS):
            residuals = self._residuals(found)
            below = self._cdf(residuals)
            low, high = torch.where(below < level, found, low), torch.where(below > level, found, high)
            own = torch.special.ndtri(below)
            newton = found - (own - score) * (_normal_log_density(own) - self._log_density(residuals)).exp()
            is_inside = (newton >= low) & (newton <= high)
            moved = torch.where(below == level, found, torch.where(is_inside, newton, 0.5 * (low + high)))
            is_done = ((moved - found).abs() <= close) | ((below - level).abs() <= _ROUNDING)
            found = moved
            if bool(is_done.all()):
                break
        return found


class QuantileCurves:
    r"""The quantiles of mixtures as functions of a standard normal value z, by cubic pieces between nodes.

    .. math:: q(z) = F^{-1}(\Phi(z)), \qquad q'(z) = \phi(z) / F'(q(z))

    Values are kept within five standard deviations, and within the limits of the mixture or six standard deviations
    from its means: a transformed scale has long tails.

    :param mixture: the distributions.
    """

    def __init__(self, mixture: Mixture) -> None:
        values: list[Tensor] = []
        slopes: list[Tensor] = []
        for node in _NODES:
            near = values[-1] + (_NODES[1] - _NODES[0]) * slopes[-1] if values else None
            quantile = mixture.icdf(float(torch.special.ndtr(node)), near)
            values.append(quantile)
            slopes.append((_normal_log_density(node) - mixture.log_prob(quantile)).exp())
        low, high = (end.reshape(mixture.mean.shape[1:]) for end in mixture.limits)
        reach = _FARTHEST * mixture.stddev
        least, most = (end.reshape(mixture.mean.shape[1:]) for end in mixture.support)
        self.low = torch.maximum(torch.minimum(low, mixture.mean - reach), least)
        self.high = torch.minimum(torch.maximum(high, mixture.mean + reach), most)
        self.values, self.slopes = torch.stack(values), torch.stack(slopes)

    def __call__(self, z: Tensor) -> Tensor:
        """The quantiles (S, ...) of normal values (S, ...)."""
        step = float(_NODES[1] - _NODES[0])
        place = (z.clamp(float(_NODES[0]), float(_NODES[-1])) - _NODES[0]) / step
        number = place.floor().long().clamp_max(len(_NODES) - 2)
        t = place - number
        left, right = self.values.gather(0, number), self.values.gather(0, number + 1)
        rise, fall = step * self.slopes.gather(0, number), step * self.slopes.gather(0, number + 1)
        bend, twist = right - left - rise, fall + rise - 2.0 * (right - left)
        found = left + t * (rise + t * (bend + (t - 1.0) * twist))
        return found.clamp(self.low, self.high)
