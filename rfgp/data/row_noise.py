"""What is known of the noise of rows: variances, and weights that divide the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._support import checks


@dataclass(frozen=True)
class WeightedNoise:
    """Noise that is divided by weights (N,): known variances, or None where the likelihood has them."""

    weights: Tensor
    variances: Tensor | None = None

    def __getitem__(self, rows: Any) -> WeightedNoise:
        return WeightedNoise(self.weights[rows], None if self.variances is None else self.variances[rows])


RowNoise = Tensor | WeightedNoise | None
"""The noise beside a batch of rows."""


def weighted(noise: Any, weights: Any, x: Any) -> Any:
    """The noise of rows with weights (N,), checked; the noise itself where there are no weights."""
    if weights is None:
        return noise
    if not isinstance(x, Tensor):
        raise ValueError(
            f"expected a torch.Tensor for x beside weights, got {type(x).__name__}; use torch.as_tensor, or give "
            "batches (x, y, noise) with the noise divided by the weights"
        )
    checks.one_per_row(checks.floating(weights, "weights"), checks.tensor(x, "x"), "weights")
    values = checks.finite(weights.detach(), "weights").to(x.device).double()
    if bool((values <= 0).any()):
        raise ValueError(
            f"expected positive weights, got a smallest one of {float(values.min()):g}; leave rows of weight zero out"
        )
    return WeightedNoise(values, noise)


def noise_parts(noise: Any) -> tuple[Any, Tensor | None]:
    """The variances and the weights of rows."""
    return (noise.variances, noise.weights) if isinstance(noise, WeightedNoise) else (noise, None)


def joined_noise(noises: Sequence[Any]) -> Any:
    """The noise of the rows of several batches, one after the other."""
    if len({tuple(part is None for part in noise_parts(noise)) for noise in noises}) > 1:
        raise ValueError("expected noise beside all batches or none, got some; give it to all")
    variances, weights = (
        None if each[0] is None else torch.cat(each) for each in zip(*map(noise_parts, noises), strict=True)
    )
    return variances if weights is None else WeightedNoise(weights, variances)
