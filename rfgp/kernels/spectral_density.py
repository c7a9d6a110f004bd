"""Operator-valued kernels from any matrix-valued spectral density."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator.operators import LinearOperator
from torch import Tensor

from .._support import checks
from ..features.spectra import TraceMeasure
from ..functionals import PolynomialMatrix
from .operator_valued import OperatorValuedKernel


class SpectralDensityKernel(OperatorValuedKernel):
    r"""The kernel of a given matrix-valued spectral density, with a lengthscale.

    .. math:: K(x, y) = \int e^{\mathrm{i} w^\top (x - y) / \ell} \mu(w)\, dw, \qquad
        b(w) b(w)^H = \mu(w) / \mathrm{tr}\, \mu(w)

    The exact kernel is a quadrature at 2^14 quasi-random points, good to about three digits in few dimensions.

    :param density: takes frequencies (m, d) in float64 and returns :math:`\mu`, (m, T, T), Hermitian positive
        semidefinite, with :math:`\mu(-w) = \overline{\mu(w)}`.
    :param input_dim: d.
    :param proposal_scale: the scale of normal proposals, as wide as the density or wider; default: 1.
    :raises ValueError: for an invalid density, or a scale far from its width.

    Source: M Theorem 9, Corollary 10.

    >>> import torch
    >>> def delayed(w):  # the second output follows the first one by 0.5
    ...     b = torch.exp(-0.5j * w * torch.arange(2))
    ...     return torch.exp(-0.5 * w[:, :, None] ** 2) * b[:, :, None] * b[:, None, :].conj()
    >>> SpectralDensityKernel(delayed, input_dim=1)(torch.zeros(4, 1)).shape
    torch.Size([8, 8])
    """

    has_lengthscale = True

    def __init__(
        self, density: Callable[[Tensor], Tensor], input_dim: int, proposal_scale: float = 1.0, **kwargs: Any
    ) -> None:
        Kernel.__init__(self, **kwargs)
        input_dim = checks.positive_integer("input_dim", input_dim)
        self.measure = TraceMeasure(density, input_dim, proposal_scale)
        self._outputs = density(torch.zeros(1, input_dim, dtype=torch.float64)).shape[-1]

    @property
    def scalar_kernel(self) -> Kernel:
        return self

    def num_outputs(self, input_dim: int) -> int:
        if input_dim != self.measure.dim:
            raise ValueError(
                f"expected inputs of {self.measure.dim} columns as the density has, got {input_dim}; pass these columns"
            )
        return self._outputs

    def covariance(self, input_dim: int) -> PolynomialMatrix:
        raise ValueError(
            "expected a kernel of derivatives, got a SpectralDensityKernel, which operators act on as features only; "
            "predict them from a model"
        )

    def factor(self, w: Tensor) -> Tensor:
        density = self.measure.density((w * self.lengthscale.double()).detach().reshape(-1, self.measure.dim))
        values, vectors = torch.linalg.eigh(density)
        share = values.clamp_min(0.0) / values.clamp_min(0.0).sum(-1, keepdim=True)
        return (vectors * share.sqrt().unsqueeze(-2)).reshape(*w.shape[:-1], *density.shape[-2:])

    def powers(self, input_dim: int) -> tuple[int, ...]:
        return (0,)

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor | LinearOperator:
        self.num_outputs(x1.shape[-1])
        left, right = (x / self.lengthscale for x in (x1, x2))
        if diag:
            return self.measure.covariance(left - right).diagonal(dim1=-2, dim2=-1).flatten(-2)
        blocks = self.measure.covariance(left.unsqueeze(-2) - right.unsqueeze(-3))
        return blocks.transpose(-3, -2).flatten(-2).flatten(-3, -2)

    def __getitem__(self, index: Any) -> SpectralDensityKernel:
        if self.batch_shape:
            raise ValueError("expected a SpectralDensityKernel without batch dimensions, got some; make one for each")
        return self

    def expand_batch(self, *sizes: Any) -> SpectralDensityKernel:
        if any(sizes):
            raise ValueError("expected no batch dimensions for a SpectralDensityKernel, got some; make one for each")
        return self
