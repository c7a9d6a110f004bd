"""The trace measure of a matrix-valued spectral density, under which its features are bounded."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import scipy
import torch
from torch import Generator, Tensor

from ..._support import checks
from ...linalg import sampling
from .base import Spectrum

_POINTS = 2**14


@dataclass(frozen=True)
class TraceMeasure(Spectrum):
    r"""The trace measure of a matrix-valued spectral density, drawn by rejection from normal proposals.

    .. math:: p(w) = \frac{\mathrm{tr}\, \mu(w)}{\mathrm{tr}\, K(0)}, \qquad
        K(\tau) = \int e^{\mathrm{i} w^\top \tau} \mu(w)\, dw, \qquad
        \mathrm{tr}\, K(0) = \int \mathrm{tr}\, \mu(w)\, dw

    Features under p are bounded. The envelope and the integrals are taken at quasi-random points.

    :param density: takes frequencies (m, d) and returns :math:`\mu`, (m, T, T), Hermitian positive semidefinite.
    :param proposal_scale: the standard deviation of the proposals in every coordinate; as wide as the density or wider.
    :raises ValueError: for a density that is not finite, Hermitian and positive semidefinite, or rarely met by
        proposals.

    Source: M Theorem 9, Corollary 10.

    >>> identity = torch.eye(2, dtype=torch.float64)
    >>> spectrum = TraceMeasure(lambda w: torch.exp(-w.square().sum(-1))[:, None, None] * identity, dim=2)
    >>> sorted(spectrum.draw(8, 2, torch.Generator().manual_seed(0)))
    ['amplitude', 'weight']
    """

    has_moments: ClassVar = False
    density: Callable[[Tensor], Tensor]
    dim: int
    proposal_scale: float = field(default=1.0)

    def __post_init__(self) -> None:
        if not callable(self.density) or isinstance(self.density, type):
            raise ValueError(f"expected a function of frequencies for density, got {self.density!r}; return mu(w)")
        object.__setattr__(self, "dim", checks.positive_integer("dim", self.dim))
        object.__setattr__(self, "proposal_scale", checks.positive("proposal_scale", self.proposal_scale))
        values = checks.tensor(self.density(self._points), "density(w)")
        if values.dim() != 3 or values.shape[-1] != values.shape[-2] or len(values) != _POINTS:
            raise ValueError(
                f"expected a density of shape (m, T, T) for m frequencies, got {tuple(values.shape)}; correct it"
            )
        if not bool(torch.isfinite(values).all()) or not torch.allclose(values, values.mH, atol=1e-10):
            raise ValueError("expected a finite Hermitian density, got another; correct it")
        spectrum = torch.linalg.eigvalsh(values)
        if float(spectrum.min()) < -1e-8 * float(spectrum.max()) or not float(spectrum.max()) > 0:
            raise ValueError(
                f"expected a positive semidefinite density that is not zero, got eigenvalues from "
                f"{float(spectrum.min()):.3g} to {float(spectrum.max()):.3g}; correct it"
            )
        if not self._acceptance > 0.01:
            raise ValueError(
                f"expected proposals that meet the density, got a scale of {self.proposal_scale:.3g} of which "
                f"{100 * self._acceptance:.2g} % are accepted; choose it nearer to the density's width"
            )

    @functools.cached_property
    def _points(self) -> Tensor:
        """Quasi-random normal frequencies of the proposal's scale, (m, d)."""
        sobol = scipy.stats.qmc.Sobol(self.dim, seed=np.random.default_rng(0)).random(_POINTS)
        return self.proposal_scale * torch.as_tensor(scipy.special.ndtri(np.clip(sobol, 1e-12, 1 - 1e-12)))

    def _ratio(self, w: Tensor) -> Tensor:
        """The trace of the density over that of the proposals, (m,)."""
        trace = self.density(w).diagonal(dim1=-2, dim2=-1).sum(-1)
        log_proposal = -0.5 * (w / self.proposal_scale).square().sum(-1)
        log_constant = -self.dim * math.log(self.proposal_scale * math.sqrt(2.0 * math.pi))
        return (trace.real if trace.is_complex() else trace).clamp_min(0.0) * torch.exp(-log_proposal - log_constant)

    @functools.cached_property
    def _envelope(self) -> float:
        return float(self._ratio(self._points).max())

    @functools.cached_property
    def _acceptance(self) -> float:
        ratio = self._ratio(self._points)
        return float((ratio / self._envelope).clamp_max(1.0).mean()) if self._envelope > 0 else 0.0

    def draw(self, width: int, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        if dim != self.dim:
            raise ValueError(
                f"expected inputs of {self.dim} columns as the density has, got {dim}; correct one of them"
            )
        accepted: list[Tensor] = []
        while sum(len(part) for part in accepted) < width:
            proposals = self.proposal_scale * sampling.gaussian((2 * width + 64, dim), generator)
            limit = sampling.uniform((len(proposals),), generator) * self._envelope
            accepted.append(proposals[limit < self._ratio(proposals)])
        frequencies = torch.cat(accepted)[:width]
        excess = (self._ratio(frequencies) / self._envelope).clamp_min(1.0)
        total = self._acceptance * self._envelope
        return {"weight": frequencies, "amplitude": (total * excess).sqrt()}

    def frequencies(self, base_draws: dict[str, Tensor], **hyperparameters: Tensor) -> tuple[Tensor, Tensor | None]:
        return base_draws["weight"], base_draws["amplitude"]

    def kernel(self, x: Tensor, y: Tensor, factor: float = 1.0, **hyperparameters: Tensor) -> Tensor:
        return self.covariance(factor * (x.unsqueeze(-2) - y.unsqueeze(-3))).diagonal(dim1=-2, dim2=-1).sum(-1)

    def at_zero(self, **hyperparameters: Tensor) -> float:
        return float(self._ratio(self._points).mean())

    def covariance(self, difference: Tensor) -> Tensor:
        """The kernel K at differences (..., d), (..., T, T), by quasi-random quadrature of 2^14 points."""
        points = self._points.to(difference)
        density = self.density(self._points)
        trace = density.diagonal(dim1=-2, dim2=-1).sum(-1)
        weights = self._ratio(self._points) / (trace.real if trace.is_complex() else trace).clamp_min(1e-300)
        matrices = (weights[:, None, None] * density / _POINTS).to(difference.dtype.to_complex())
        flat = difference.reshape(-1, self.dim)
        parts = []
        for rows in flat.split(256):
            phases = rows @ points.mT
            cosine, sine = phases.cos(), phases.sin()
            real, imaginary = matrices.real.flatten(1), matrices.imag.flatten(1)
            parts.append(cosine @ real - sine @ imaginary)
        size = density.shape[-1]
        return torch.cat(parts).reshape(*difference.shape[:-1], size, size)
