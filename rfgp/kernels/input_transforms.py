"""Transforms of inputs that are learned with a kernel: a linear map, and monotone warpings of single inputs."""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.constraints import Positive
from torch import Tensor

from .._support import checks

_EDGE = 1e-6
"""How near a Kumaraswamy warping comes to the ends of its interval, where its slope may be zero or infinite."""


class LinearMap(gpytorch.Module):
    r"""A linear map of the inputs, with which a stationary kernel has a full or low-rank metric.

    .. math:: g(x) = A^\top x, \qquad |g(x) - g(x')|^2 = (x - x')^\top A A^\top (x - x')

    At first every input is divided by its standard deviation; of a low rank r, A is the first r columns of a random
    rotation of that.

    :param train_inputs: the training inputs (N, d).
    :param rank: the number of columns r of A; default: d.
    :raises ValueError: for inputs that are not finite, or a rank above d.

    Source: F. Vivarelli and C. K. I. Williams, Discovering hidden features with Gaussian processes regression, 1999.

    >>> LinearMap(torch.randn(100, 5), rank=2)(torch.randn(3, 5)).shape
    torch.Size([3, 2])
    """

    weight: Tensor

    def __init__(self, train_inputs: Tensor, rank: int | None = None) -> None:
        super().__init__()
        rows = _rows(train_inputs)
        dim = rows.shape[-1]
        width = dim if rank is None else checks.positive_integer("rank", rank)
        if width > dim:
            raise ValueError(f"expected a rank of at most the {dim} inputs, got {width}; leave it out for all")
        weight = torch.eye(dim, dtype=rows.dtype, device=rows.device)
        if width < dim:
            noise = torch.randn(dim, width, generator=torch.Generator().manual_seed(0), dtype=rows.dtype)
            weight = torch.linalg.qr(noise.to(rows.device)).Q
        self.register_parameter("weight", torch.nn.Parameter(weight / _spread(rows).unsqueeze(-1)))

    def forward(self, x: Tensor) -> Tensor:
        """The products with the weight (d, r) of inputs (..., N, d)."""
        return _alike(x, self.weight[:, 0]) @ self.weight


class KumaraswamyWarp(gpytorch.Module):
    r"""A monotone warping of every input between the bounds of the data, by the Kumaraswamy distribution function.

    .. math:: g(u) = 1 - (1 - u^a)^b, \qquad u = (x - x_{\min}) / (x_{\max} - x_{\min})

    It stretches ends or the middle, and is the identity at first. Outside of the bounds it goes on with slope one.

    :param train_inputs: the training inputs (N, d), which give the bounds.
    :raises ValueError: for inputs that are not finite.

    Source: J. Snoek et al., Input warping for Bayesian optimization of non-stationary functions, 2014.

    >>> warp = KumaraswamyWarp(torch.tensor([[0.0], [10.0]]))
    >>> round(warp(torch.tensor([[5.0]])).item(), 4)
    0.5
    """

    low: Tensor
    width: Tensor
    raw_a: Tensor
    raw_b: Tensor

    def __init__(self, train_inputs: Tensor) -> None:
        super().__init__()
        rows = _rows(train_inputs)
        low, high = rows.amin(0), rows.amax(0)
        self.register_buffer("low", low)
        self.register_buffer("width", torch.where(high > low, high - low, torch.ones_like(low)))
        for name in ("raw_a", "raw_b"):
            self.register_parameter(name, torch.nn.Parameter(torch.zeros_like(low)))
            self.register_constraint(name, Positive(initial_value=1.0))

    @property
    def a(self) -> Tensor:
        """The first exponents, (d,)."""
        value: Tensor = self.raw_a_constraint.transform(self.raw_a)
        return value

    @property
    def b(self) -> Tensor:
        """The second exponents, (d,)."""
        value: Tensor = self.raw_b_constraint.transform(self.raw_b)
        return value

    def forward(self, x: Tensor) -> Tensor:
        """Warped inputs of the shape of x."""
        u = (_alike(x, self.low) - self.low) / self.width
        inside = u.clamp(_EDGE, 1.0 - _EDGE)
        return 1.0 - (1.0 - inside.pow(self.a)).pow(self.b) + (u - inside)


class SinhArcsinhWarp(gpytorch.Module):
    r"""A monotone warping of every input on the real line, which makes tails lighter or heavier and mends skewness.

    .. math:: g(u) = \sinh(\delta \sinh^{-1}(u) - \epsilon), \qquad u = (x - m) / s

    It standardizes at first, with tail weights delta of one and skewness epsilon of zero.

    :param train_inputs: the training inputs (N, d), which give means m and standard deviations s.
    :raises ValueError: for inputs that are not finite.

    Source: M. C. Jones and A. Pewsey, Sinh-arcsinh distributions, 2009.

    >>> warp = SinhArcsinhWarp(torch.tensor([[1.0], [3.0]]))
    >>> round(warp(torch.tensor([[4.0]])).item(), 4)
    2.0
    """

    center: Tensor
    scale: Tensor
    raw_tail: Tensor
    skewness: Tensor

    def __init__(self, train_inputs: Tensor) -> None:
        super().__init__()
        rows = _rows(train_inputs)
        self.register_buffer("center", rows.mean(0))
        self.register_buffer("scale", _spread(rows))
        self.register_parameter("raw_tail", torch.nn.Parameter(torch.zeros_like(rows[0])))
        self.register_constraint("raw_tail", Positive(initial_value=1.0))
        self.register_parameter("skewness", torch.nn.Parameter(torch.zeros_like(rows[0])))

    @property
    def tail(self) -> Tensor:
        """The tail weights delta, (d,)."""
        value: Tensor = self.raw_tail_constraint.transform(self.raw_tail)
        return value

    def forward(self, x: Tensor) -> Tensor:
        """Warped inputs of the shape of x."""
        standardized = (_alike(x, self.center) - self.center) / self.scale
        return torch.sinh(self.tail * torch.asinh(standardized) - self.skewness)


def _rows(train_inputs: Tensor) -> Tensor:
    return checks.finite(checks.inputs(train_inputs, name="train_inputs"), "train_inputs").detach().flatten(0, -2)


def _alike(x: Tensor, row: Tensor) -> Tensor:
    """Inputs with the columns and the dtype of a row (d,) of the transform, or a ValueError."""
    return checks.same_kind(checks.inputs(x, len(row)), row, "x", "the transform")


def _spread(rows: Tensor) -> Tensor:
    """Standard deviations (d,) of the columns, one where there is none."""
    spread = rows.std(0, correction=0)
    return torch.where(spread > 0, spread, torch.ones_like(spread))
