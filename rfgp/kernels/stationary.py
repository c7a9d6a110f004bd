"""Exact kernels that are given by their spectral density: their values and their Fourier features follow from it."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

from gpytorch.kernels import Kernel
from torch import Tensor

from ..features import Spectrum
from .checked import CheckedKernel


class StationaryKernel(CheckedKernel, Kernel, abc.ABC):
    r"""A kernel of scaled inputs z(x) that is given by its spectral density.

    .. math:: k(x, y) = E[a^2 \exp(\mathrm{i} w^\top (z(x) - z(y)))]

    A subclass defines the ``spectrum`` of the frequencies w; :func:`rfgp.approximate` takes it as it is.

    >>> import torch
    >>> from rfgp.features import Gaussian
    >>> class MyKernel(StationaryKernel):
    ...     spectrum = Gaussian()
    >>> MyKernel(ard_num_dims=2)(torch.zeros(4, 2)).shape
    torch.Size([4, 4])
    """

    has_lengthscale = True
    settings: ClassVar[tuple[str, ...]] = ()
    """Names of attributes other than tensors and parts, that a loaded state has to match."""

    @property
    @abc.abstractmethod
    def spectrum(self) -> Spectrum:
        """The spectral density, of scaled inputs."""

    def scaled(self, x: Tensor) -> Tensor:
        """The inputs (..., N, d) in units in which the kernel has that spectral density; differentiable."""
        return x / self.lengthscale

    def hyperparameters(self) -> dict[str, Tensor]:
        """Parameters that the spectral density depends on; differentiable."""
        return {}

    @property
    def is_stationary(self) -> bool:
        return True

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        left, right = self.scaled(x1), self.scaled(x2)
        if not diag:
            return self.spectrum.kernel(left, right, 1.0, **self.hyperparameters())
        difference = left - right
        origin = difference.new_zeros(1, difference.shape[-1])
        return self.spectrum.kernel(difference, origin, 1.0, **self.hyperparameters()).squeeze(-1)
