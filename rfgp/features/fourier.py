"""Random Fourier features of shift-invariant kernels."""

from __future__ import annotations

import copy
import math
from typing import Self

import scipy
import torch
from torch import Generator, Tensor

from .._support import checks
from .._support.torch_names import has_values
from ..linalg import fwht, next_power_of_two, sampling
from .base import EstimateVariance, FeatureMap
from .spectra import (
    Gaussian,
    HyperbolicSecant,
    IsotropicSpectrum,
    Laplace,
    Matern,
    Periodic,
    PowerWeighted,
    RationalQuadratic,
    SpectralMixture,
    Spectrum,
    WidenedGaussian,
)

STRUCTURES = ("independent", "orthogonal", "hadamard", "qmc")
"""How the frequencies of a map depend on each other."""
_BLOCK_BYTES = 2 * 2**20


class RandomFourier(FeatureMap):
    r"""Random Fourier features of a shift-invariant kernel of scaled inputs.

    .. math:: \phi(x)_\ell = \exp(\mathrm{i} w_\ell^\top x) / \sqrt D \qquad \text{or} \qquad
        \sqrt{2 / D}\, [\cos(w_\ell^\top x), \sin(w_\ell^\top x)]_{\ell \le D/2}

    Other parameters are those of every :class:`FeatureMap`.

    :param spectrum: the spectral density of the frequencies, such as Matern(nu); default: Gaussian().
    :param structure: "independent" frequencies; "orthogonal" ones in blocks of d (isotropic spectra only);
        "hadamard": three Hadamard transforms with random signs per block, faster for large d and biased for small d; or
        "qmc": quantiles of scrambled Sobol points, best for few inputs.
    :raises ValueError: for an odd width of the real map, an unknown structure, or a spectrum that does not allow it.

    Source: T 2.1, Eq. 2.4 (Rahimi and Recht, 2007); Yu et al. (2016) for orthogonal frequencies.

    >>> features = RandomFourier(3, 100, generator=torch.Generator().manual_seed(0))
    >>> features(torch.ones(5, 3)).shape
    torch.Size([5, 100])
    """

    def __init__(
        self,
        input_dim: int,
        num_features: int,
        spectrum: Spectrum | None = None,
        structure: str = "independent",
        is_complex: bool = False,
        *,
        generator: Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_dim, num_features, is_complex)
        self.spectrum = Gaussian() if spectrum is None else spectrum
        if not isinstance(self.spectrum, Spectrum):
            raise ValueError(f"expected a Spectrum such as Gaussian(), got {spectrum!r}; see rfgp.features.spectra")
        self.structure = checks.choice("structure", structure, STRUCTURES)
        if structure == "qmc" and not self.spectrum.has_quantiles:
            raise ValueError(
                f"expected a spectrum with inverse distribution functions for qmc, got {self.spectrum}; use "
                'structure="independent", method="fourier"'
            )
        if structure in ("orthogonal", "hadamard") and not isinstance(self.spectrum, IsotropicSpectrum):
            raise ValueError(
                f'expected an isotropic spectrum for {structure} frequencies, got {self.spectrum}; use "independent"'
            )
        if structure == "hadamard" and not self.spectrum.has_moments:
            raise ValueError(
                f'expected "independent" or "orthogonal" for structure with {self.spectrum}, got "hadamard"; use these'
            )
        if not is_complex and self.num_features % 2:
            raise ValueError(
                f"expected an even num_features for cosines and sines, got {num_features}; use {num_features + 1}"
            )
        self.is_unbiased = structure != "hadamard"
        self.has_unbiased_columns = self.is_unbiased and self.is_complex
        self.padded_dim = next_power_of_two(self.input_dim)
        self._register_weights(generator, dtype)

    def columnwise(self) -> RandomFourier | None:
        """A complex map with a copy of the frequencies; None for Hadamard ones."""
        if self.has_unbiased_columns or not self.is_unbiased:
            return self if self.has_unbiased_columns else None
        twin = copy.deepcopy(self)
        twin.num_features, twin.is_complex, twin.has_unbiased_columns = self.num_frequencies, True, True
        return twin

    @property
    def num_frequencies(self) -> int:
        """The number of frequencies: D of a complex map, D/2 of a real one."""
        return self.num_features if self.is_complex else self.num_features // 2

    def _draw(self, generator: Generator | None) -> dict[str, Tensor]:
        width, dim = self.num_frequencies, self.input_dim
        if self.structure == "qmc":
            return self.spectrum.from_uniforms(sampling.sobol(width, self.spectrum.num_uniforms(dim), generator))
        if self.structure == "independent" or not isinstance(self.spectrum, IsotropicSpectrum):
            return self.spectrum.draw(width, dim, generator)
        if self.structure == "orthogonal":
            directions = sampling.orthogonal_directions(width, dim, generator)
            return self.spectrum.with_directions(directions, dim, generator)
        blocks = -(-width // self.padded_dim)
        radii = self.spectrum.with_directions(
            sampling.uniform((width, 1), generator).sign(), self.padded_dim, generator
        )
        return radii | {"signs": sampling.rademacher((3, self.padded_dim, blocks), generator)}

    def frequencies(self, **hyperparameters: Tensor) -> Tensor:
        """The frequencies (..., m, d) of scaled inputs, given the hyperparameters of the spectrum."""
        frequencies, _ = self.spectrum.frequencies(dict(self.named_buffers()), **hyperparameters)
        if self.structure != "hadamard":
            return frequencies
        identity = torch.eye(self.input_dim, dtype=frequencies.dtype, device=frequencies.device)
        return self._phases(identity, frequencies).mT

    def waves(self, **hyperparameters: Tensor) -> tuple[Tensor, Tensor]:
        frequencies = self.frequencies(**hyperparameters)
        _, amplitude = self.spectrum.frequencies(dict(self.named_buffers()), **hyperparameters)
        ones = frequencies.new_ones(self.num_frequencies) if amplitude is None else amplitude
        return frequencies, ones / math.sqrt(self.num_frequencies)

    def _phases(self, x: Tensor, frequencies: Tensor) -> Tensor:
        """Inner products of inputs (..., N, d) with all frequencies, (..., N, D)."""
        if self.structure != "hadamard":
            return x @ frequencies.mT
        signs: Tensor = self.get_buffer("signs")
        block = torch.nn.functional.pad(x, (0, self.padded_dim - self.input_dim)).unsqueeze(-1)
        for sign in signs:
            block = fwht(sign * block, dim=-2) / math.sqrt(self.padded_dim)
        return block.mT.flatten(-2)[..., : self.num_frequencies] * frequencies[..., 0].unsqueeze(-2)

    def rows(self, x: Tensor, **hyperparameters: Tensor) -> Tensor:
        frequencies, amplitude = self.spectrum.frequencies(dict(self.named_buffers()), **hyperparameters)
        width = self.num_frequencies
        scale: Tensor | float = 1.0 / math.sqrt(width)
        tracked = x.requires_grad or frequencies.requires_grad
        if amplitude is not None:
            scale, tracked = scale * amplitude.unsqueeze(-2), tracked or amplitude.requires_grad
        if frequencies.dim() > 2 or (tracked and torch.is_grad_enabled()) or not has_values():
            phases = self._phases(x, frequencies)
            return torch.cat([phases.cos() * scale, phases.sin() * scale], dim=-1)
        flat = x.reshape(-1, self.input_dim)
        rows = flat.new_empty(len(flat), 2 * width)
        size = max(_BLOCK_BYTES // (rows.shape[1] * rows.element_size()), 32)
        for block, out in zip(flat.split(size), rows.split(size), strict=True):
            phases = self._phases(block, frequencies)
            torch.sin(phases, out=out[:, width:])
            torch.cos(phases, out=out[:, :width])
            out.unflatten(-1, (2, width)).mul_(scale)
        return rows.reshape(*x.shape[:-1], 2 * width)

    def target(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> Tensor:
        return self.spectrum.kernel(self._check(x), self._check(y, "y"), 1.0, **hyperparameters)

    def moments(self, x: Tensor, y: Tensor, **hyperparameters: Tensor) -> EstimateVariance | None:
        r"""Variance and pseudo-variance of the kernel estimate from D frequencies (T 2.1).

        .. math:: V = \frac{k(0)^2 - k(\tau)^2}{D} + \frac{c}{D^2} C, \quad
            P = \frac{k(0) k(2 \tau) - k(\tau)^2}{D} + \frac{c}{D^2} C

        and their mean for the real map. C = 0 for independent frequencies; for orthogonal Gaussian ones
        :math:`C = {}_1F_1(d; d/2; -\|\tau\|^2/2) - k(\tau)^2`, and c counts ordered pairs of frequencies in a block.
        None for other orthogonal frequencies, for Sobol ones, and under a change of measure.
        """
        self._check_pair(x, y)
        if not self.spectrum.has_moments:
            return None
        if self.structure in ("hadamard", "qmc"):
            return None
        if self.structure == "orthogonal" and not isinstance(self.spectrum, Gaussian):
            return None
        kernel, twice = (self.spectrum.kernel(x, y, factor, **hyperparameters) for factor in (1.0, 2.0))
        zero, width, square = self.spectrum.at_zero(**hyperparameters), self.num_frequencies, kernel.square()
        covariance = torch.zeros_like(kernel)
        if self.structure == "orthogonal":
            full, rest = divmod(width, self.input_dim)
            pairs = full * self.input_dim * (self.input_dim - 1) + rest * (rest - 1)
            covariance = pairs / width**2 * (_orthogonal_pair(kernel, self.input_dim) - square)
        variance = (zero * zero - square) / width + covariance
        pseudo_variance = (zero * twice - square) / width + covariance
        if self.is_complex:
            return EstimateVariance(variance, pseudo_variance)
        mean = 0.5 * (variance + pseudo_variance)
        return EstimateVariance(mean, mean)

    @property
    def operations(self) -> float:
        """D d for the inner products (d log d per block for "hadamard") and about 10 for a sine or cosine."""
        width, dim = self.num_frequencies, self.padded_dim
        inner = width * self.input_dim
        if self.structure == "hadamard":
            inner = 3 * -(-width // dim) * dim * max(1, int(math.log2(dim)))
        return inner + 20.0 * width

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, spectrum={self.spectrum}, structure={self.structure!r}"

    @classmethod
    def examples(cls) -> list[Self]:
        spectra: list[Spectrum] = [Gaussian(), Matern(0.5), Matern(1.5), Matern(2.5), RationalQuadratic(1.3)]
        others: list[Spectrum] = [Laplace(), HyperbolicSecant(), SpectralMixture(2), Periodic()]
        others += [PowerWeighted(), PowerWeighted(Matern(2.5), (0, 1)), WidenedGaussian()]
        cases = [(3, 8, s, "independent") for s in spectra + others]
        cases += [(3, 16, s, structure) for s in spectra for structure in ("orthogonal", "hadamard")]
        cases += [(3, 8, s, "qmc") for s in spectra + others]
        cases += [(dim, width, Gaussian(), "orthogonal") for dim, width in ((4, 4), (1, 6), (5, 8))]
        return [
            cls(*case, is_complex, generator=torch.Generator().manual_seed(case[1]))
            for case in cases
            for is_complex in (False, True)
        ]


def _orthogonal_pair(kernel: Tensor, dim: int) -> Tensor:
    """The mean of exp(i (w - v).tau) over orthogonal Gaussian frequencies w and v, from the Gaussian kernel of tau."""
    half_square = -kernel.detach().to("cpu", torch.float64).clamp_min(1e-300).log()
    values = scipy.special.hyp1f1(float(dim), 0.5 * dim, -half_square.numpy())
    return torch.as_tensor(values).to(kernel)
