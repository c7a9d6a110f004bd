"""An additive kernel whose components are orthogonal, so that each has a variance of its own."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel
from torch import Tensor

from .._support import checks
from .checked import CheckedKernel, refuse_last_dim_is_batch

_NODES = 128


class OrthogonalAdditiveKernel(CheckedKernel, Kernel):
    r"""Sums of functions of single inputs, of pairs and so on, each with mean zero over every input of it.

    .. math:: k(x, x') = \sum_{q=0}^Q \sigma_q^2 \sum_{|S| = q} \prod_{i \in S} \tilde k_i(x_i, x'_i),
        \qquad E[\tilde k_i(X_i, x')] = 0 \text{ for } X_i \sim N(0, 1)

    Inputs are to be standardized. The parts are Gaussian kernels without their means,

    .. math:: \tilde k(x, x') = e^{-(x - x')^2 / (2 \ell^2)} - \frac{\ell \sqrt{\ell^2 + 2}}{\ell^2 + 1}
        e^{-(x^2 + x'^2) / (2 (\ell^2 + 1))}

    :param num_dims: the number d of inputs.
    :param max_degree: the largest number Q of inputs of one function.
    :param kwargs: as for GPyTorch kernels, such as ``active_dims``.
    :raises ValueError: for a degree above d.

    Source: X. Lu, A. Boukouvalas and J. Hensman, Additive Gaussian processes revisited, 2022, Eqs. 10 to 15.

    >>> import rfgp
    >>> x = torch.randn(100, 3)
    >>> kernel = OrthogonalAdditiveKernel(3)
    >>> rfgp.approximate(kernel, 20, method="landmarks", train_inputs=x, seed=0).features(x).shape
    torch.Size([100, 20])
    """

    has_lengthscale = True
    settings = ("max_degree",)
    raw_variances: Tensor

    def __init__(self, num_dims: int, max_degree: int = 2, **kwargs: Any) -> None:
        count = checks.positive_integer("num_dims", num_dims)
        self.max_degree = checks.positive_integer("max_degree", max_degree, count)
        super().__init__(ard_num_dims=count, **kwargs)
        self.register_parameter("raw_variances", torch.nn.Parameter(torch.zeros(self.max_degree + 1)))
        self.register_constraint("raw_variances", Positive())

    @property
    def variances(self) -> Tensor:
        """What the functions of no input, of single ones, of pairs and so on are multiplied by, (Q + 1,)."""
        value: Tensor = self.raw_variances_constraint.transform(self.raw_variances)
        return value

    @variances.setter
    def variances(self, value: Tensor | float) -> None:
        values = torch.as_tensor(value).to(self.raw_variances).expand_as(self.raw_variances)
        self.initialize(raw_variances=self.raw_variances_constraint.inverse_transform(values))

    @property
    def is_stationary(self) -> bool:
        """False: the parts know where the inputs are centered."""
        return False

    def parts(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The kernels of the single inputs at x1 (..., N, d) and x2 (..., M, d), broadcast to (..., N, M, d)."""
        left, right = x1.unsqueeze(-2), x2.unsqueeze(-3)
        return self._part(left, right)

    def _part(self, left: Tensor, right: Tensor) -> Tensor:
        length = self.lengthscale.squeeze(-2)
        square = length.square()
        constant = length * (square + 2.0).sqrt() / (square + 1.0)
        means = torch.exp(-0.5 * (left.square() + right.square()) / (square + 1.0))
        return torch.exp(-0.5 * (left - right).square() / square) - constant * means

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor:
        """The kernel matrix of selected inputs, (..., N, M), or its diagonal, (..., N)."""
        refuse_last_dim_is_batch(last_dim_is_batch)
        parts = self._part(x1, x2) if diag else self.parts(x1, x2)
        degrees = [torch.ones_like(parts[..., 0]), *(torch.zeros_like(parts[..., 0]) for _ in range(self.max_degree))]
        for part in parts.unbind(-1):
            degrees = [degrees[0], *(degrees[q] + part * degrees[q - 1] for q in range(1, len(degrees)))]
        return sum((v * degree for v, degree in zip(self.variances, degrees, strict=True)), torch.zeros_like(part))

    @torch.no_grad()
    def component_variances(self, rows: Tensor, weights: Tensor) -> dict[tuple[int, ...], float]:
        r"""The variances of the components of a function :math:`\sum_n \alpha_n k(x, x_n)` of standard normal inputs.

        .. math:: V_S = \sigma_{|S|}^4\, \alpha^\top \Big(\prod_{i \in S} M_i\Big) \alpha, \qquad
            M_{i,mn} = E[\tilde k_i(X, x_{mi})\, \tilde k_i(X, x_{ni})]

        Divided by their sum they are the Sobol' indices of the function, such as a posterior mean.

        :param rows: the inputs (N, d), with weights (N,).
        :returns: the variance for every tuple of inputs, of one to Q of them.
        :raises ValueError: for other shapes.

        >>> kernel = OrthogonalAdditiveKernel(2)
        >>> sorted(kernel.component_variances(torch.zeros(1, 2), torch.ones(1)))
        [(0,), (0, 1), (1,)]
        """
        if checks.inputs(rows, self.ard_num_dims, "rows").dim() > 2:
            raise ValueError(f"expected rows of shape (N, d), got {tuple(rows.shape)}; pass one set of rows at a time")
        checks.one_per_row(checks.floating(weights, "weights"), rows, "weights")
        moments = self._moments(rows.double())
        alpha, scales = weights.double(), self.variances.double().square()
        found = {}
        for degree in range(1, self.max_degree + 1):
            for chosen in itertools.combinations(range(rows.shape[-1]), degree):
                matrix = math.prod((moments[i] for i in chosen[1:]), start=moments[chosen[0]])
                found[chosen] = float(scales[degree] * (alpha @ matrix @ alpha))
        return found

    def _moments(self, rows: Tensor) -> Tensor:
        """The matrices M_i, (d, N, N), by Gauss-Hermite quadrature."""
        places, weights = (torch.from_numpy(part).to(rows) for part in np.polynomial.hermite_e.hermegauss(_NODES))
        values = self.parts(places.unsqueeze(-1).expand(-1, rows.shape[-1]), rows).double().movedim(-1, 0)
        return values.mT @ (values * (weights / weights.sum()).unsqueeze(-1))
