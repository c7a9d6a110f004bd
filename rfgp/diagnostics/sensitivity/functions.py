"""The posterior mean and functions drawn from the posterior, as sums of plane waves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...inference.posterior.draws import drawn_weights
from ...inference.sums.mean_basis import mean_values
from ...models import WeightSpaceGP
from .inputs import InputDistribution
from .waves import PlaneWaves, plane_waves


@dataclass(frozen=True)
class WaveFunctions:
    r"""Functions of one set of plane waves, with inputs that are centered at their means.

    .. math:: f(x) = b + g^\top (x - E X) + \mathrm{Re} \sum_j c_j e^{\mathrm{i} \omega_j^\top (x - E X)}

    with frequencies (m, d), complex coefficients c (m, F), slopes g (d, F) and constants b (F,).
    """

    frequency: Tensor
    coefficient: Tensor
    slope: Tensor
    constant: Tensor

    def at_phase(self, phase: Tensor) -> Tensor:
        r"""The waves' part :math:`\mathrm{Re} \sum_j c_j e^{i \phi_{nj}}` at phases (N, m), (N, F)."""
        return phase.cos() @ self.coefficient.real - phase.sin() @ self.coefficient.imag

    def at(self, deviations: Tensor) -> Tensor:
        """The values (N, F) at inputs less their means, (N, d)."""
        return self.constant + deviations @ self.slope + self.at_phase(deviations @ self.frequency.mT)


def side_by_side(parts: Sequence[WaveFunctions]) -> WaveFunctions:
    """Functions of the same waves as one set of functions."""
    return WaveFunctions(
        parts[0].frequency,
        torch.cat([part.coefficient for part in parts], dim=-1),
        torch.cat([part.slope for part in parts], dim=-1),
        torch.cat([part.constant for part in parts], dim=-1),
    )


def differences(functions: WaveFunctions, num_outputs: int) -> WaveFunctions:
    """The differences of functions from the first T ones."""

    def part(values: Tensor) -> Tensor:
        first = values[..., :num_outputs]
        return values - torch.cat([first] * (values.shape[-1] // num_outputs), dim=-1)

    return WaveFunctions(
        functions.frequency, part(functions.coefficient), part(functions.slope), part(functions.constant)
    )


def mean_of(parts: Sequence[WaveFunctions]) -> WaveFunctions:
    """The means of functions of several sets of waves."""
    share = 1.0 / len(parts)
    return WaveFunctions(
        torch.cat([part.frequency for part in parts]),
        share * torch.cat([part.coefficient for part in parts]),
        share * torch.stack([part.slope for part in parts]).sum(0),
        share * torch.stack([part.constant for part in parts]).sum(0),
    )


@dataclass(frozen=True)
class Posterior:
    """The posterior means of T functions for every draw of the features, and S T functions drawn, as plane waves."""

    means: list[WaveFunctions]
    draws: list[WaveFunctions]
    num_outputs: int


@torch.no_grad()
def posterior_waves(model: WeightSpaceGP, inputs: Sequence[InputDistribution], num_functions: int) -> Posterior | None:
    """The posterior by plane waves; None where the features are something else."""
    models = [model, *model.further_draws.of(model)]
    shares = [num_functions // len(models) + (i < num_functions % len(models)) for i in range(len(models))]
    means, draws = [], []
    for part, share in zip(models, shares, strict=True):
        waves = plane_waves(part.covar_module, len(inputs))
        if waves is None or part.noise.is_complex:
            return None
        weights, factor = part.weight_posterior(), part.regression(is_frozen=True).factor()
        means.append(_functions(part, waves, factor.scalar_weights(weights.mean), inputs))
        if share:
            drawn = factor.scalar_weights(drawn_weights(weights, share, False))
            draws.append(_functions(part, waves, drawn, inputs))
    return Posterior(means, draws, means[0].constant.shape[-1])


def _functions(model: Any, waves: PlaneWaves, weights: Tensor, inputs: Sequence[InputDistribution]) -> WaveFunctions:
    """The functions of weights (..., n, T, S) of scalar features, those of one draw together."""
    if weights.dim() > 3:  # classes, each with one output
        weights = weights.squeeze(-2).movedim(0, 1)
    center = torch.tensor([distribution.mean for distribution in inputs], dtype=torch.float64)
    outputs, by_column = weights.shape[-2], weights.cpu().mT.flatten(-2)
    frequency, index = waves.frequency.unique(dim=0, return_inverse=True)
    terms = waves.amplitude.unsqueeze(-1) * by_column[waves.column]
    coefficient = terms.new_zeros(len(frequency), terms.shape[-1]).index_add(0, index, terms)
    coefficient = coefficient * torch.exp(1j * (frequency @ center)).unsqueeze(-1)
    slope = waves.slope.mT @ by_column.real
    like = next((p for p in model.covar_module.parameters()), center)
    probes = torch.cat([torch.zeros(1, len(center)), torch.eye(len(center))]).to(like)
    mean = mean_values(model.mean_module, probes).double().cpu()
    mean = mean.squeeze(-1).mT if mean.dim() > 2 else mean  # (1 + d, T)
    count = slope.shape[-1] // outputs
    slope = slope + (mean[1:] - mean[0]).expand(-1, outputs).repeat(1, count)
    constant = mean[0].expand(outputs).repeat(count)
    return WaveFunctions(frequency, coefficient, slope, constant + center @ slope)
