"""Coordinates in which parameters are optimized: of order one whatever the units of the data."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from gpytorch.constraints import Interval
from gpytorch.likelihoods import Likelihood
from gpytorch.likelihoods.noise_models import Noise
from gpytorch.means import ConstantMean, LinearMean, MultitaskMean
from torch import Tensor

from .moments import DataMoments
from .parts import Parts, constrained_parameters

_MARGIN = 1e-3
"""How far, relative to the value, optimized parameters stay from the bounds of their constraints."""


class Coordinate(abc.ABC):
    """Some parameters, as a vector to optimize."""

    def __init__(self, name: str, parameters: list[Tensor]) -> None:
        self.name, self.parameters = name, parameters

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return sum(parameter.numel() for parameter in self.parameters)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds."""
        return np.full(self.size, -np.inf), np.full(self.size, np.inf)

    @abc.abstractmethod
    def values(self) -> Tensor:
        """The coordinates of the present parameters, flat, in float64; differentiable."""

    @abc.abstractmethod
    def assign(self, values: Tensor) -> None:
        """Set the parameters from coordinates."""

    @abc.abstractmethod
    def gradient(self) -> Tensor:
        """The gradient in the coordinates, from those of the parameters."""


class LinearCoordinate(Coordinate):
    """A parameter on a linear scale: (value - center) / unit."""

    def __init__(self, name: str, parameter: Tensor, center: Tensor, unit: Tensor) -> None:
        super().__init__(name, [parameter])
        self.center, self.unit = center, unit.expand(parameter.shape).reshape(-1)

    def values(self) -> Tensor:
        return (_double(self.parameters[0]) - self.center) / self.unit

    def assign(self, values: Tensor) -> None:
        _copy(self.parameters[0], values * self.unit + self.center)

    def gradient(self) -> Tensor:
        return self.unit * _slope(self.parameters[0])


class Logarithmic(Coordinate):
    """The logarithm of a positive parameter under a constraint, not below ``least``, in units of ``unit``.

    Both expand to the shape of the parameter.
    """

    def __init__(
        self,
        name: str,
        parameter: Tensor,
        constraint: Interval,
        least: Tensor | None = None,
        unit: Tensor | None = None,
    ) -> None:
        super().__init__(name, [parameter])
        self.constraint = constraint
        one = torch.ones((), dtype=torch.float64, device=parameter.device)
        self.unit = (one if unit is None else unit).expand(parameter.shape).reshape(-1)
        self.divisor = np.ones(parameter.numel()) if unit is None else self.unit.cpu().numpy()
        zero = torch.zeros((), dtype=torch.float64)
        self.least = self._flat(zero if least is None else least)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = (self._flat(b) for b in (self.constraint.lower_bound, self.constraint.upper_bound))
        smallest = np.log(np.maximum(self.least, 1e-280 if self.parameters[0].dtype == torch.float64 else 1e-36))
        allowed = np.where(lower > 0, np.log(np.maximum(lower, 1e-300)) + _MARGIN, -np.inf)
        high = np.log(upper) - _MARGIN
        return np.minimum(np.maximum(allowed, smallest), high) / self.divisor, high / self.divisor

    def _flat(self, bound: Tensor) -> np.ndarray:
        return bound.detach().double().expand(self.parameters[0].shape).reshape(-1).cpu().numpy()

    def values(self) -> Tensor:
        return self.constraint.transform(_double(self.parameters[0], flat=False)).reshape(-1).log() / self.unit

    def assign(self, values: Tensor) -> None:
        value = (self.unit * values).exp().reshape(self.parameters[0].shape)
        _copy(self.parameters[0], self.constraint.inverse_transform(value))

    def gradient(self) -> Tensor:
        raw = _double(self.parameters[0].detach(), flat=False).requires_grad_(True)
        with torch.enable_grad():
            value = self.constraint.transform(raw)
            (slope,) = torch.autograd.grad(value.sum(), raw)
        return self.unit * _slope(self.parameters[0]) * (value.detach() / slope).reshape(-1)


class Together(Coordinate):
    """Positive parameters of which all ratios stay: the mean of their logarithms."""

    def __init__(self, members: list[Logarithmic]) -> None:
        super().__init__(members[0].name, [parameter for member in members for parameter in member.parameters])
        self.members = members

    @property
    def size(self) -> int:
        return 1

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        values = self._logarithms().detach().cpu().numpy()
        lower, upper = (
            np.concatenate([member.bounds[side] for member in self.members]) - values + values.mean() for side in (0, 1)
        )
        return lower.max(keepdims=True), upper.min(keepdims=True)

    def _logarithms(self) -> Tensor:
        return torch.cat([member.values() for member in self.members])

    def values(self) -> Tensor:
        return self._logarithms().mean().reshape(1)

    def assign(self, values: Tensor) -> None:
        step = values - self.values()
        for member in self.members:
            member.assign(member.values() + step)

    def gradient(self) -> Tensor:
        return torch.cat([member.gradient() for member in self.members]).sum().reshape(1)


class LinearMeanCoordinate(Coordinate):
    """Weights and bias of a linear mean function of standardized inputs and targets, of one output or all."""

    def __init__(self, name: str, mean: LinearMean, moments: DataMoments, output: int | None = None) -> None:
        super().__init__(name, [mean.weights] if mean.bias is None else [mean.weights, mean.bias])
        self.columns = moments.input_mean.unsqueeze(-1)
        self.center, self.scale = moments.of_output(output)
        self.units = self.scale / moments.input_scale.unsqueeze(-1)

    def values(self) -> Tensor:
        weights = _double(self.parameters[0], flat=False)
        parts = [weights / self.units]
        if len(self.parameters) > 1:
            level = _double(self.parameters[1], flat=False) + (weights * self.columns).sum(-2)
            parts.append((level - self.center) / self.scale)
        return torch.cat([part.reshape(-1) for part in parts])

    def assign(self, values: Tensor) -> None:
        size = self.parameters[0].numel()
        weights = values[:size].reshape(self.parameters[0].shape) * self.units
        _copy(self.parameters[0], weights)
        if len(self.parameters) > 1:
            level = values[size:].reshape(self.parameters[1].shape) * self.scale + self.center
            _copy(self.parameters[1], level - (weights * self.columns).sum(-2))

    def gradient(self) -> Tensor:
        weights = _slope(self.parameters[0]).reshape(self.parameters[0].shape)
        if len(self.parameters) == 1:
            return (weights * self.units).reshape(-1)
        bias = _slope(self.parameters[1]).reshape(self.parameters[1].shape)
        centered = weights - bias.unsqueeze(-2) * self.columns
        return torch.cat([(centered * self.units).reshape(-1), (bias * self.scale).reshape(-1)])


class Coordinates:
    """All parameters of a model that require gradients, as one vector.

    Positive parameters are optimized by their logarithms, means in standard deviations of the targets, and others in
    units of their start. The logarithms of periods and frequencies are in units of what the inputs resolve.

    :param is_tied: whether all lengthscales keep their ratios, and parameters of transforms of the inputs stay.
    :param ranges: the ranges of the inputs of periods and frequencies, of :func:`resolutions`.
    """

    def __init__(
        self,
        parts: Parts,
        moments: DataMoments,
        is_tied: bool = False,
        ranges: Mapping[int, Tensor] | None = None,
    ) -> None:
        self.members = list(_coordinates(parts, moments, ranges or {}))
        if is_tied:
            self.members = _tied(self.members)
        if not self.members:
            raise ValueError("expected parameters to train, got none that require gradients; set requires_grad_(True)")
        bounds = [member.bounds for member in self.members]
        self.lower, self.upper = (np.concatenate(parts) for parts in zip(*bounds, strict=True))

    @property
    def parameters(self) -> list[Tensor]:
        """The tensors that are set."""
        return [parameter for member in self.members for parameter in member.parameters]

    @property
    def has_defaults(self) -> bool:
        """Whether a positive parameter has the value that GPyTorch gives it."""
        positive = [member.parameters[0] for member in self.members if isinstance(member, Logarithmic)]
        return any(bool((parameter == 0).all()) for parameter in positive)

    @torch.no_grad()
    def values(self) -> np.ndarray:
        """The coordinates of the present parameters."""
        return torch.cat([member.values() for member in self.members]).cpu().numpy()

    @torch.no_grad()
    def assign(self, values: np.ndarray) -> None:
        """Set the parameters from coordinates."""
        sizes = [member.size for member in self.members]
        parts = torch.from_numpy(values.copy()).to(self.parameters[0].device).split(sizes)
        for member, part in zip(self.members, parts, strict=True):
            member.assign(part)

    def gradient(self) -> np.ndarray:
        """The gradient in the coordinates, from those of the parameters."""
        return torch.cat([member.gradient() for member in self.members]).cpu().numpy()

    def mask(self, raw: set[int]) -> np.ndarray:
        """Which coordinates belong to tensors with these identities."""
        return self._where(lambda member: any(id(p) in raw for p in member.parameters))

    @property
    def lengthscales(self) -> np.ndarray:
        """Which coordinates are lengthscales."""
        return self._where(lambda member: member.name.rpartition(".")[2] == "lengthscale")

    @property
    def transforms(self) -> np.ndarray:
        """Which coordinates are parameters of transforms of the inputs."""
        return self._where(_is_of_transform)

    @property
    def noises(self) -> np.ndarray:
        """Which coordinates are variances of noise."""
        return self._where(lambda member: member.name.rpartition(".")[2] == "noise")

    @property
    def scales(self) -> np.ndarray:
        """Which coordinates are variances of functions."""
        return self._where(lambda member: member.name.rpartition(".")[2] == "outputscale")

    def _where(self, is_wanted: Callable[[Coordinate], bool]) -> np.ndarray:
        return np.concatenate([np.full(member.size, is_wanted(member)) for member in self.members])

    def at_bounds(self, values: np.ndarray) -> list[tuple[Coordinate, str, float]]:
        """Members with a coordinate at a bound of their constraint: which bound, and the value there."""
        ends: list[tuple[Coordinate, str, float]] = []
        start = 0
        for member in self.members:
            part = slice(start, start + member.size)
            start += member.size
            if not isinstance(member, Logarithmic):
                continue
            for side in ("lower", "upper"):
                bound = member._flat(getattr(member.constraint, f"{side}_bound"))
                is_bound = np.isfinite(bound) & (bound > 0)
                logarithms = member.divisor * values[part]
                is_at = is_bound & (np.abs(logarithms - np.log(np.where(is_bound, bound, 1.0))) <= 2.0 * _MARGIN)
                if is_at.any():
                    ends.append((member, side, float(bound[is_at][0])))
        return ends


def _is_of_transform(member: Coordinate) -> bool:
    return ".transform." in f".{member.name}"


def _tied(members: list[Coordinate]) -> list[Coordinate]:
    """The same with one number for all lengthscales, in place of the first, and without parameters of transforms."""
    lengths = [m for m in members if isinstance(m, Logarithmic) and m.name.endswith("lengthscale")]
    others = [m for m in members if not _is_of_transform(m) and m not in lengths]
    return [*([Together(lengths)] if lengths else []), *others]


def _coordinates(parts: Parts, moments: DataMoments, ranges: Mapping[int, Tensor]) -> Iterator[Coordinate]:
    seen: set[int] = set()
    for prefix, part in parts.items():
        units = moments.of_log_noise() if prefix.startswith("log_noise.") else moments
        several = [module for module in part.modules() if isinstance(module, MultitaskMean)]
        outputs = {id(mean): t for module in several for t, mean in enumerate(module.base_means)}
        for name, parameter, owner, constraint in constrained_parameters(part):
            if not parameter.requires_grad or id(parameter) in seen:
                continue
            seen.add(id(parameter))
            full = prefix + name
            is_linear = isinstance(owner, LinearMean) and owner.weights.shape[-2] == len(units.input_mean)
            if is_linear and all(p.requires_grad for p in owner.parameters()):
                seen |= {id(p) for p in owner.parameters()}
                yield LinearMeanCoordinate(full.rpartition(".")[0], owner, units, outputs.get(id(owner)))
            elif constraint is not None and bool((constraint.lower_bound >= 0).all()):
                least, unit = _least(owner, parameter, units), None
                if id(parameter) in ranges:
                    value = constraint.transform(_double(parameter.detach(), flat=False))
                    unit = _resolved(value, name, ranges[id(parameter)])
                yield Logarithmic(full.replace("raw_", ""), parameter, constraint, least, unit)
            elif constraint is None and isinstance(owner, ConstantMean):
                yield LinearCoordinate(full.replace("raw_", ""), parameter, *units.of_output(outputs.get(id(owner))))
            else:
                is_by_row = parameter.dim() > 1 and name.endswith("covar_factor")
                zero = torch.zeros((), dtype=torch.float64, device=parameter.device)
                yield LinearCoordinate(full, parameter, zero, _root_mean_square(parameter, is_by_row))


def _resolved(value: Tensor, name: str, span: Tensor) -> Tensor:
    """By how much the logarithm of a period or a frequency varies where one more wave is on the range (d,)."""
    span = span.to(value) if value.shape[-1] == len(span) else span.max().to(value)
    waves = span / value if name.endswith("period_length") else span * value
    return 1.0 / waves.clamp_min(1.0)


def _least(owner: torch.nn.Module, parameter: Tensor, units: DataMoments) -> Tensor | None:
    """The least noise in the units of the targets, for noises of likelihoods; None for all else."""
    if not isinstance(owner, Likelihood | Noise):
        return None
    least = units.targets.least_noise
    return least if parameter.shape == least.shape else least.min()


def _root_mean_square(parameter: Tensor, is_by_row: bool) -> Tensor:
    """The size of a parameter, or of each of its rows; one where it is zero."""
    square = _double(parameter.detach(), flat=False).square()
    size = (square.mean(-1, keepdim=True) if is_by_row else square.mean()).sqrt()
    return torch.where(size > 0, size, torch.ones_like(size))


def _double(parameter: Tensor, flat: bool = True) -> Tensor:
    exact = parameter.double()
    return exact.reshape(-1) if flat else exact


def _slope(parameter: Tensor) -> Tensor:
    grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    return grad.detach().double().reshape(-1)


def _copy(parameter: Tensor, values: Tensor) -> None:
    with torch.no_grad():
        parameter.copy_(values.reshape(parameter.shape))
