"""Periods that targets have along their inputs, by a periodogram, as starting values of kernels that have periods."""

from __future__ import annotations

import math

import numpy as np
import scipy
import torch
from gpytorch.kernels import CosineKernel, Kernel, PeriodicKernel, SpectralMixtureKernel
from torch import Tensor

from .._support.constrained import set_within
from ..approximation.input_scales import leaves

_ROWS, _FREQUENCIES, _OUTPUTS = 1000, 20_000, 4
_OVERSAMPLING = 5
"""Frequencies for each one that the inputs resolve."""


def resolutions(kernel: Kernel, x: Tensor) -> dict[int, Tensor]:
    """By the identity of a raw parameter that is a period or a frequency: the range (d,) of the inputs that it is of.

    Two periods p and p + p^2 / range cannot be told apart, which is the step in which the evidence varies.
    """
    ranges = {}
    for leaf, columns in leaves(kernel, x):
        if (name := _parameter(leaf)) is not None:
            values = columns.detach().reshape(-1, columns.shape[-1]).double()
            ranges[id(getattr(leaf, f"raw_{name}"))] = values.amax(0) - values.amin(0)
    return ranges


@torch.no_grad()
def start_periods(kernel: Kernel, x: Tensor, outputs: Tensor) -> bool:
    """Set learned periods and frequencies to the peaks of the periodogram of targets (N, T); whether there are any."""
    found = False
    for leaf, columns in leaves(kernel, x):
        name = _parameter(leaf)
        raw = None if name is None else getattr(leaf, f"raw_{name}")
        if name is None or raw is None or not raw.requires_grad:
            continue
        flat = columns.reshape(-1, columns.shape[-1])
        if len(flat) != len(outputs) or outputs.is_complex():
            continue
        if isinstance(leaf, SpectralMixtureKernel):
            peaks = [_peaks(column, outputs, leaf.num_mixtures) for column in flat.unbind(-1)]
            if len(peaks) != 1 or not peaks[0]:
                continue
            frequencies = torch.tensor([peaks[0][q % len(peaks[0])][0] for q in range(leaf.num_mixtures)])
            width = 1.0 / (2.0 * math.pi * float(flat.max() - flat.min()))
            set_within(leaf, name, frequencies.reshape(raw.shape).double())
            set_within(leaf, "mixture_scales", torch.full(raw.shape, width, dtype=torch.float64))
        else:
            best = [(_peaks(column, outputs, 1) or [(0.0, 0.0)])[0] for column in flat.unbind(-1)]
            if raw.shape[-1] == 1:
                best = [max(best, key=lambda peak: peak[1])]
            if any(frequency == 0.0 for frequency, _ in best) or raw.shape[-1] != len(best):
                continue
            waves = 0.5 if isinstance(leaf, CosineKernel) else 1.0  # of which GPyTorch has cos(pi |x - z| / p)
            periods = torch.tensor([waves / frequency for frequency, _ in best], dtype=torch.float64)
            set_within(leaf, name, periods.expand(raw.shape))
        found = True
    return found


def _parameter(kernel: Kernel) -> str | None:
    """The name of the periods or the frequencies of a kernel."""
    if isinstance(kernel, PeriodicKernel | CosineKernel):
        return "period_length"
    return "mixture_means" if isinstance(kernel, SpectralMixtureKernel) else None


def _peaks(column: Tensor, outputs: Tensor, count: int) -> list[tuple[float, float]]:
    """The strongest frequencies along one input (N,), each after the waves before it are taken out, and their power.

    Source: Lomb (1976); Scargle (1982).
    """
    x, y = column.detach().double().cpu().numpy(), outputs.detach().double().cpu().numpy()
    values = np.unique(x)
    if len(values) < 4:
        return []
    span = values[-1] - values[0]
    fastest = 0.5 / np.median(np.diff(values))
    number = int(min(_OVERSAMPLING * span * fastest, _FREQUENCIES))
    if number <= _OVERSAMPLING:
        return []
    frequencies = np.arange(_OVERSAMPLING, number + 1) / (_OVERSAMPLING * span)
    some = np.random.default_rng(0).permutation(len(x))[:_ROWS]
    columns = [(x[some], y[some, t]) for t in range(min(y.shape[-1], _OUTPUTS))]
    rows = [(at[~np.isnan(of)] - values[0], of[~np.isnan(of)]) for at, of in columns]
    rows = [(at, _without(np.stack([np.ones_like(at), at / span], -1), of)) for at, of in rows if len(of) > 3]
    peaks: list[tuple[float, float]] = []
    for _ in range(count):
        power = np.zeros(len(frequencies))
        for at, of in rows:
            whole = float(of @ of)
            if whole > 0.0:
                power += 2.0 * scipy.signal.lombscargle(at, of, 2.0 * np.pi * frequencies) / whole
        best = int(power.argmax())
        if power[best] <= 0.0:
            break
        peaks.append((float(frequencies[best]), float(power[best])))
        phases = [(2.0 * np.pi * frequencies[best]) * at for at, _ in rows]
        rows = [
            (at, _without(np.stack([np.cos(phase), np.sin(phase)], -1), of))
            for phase, (at, of) in zip(phases, rows, strict=True)
        ]
    return peaks


def _without(basis: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What is left of y (N,) after least squares on a basis (N, k)."""
    return np.asarray(y - basis @ np.linalg.lstsq(basis, y, rcond=None)[0])
