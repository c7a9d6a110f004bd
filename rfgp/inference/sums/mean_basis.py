"""Mean functions that are linear in their parameters, so that they enter through sums over the data."""

from __future__ import annotations

import torch
from gpytorch.means import ConstantMean, LinearMean, Mean, MultitaskMean, ZeroMean
from torch import Tensor

from .additive_mean import AdditiveMean


def check_mean(mean: Mean) -> Mean:
    """Return the mean function, or raise a ValueError where it is not linear in its parameters."""
    if isinstance(mean, MultitaskMean):
        for part in mean.base_means:
            if isinstance(part, MultitaskMean):
                raise ValueError("expected a MultitaskMean of means of one output, got another inside; list its parts")
            if isinstance(part, AdditiveMean):
                raise ValueError(
                    "expected an AdditiveMean for one output, got one in a MultitaskMean; subtract it from y"
                )
            check_mean(part)
        if len({part.bias is None for part in mean.base_means if isinstance(part, LinearMean)}) > 1:
            raise ValueError("expected LinearMeans that all have a bias or all have none, got both; make them alike")
        return mean
    if type(mean) not in (ZeroMean, ConstantMean, LinearMean, AdditiveMean):
        raise ValueError(
            "expected a ZeroMean, ConstantMean or LinearMean, or a MultitaskMean of these, got "
            f"{type(mean).__name__}; subtract others from y"
        )
    return mean


def check_output_mean(mean: Mean, num_outputs: int) -> None:
    """Raise a ValueError where a checked mean function is not one of so many outputs, or a batch of them."""
    parts = list(mean.base_means) if isinstance(mean, MultitaskMean) else [mean]
    if isinstance(mean, MultitaskMean) and len(parts) != num_outputs:
        raise ValueError(
            f"expected a MultitaskMean of {num_outputs} outputs as the kernel has, got one of {len(parts)}; correct it"
        )
    for part in parts:
        if batch_shape(part):
            raise ValueError(
                f"expected a mean without batch dimensions, got {tuple(batch_shape(part))}; use a MultitaskMean"
            )


def basis(mean: Mean, x: Tensor) -> Tensor:
    """The columns (N, k) of which the mean function at x (N, d) is a linear combination."""
    if isinstance(mean, ZeroMean):
        return x.new_zeros(len(x), 0)
    ones = x.new_ones(len(x), 1)
    if isinstance(mean, AdditiveMean):
        return torch.cat([ones, mean.function(x).unsqueeze(-1)], dim=-1)
    if isinstance(mean, ConstantMean):
        return ones
    if isinstance(mean, MultitaskMean):
        return torch.cat([basis(part, x) for part in _kinds(mean)], dim=-1) if _kinds(mean) else x.new_zeros(len(x), 0)
    if mean.weights.shape[-2] != x.shape[-1]:
        raise ValueError(
            f"expected x with {mean.weights.shape[-2]} columns as the LinearMean has, got {x.shape[-1]}; "
            "correct one of the two"
        )
    return x if mean.bias is None else torch.cat([x, ones], dim=-1)


def mean_values(mean: Mean, x: Tensor) -> Tensor:
    """The mean function at x (..., N, d), (..., N, T)."""
    values: Tensor = mean(x)
    return values if isinstance(mean, MultitaskMean) else values.unsqueeze(-1)


def num_fixed(mean: Mean) -> int:
    """How many of the last columns of the basis have coefficients that are not learned."""
    return int(isinstance(mean, AdditiveMean))


def without_fixed(mean: Mean, x: Tensor, y: Tensor) -> tuple[Mean, Tensor]:
    """The part of the mean function that is learned, and targets (N, ...) at x (N, d) less the rest."""
    if not isinstance(mean, AdditiveMean):
        return mean, y
    return mean.learned, y - mean.function(x).to(y.dtype).reshape(-1, *[1] * (y.dim() - 1))


def num_columns(mean: Mean) -> int:
    """The number k of columns of the basis of the mean function."""
    if isinstance(mean, MultitaskMean):
        return sum(num_columns(part) for part in _kinds(mean))
    return _of_one(mean, torch.device("cpu")).shape[-1]


def _kinds(mean: MultitaskMean) -> list[Mean]:
    """One mean of each kind that has coefficients, constants before linear ones."""
    by_kind = [[part for part in mean.base_means if isinstance(part, kind)][:1] for kind in (ConstantMean, LinearMean)]
    return [part for parts in by_kind for part in parts]


def coefficients(mean: Mean, num_outputs: int, device: torch.device) -> Tensor:
    """The coefficients (k, T), or (C, k, T) for classes, of the mean function of every output, in float64."""
    if not isinstance(mean, MultitaskMean):
        of_one = _of_one(mean, device).unsqueeze(-1)
        return of_one.expand(*of_one.shape[:-1], num_outputs)
    kinds, columns = _kinds(mean), []
    for part in mean.base_means:
        values = [_of_one(part if type(part) is type(kind) else kind, device) for kind in kinds]
        pieces = [v if type(part) is type(k) else torch.zeros_like(v) for v, k in zip(values, kinds, strict=True)]
        columns.append(torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.float64, device=device))
    return torch.stack(columns, dim=-1)


def _of_one(mean: Mean, device: torch.device) -> Tensor:
    """The coefficients (k,) or (C, k) of the mean function of one output, in float64."""
    if isinstance(mean, ZeroMean):
        return torch.zeros(0, dtype=torch.float64, device=device)
    if isinstance(mean, AdditiveMean):
        return torch.nn.functional.pad(mean.constant.double().unsqueeze(-1), (0, 1), value=1.0)
    if isinstance(mean, ConstantMean):
        return mean.constant.double().unsqueeze(-1)
    weights = mean.weights.double().squeeze(-1)
    return weights if mean.bias is None else torch.cat([weights, mean.bias.double()], dim=-1)


def constant_part(mean: Mean, num_outputs: int, device: torch.device) -> Tensor:
    """The constants (T,) of a mean function, in float64; a ValueError where it has others."""
    parts = list(mean.base_means) if isinstance(mean, MultitaskMean) else [mean] * num_outputs
    other = next((part for part in parts if isinstance(part, LinearMean | AdditiveMean)), None)
    if other is not None:
        raise ValueError(
            f"expected a zero or constant mean for operators, got a {type(other).__name__}; subtract it from y"
        )
    zero = torch.zeros((), dtype=torch.float64, device=device)
    return torch.stack(
        [part.constant.double().reshape(()) if isinstance(part, ConstantMean) else zero for part in parts]
    )


def batch_shape(mean: Mean) -> torch.Size:
    """The batch shape of the parameters of the mean function."""
    if isinstance(mean, MultitaskMean):
        return torch.Size()
    return _of_one(mean, torch.device("cpu")).shape[:-1]
