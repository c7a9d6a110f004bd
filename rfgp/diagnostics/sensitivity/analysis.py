"""Which computation a model allows, and results of flat functions as estimates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..._support import checks
from .copula import GaussianCopula
from .estimate import Estimate
from .functions import WaveFunctions, mean_of, posterior_waves, side_by_side
from .given import Inputs, checked_inputs
from .inputs import InputDistribution, outside
from .sources import Functions, WeightSpaceSource, source_of

CLOSED_FORM, SAMPLING = "closed form", "sampling"
_CENTRAL = (0.05, 0.95)


@dataclass(frozen=True)
class Analysis:
    """The functions of a model: ``waves`` where features are plane waves, else ``groups`` of values.

    Each group has T means, then draws. Waves have all means first, then all draws. ``outside`` has the shares of every
    input, and of its variance, outside the training inputs, (2, d).
    """

    names: tuple[str, ...]
    inputs: tuple[InputDistribution, ...]
    waves: list[WaveFunctions] | None
    groups: list[Functions]
    num_outputs: int | None
    outside: Tensor

    @property
    def method(self) -> str:
        """How results are computed: "closed form", or "sampling"."""
        return SAMPLING if self.waves is None else CLOSED_FORM

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Quantities (F, ...) of all groups in one tensor: the mean of those of their means, then those of draws."""
        count = self.num_outputs or 1
        means = torch.stack([part[:count] for part in parts]).mean(0)
        return torch.cat([means, *(part[count:] for part in parts)])

    def estimate(self, flat: Tensor, spread: Tensor | None = None) -> Estimate:
        """The estimate of a quantity ((1 + S) T, ...) of all functions, with those of their differences."""
        by_output = self._by_output(flat)
        return Estimate(by_output[0], by_output[1:], None if spread is None else self._by_output(spread)[1:])

    def _by_output(self, flat: Tensor) -> Tensor:
        by_output = flat.unflatten(0, (-1, self.num_outputs or 1))
        return by_output.squeeze(1) if self.num_outputs is None else by_output

    def of_waves(self, quantity: Callable[[WaveFunctions], Tensor]) -> Tensor:
        """A quantity (F, ...) of all functions, one set after the other."""
        if self.waves is None:
            raise ValueError(
                "expected Fourier features for derivatives in closed form, got features of another kind; approximate a "
                'shift-invariant kernel by method="fourier" or "fourier_orthogonal"'
            )
        return torch.cat([quantity(functions) for functions in self.waves])

    def of_functions(self, quantity: Callable[[Functions], Tensor]) -> Tensor:
        """A quantity (F, ...) of all functions by their values."""
        if self.waves is None:
            return self.joined([quantity(group) for group in self.groups])
        means = torch.tensor([one.mean for one in self.inputs], dtype=torch.float64)
        return self.of_waves(lambda waves: quantity(lambda x: waves.at(x - means)))


@torch.no_grad()
def analysis(model: Any, inputs: Inputs, num_functions: int) -> Analysis:
    """What there is to know about a model."""
    if isinstance(inputs, GaussianCopula):
        raise ValueError(
            "expected independent inputs, got a GaussianCopula: Sobol' indices, main effects and derivatives do not "
            "divide the variance of dependent ones; use shapley_effects"
        )
    by_name = checked_inputs(inputs)
    count = checks.positive_integer("num_functions", num_functions)
    source, distributions = source_of(model), tuple(by_name.values())
    center = torch.tensor([[d.mean for d in distributions]], dtype=torch.float64)
    source.moments(center)  # which raises where there is no fit, or of other inputs
    levels = torch.tensor(_CENTRAL, dtype=torch.float64)
    check_bounds(source.bounds, tuple(by_name), torch.stack([d.quantile(levels) for d in distributions], dim=-1))
    away = _outside(source.bounds, distributions)
    posterior = None
    if isinstance(source, WeightSpaceSource):
        posterior = posterior_waves(source.model, distributions, count)
    if posterior is None:
        groups = source.functions(count)
        width = sum(group(center).shape[-1] for group in groups) // (len(groups) + count)
        known = width if source.has_outputs or width > 1 else None
        return Analysis(tuple(by_name), distributions, None, groups, known, away)
    outputs = posterior.num_outputs if source.has_outputs or posterior.num_outputs > 1 else None
    is_one = len(posterior.means) == 1
    parts = (
        [side_by_side([*posterior.means, *posterior.draws])] if is_one else [mean_of(posterior.means), *posterior.draws]
    )
    return Analysis(tuple(by_name), distributions, parts, [], outputs, away)


def _outside(bounds: Tensor | None, inputs: Sequence[InputDistribution]) -> Tensor:
    """The shares of inputs and of their variances outside bounds (2, d), (2, d); zeros where there are no bounds."""
    if bounds is None or bounds.shape[-1] != len(inputs):
        return torch.zeros(2, len(inputs), dtype=torch.float64)
    shares = [outside(one, float(low), float(high)) for one, (low, high) in zip(inputs, bounds.mT, strict=True)]
    return torch.tensor(shares, dtype=torch.float64).mT


def check_bounds(bounds: Tensor | None, names: Sequence[str], central: Tensor) -> None:
    """Raise a ValueError for inputs farther outside the bounds of training than these are apart."""
    if bounds is None or bounds.shape != central.shape:
        return
    width = bounds[1] - bounds[0]
    is_far = (width > 0.0) & ((central[0] < bounds[0] - width) | (central[1] > bounds[1] + width))
    for column in is_far.nonzero().flatten().tolist()[:1]:
        (low, high), (begin, end) = bounds[:, column].tolist(), central[:, column].tolist()
        raise ValueError(
            f"expected {names[column]} near the training inputs, which lie between {low:g} and {high:g}, got an input "
            f"of which nine tenths are from {begin:.4g} to {end:.4g}; train on rows from there, or correct the "
            "distribution or its units (the model_ of an estimator takes standardized inputs, "
            "x_scaler_.transform(values))"
        )


def central_part(x: Tensor) -> Tensor:
    """Where the central part of every column of draws (N, d) begins and ends, (2, d), in float64 and on the CPU."""
    ranks = [round(level * (len(x) - 1)) for level in _CENTRAL]
    return x.detach().double().cpu().sort(0).values[ranks]


def checked_grid(grid: int | Tensor, inputs: Sequence[InputDistribution]) -> Tensor:
    """The values (G, d) of the inputs, equally spaced where only their number is given."""
    if not isinstance(grid, Tensor):
        count = checks.positive_integer("grid", grid)
        return torch.stack([distribution.grid(count) for distribution in inputs], dim=-1)
    values = checks.finite(checks.inputs(grid, len(inputs), "grid"), "grid")
    if values.dim() != 2:
        raise ValueError(f"expected grid of shape (G, {len(inputs)}), got {tuple(values.shape)}; pass one grid")
    return values.double().cpu()
