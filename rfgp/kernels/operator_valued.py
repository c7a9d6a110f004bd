"""What stationary operator-valued kernels share: derivatives of a scalar kernel, and a factor b(w)."""

from __future__ import annotations

import abc
import copy
from typing import Any, Self

import torch
from gpytorch.kernels import Kernel
from linear_operator.operators import LinearOperator
from torch import Tensor

from .._support import checks
from ..functionals import Polynomial, PolynomialMatrix
from .checked import CheckedKernel, refuse_last_dim_is_batch
from .derivatives import partial_derivatives


class OperatorValuedKernel(CheckedKernel, Kernel, abc.ABC):
    r"""A kernel of functions with T outputs whose spectral density is that of a scalar kernel times a matrix.

    .. math:: K(x, y) = P(\partial)\, k(\tau)\big|_{\tau = x - y} = E_{w \sim \rho}\big[e^{i w^\top (x - y)}\,
        b(w) b(w)^H\big]

    A subclass defines P by ``covariance``, and b by ``factor``. Rows are interleaved.

    :param base_kernel: the scalar kernel k, an RBFKernel or a MaternKernel; its ``active_dims`` select inputs.
    :raises ValueError: where the process of the base kernel has too few derivatives.

    >>> import gpytorch, rfgp
    >>> isinstance(rfgp.kernels.CurlFreeKernel(gpytorch.kernels.RBFKernel()), OperatorValuedKernel)
    True
    """

    def __init__(self, base_kernel: Kernel, **kwargs: Any) -> None:
        if base_kernel.active_dims is not None:
            dims = base_kernel.active_dims
            if kwargs.get("active_dims") is not None and not torch.equal(torch.as_tensor(kwargs["active_dims"]), dims):
                raise ValueError("expected active_dims on the kernel or on its base, got two that differ; drop one")
            kwargs["active_dims"] = dims
        super().__init__(**kwargs)
        self.base_kernel = base_kernel

    @property
    def scalar_kernel(self) -> Kernel:
        """The scalar kernel k, whose spectral density the frequencies have."""
        return self.base_kernel

    @abc.abstractmethod
    def num_outputs(self, input_dim: int) -> int:
        """The number T of outputs for inputs of so many columns."""

    @abc.abstractmethod
    def covariance(self, input_dim: int) -> PolynomialMatrix:
        """The (T, T) matrix P of polynomials in the derivatives with respect to the difference."""

    @abc.abstractmethod
    def factor(self, w: Tensor) -> Tensor:
        """The factor b(w) with b b^H = P(i w): (..., m, d) to (..., m, T, r), real or complex."""

    @abc.abstractmethod
    def powers(self, input_dim: int) -> tuple[int, ...]:
        """The orders of the derivatives of which b consists: what the trace measure weights frequencies with."""

    @property
    def is_stationary(self) -> bool:
        return True

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> int:
        # in a sum they are the full inputs, before the selection by active_dims
        return self.num_outputs(x1.shape[-1] if self.active_dims is None else len(self.active_dims))

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor | LinearOperator:
        """The kernel matrix of selected inputs, (..., N T, M T), or its diagonal, (..., N T)."""
        refuse_last_dim_is_batch(last_dim_is_batch)
        for x in (x1, x2):
            checks.inputs(x)
        rows = self.covariance(x1.shape[-1])
        powers = {(0,) * x1.shape[-1]} | {alpha for row in rows for entry in row for alpha in entry}
        values = partial_derivatives(self.scalar_kernel, x1, x2, powers, diag)
        zero = torch.zeros_like(values[(0,) * x1.shape[-1]])
        if diag:
            return torch.stack([_combined(rows[t][t], values, zero) for t in range(len(rows))], dim=-1).flatten(-2)
        blocks = [torch.stack([_combined(entry, values, zero) for entry in row], dim=-1) for row in rows]
        return torch.stack(blocks, dim=-3).flatten(-2).flatten(-3, -2)

    def __getitem__(self, index: Any) -> Self:
        return self._with_base(without_dims(self.base_kernel)[index]) if self.batch_shape else self

    def expand_batch(self, *sizes: Any) -> Self:
        return self._with_base(without_dims(self.base_kernel).expand_batch(*sizes))

    def _with_base(self, base_kernel: Kernel) -> Self:
        base_kernel.active_dims = self.base_kernel.active_dims
        return copy.deepcopy(self, {id(self.base_kernel): base_kernel})


def _combined(polynomial: Polynomial, values: dict[tuple[int, ...], Tensor], zero: Tensor) -> Tensor:
    return sum((coefficient * values[alpha] for alpha, coefficient in polynomial.items()), zero)


def without_dims(kernel: Kernel) -> Kernel:
    """The kernel without ``active_dims``, which GPyTorch would index as if they were batched."""
    if kernel.active_dims is None:
        return kernel
    twin = copy.deepcopy(kernel)
    twin.active_dims = None
    return twin
