"""A kernel of space and time that is not separable: a field that drifts."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.priors import Prior
from torch import Tensor

from .._support import checks
from ..features import Advected
from .stationary import StationaryKernel


class AdvectedKernel(StationaryKernel):
    r"""The kernel of a field that drifts with a random velocity, and changes while it does; time is the last column.

    .. math:: k(h, u) = E_V \exp\Big(-\sum_k \frac{(h_k - V_k u)^2}{2 \ell_k^2} - \frac{u^2}{2 \ell_t^2}\Big), \qquad
        V \sim N(v, \mathrm{diag}(s^2))

    :param num_space_dims: the number d of space coordinates; inputs have d + 1 columns.
    :param velocity_prior: a prior of v.
    :param spread_constraint: the constraint of s; default: positive.
    :param spread_prior: a prior of s.
    :param kwargs: as for GPyTorch kernels, such as ``ard_num_dims`` (d + 1).

    Source: Cox and Isham, A simple spatial-temporal model of rainfall, 1988; Gneiting (2002).

    >>> kernel = AdvectedKernel(num_space_dims=2, ard_num_dims=3)
    >>> kernel.velocity = torch.tensor([1.0, 0.0])
    >>> kernel(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 1.0]])).shape
    torch.Size([1, 1])
    """

    settings = ("num_space_dims",)
    spectrum = Advected()

    def __init__(
        self,
        num_space_dims: int,
        velocity_prior: Prior | None = None,
        spread_constraint: Interval | None = None,
        spread_prior: Prior | None = None,
        **kwargs: Any,
    ) -> None:
        for name, prior in (("velocity_prior", velocity_prior), ("spread_prior", spread_prior)):
            checks.part(name, prior, "gpytorch.priors.NormalPrior(0.0, 1.0)")
        checks.part("spread_constraint", spread_constraint, "gpytorch.constraints.Positive()")
        super().__init__(**kwargs)
        self.num_space_dims = checks.positive_integer("num_space_dims", num_space_dims)
        shape = (*self.batch_shape, 1, self.num_space_dims)
        self.register_parameter("raw_velocity", torch.nn.Parameter(torch.zeros(shape)))
        self.register_parameter("raw_spread", torch.nn.Parameter(torch.zeros(shape)))
        self.register_constraint("raw_spread", Positive() if spread_constraint is None else spread_constraint)
        if velocity_prior is not None:
            self.register_prior("velocity_prior", velocity_prior, _velocity, _set_velocity)
        if spread_prior is not None:
            self.register_prior("spread_prior", spread_prior, _spread, _set_spread)

    @property
    def velocity(self) -> Tensor:
        """The mean velocity v, (..., 1, d)."""
        return self.raw_velocity

    @velocity.setter
    def velocity(self, value: Tensor | float) -> None:
        self.initialize(raw_velocity=torch.as_tensor(value).to(self.raw_velocity))

    @property
    def spread(self) -> Tensor:
        """The standard deviation s of the velocity, (..., 1, d)."""
        return self.raw_spread_constraint.transform(self.raw_spread)

    @spread.setter
    def spread(self, value: Tensor | float) -> None:
        spread = torch.as_tensor(value).to(self.raw_spread)
        self.initialize(raw_spread=self.raw_spread_constraint.inverse_transform(spread))

    def hyperparameters(self) -> dict[str, Tensor]:
        """Mean and spread of the velocity of scaled inputs, (..., d)."""
        lengthscale = self.lengthscale.squeeze(-2)
        lengthscale = lengthscale.expand(*lengthscale.shape[:-1], self.num_space_dims + 1)
        unit = lengthscale[..., -1:] / lengthscale[..., :-1]
        return {"velocity": unit * self.velocity.squeeze(-2), "spread": unit * self.spread.squeeze(-2)}

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        if x1.shape[-1] != self.num_space_dims + 1:
            raise ValueError(
                f"expected {self.num_space_dims} columns of space and one of time, got {x1.shape[-1]}; correct "
                "num_space_dims, or select columns by active_dims"
            )
        return super().forward(x1, x2, diag, **params)


def _velocity(kernel: AdvectedKernel) -> Tensor:
    return kernel.velocity


def _set_velocity(kernel: AdvectedKernel, value: Tensor) -> None:
    kernel.velocity = value


def _spread(kernel: AdvectedKernel) -> Tensor:
    return kernel.spread


def _set_spread(kernel: AdvectedKernel, value: Tensor) -> None:
    kernel.spread = value
