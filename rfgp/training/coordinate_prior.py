"""The prior density of training coordinates: registered priors, and a weak one of each parameter that has none."""

from __future__ import annotations

import torch
from gpytorch.means import ConstantMean
from torch import Tensor

from .coordinates import Coordinate, Coordinates, LinearMeanCoordinate, Logarithmic
from .objectives import Objective
from .parts import Parts, log_prior
from .rollback import Values
from .starts import start_from_data

_WIDTH = 1.5
"""The standard deviation of weak priors: in e-folds of positive parameters, and in those of the targets of means."""


class CoordinatePrior:
    r"""The log density of the parameters of a model by its priors, up to a constant; differentiable.

    .. math:: \sum_i \big(\log p(\theta_i) + \log \theta_i\big) - \sum_j \tfrac12 \Big(\frac{u_j - c_j}{1.5}\Big)^2

    It is that of coordinates: logarithms of positive parameters. Parameters :math:`\theta_i` have a registered prior.
    Others have coordinates :math:`u_j`, whose centers :math:`c_j` follow from the data alone: inputs' distances and
    targets' moments, as those with which training starts, or GPyTorch's default.

    :param objective: the evidence of the model.
    :raises ValueError: for a prior of something else than one parameter, and for parameters without a prior that are
        neither positive nor of a mean.
    """

    def __init__(self, objective: Objective) -> None:
        self.parts = objective.parts
        members = Coordinates(self.parts, objective.moments).members
        known = _with_prior(self.parts, members)
        is_known = [any(id(p) in known for p in member.parameters) for member in members]
        self.positive = [m for m, is_in in zip(members, is_known, strict=True) if is_in and isinstance(m, Logarithmic)]
        self.weak = [m for m, is_in in zip(members, is_known, strict=True) if not is_in]
        constants = _constants(self.parts)
        for other in self.weak:
            is_mean = isinstance(other, LinearMeanCoordinate) or id(other.parameters[0]) in constants
            if not is_mean and not isinstance(other, Logarithmic):
                raise ValueError(
                    "expected a prior for each parameter that is neither positive nor of a ConstantMean or "
                    f"LinearMean, got none for {other.name}; call register_prior, or requires_grad_(False)"
                )
        self.centers = _centers(objective, self.weak)

    def __call__(self) -> Tensor:
        total = log_prior(self.parts)
        for known in self.positive:
            total = total + known.values().sum()
        for member, center in zip(self.weak, self.centers, strict=True):
            total = total - 0.5 * ((member.values() - center) / _WIDTH).square().sum()
        return total


def _constants(parts: Parts) -> set[int]:
    """The identities of constant means."""
    means = [m for part in parts.values() for m in part.modules() if isinstance(m, ConstantMean)]
    return {id(mean.raw_constant) for mean in means}


def _with_prior(parts: Parts, members: list[Coordinate]) -> set[int]:
    """The identities of the parameters that have registered priors."""
    values = {id(p): m.values().exp() if isinstance(m, Logarithmic) else p for m in members for p in m.parameters}
    trained, found = [p for m in members for p in m.parameters], set()
    for part in parts.values():
        for name, module, _, closure, _ in part.named_priors():
            value = closure(module)
            if not value.requires_grad:
                continue
            slopes = torch.autograd.grad(value.sum(), trained, allow_unused=True)
            owners = [p for p, slope in zip(trained, slopes, strict=True) if slope is not None]
            own = values[id(owners[0])].reshape(-1) if len(owners) == 1 else value.new_zeros(0)
            flat = value.reshape(-1).to(own)
            if flat.shape != own.shape or not torch.allclose(flat, own):
                raise ValueError(
                    f"expected priors of one parameter each, positive or without constraint, got {name}, which is of "
                    "something else; register it by the name of a parameter"
                )
            found.add(id(owners[0]))
    return found


@torch.no_grad()
def _centers(objective: Objective, weak: list[Coordinate]) -> list[Tensor]:
    """Where weak priors have their centers: coordinates of what training starts from, whatever the present values."""
    found, positive = objective.kernel_and_inputs(), [member for member in weak if isinstance(member, Logarithmic)]
    if found is None and positive:
        raise ValueError(
            "expected priors for all positive parameters of a model whose kernel is not covar_module, got none for "
            f"{positive[0].name}; call register_prior"
        )
    present = Values(objective.model)
    try:
        for member in positive:
            member.parameters[0].zero_()
        if found is not None:
            start_from_data(objective.model, *found, objective.moments)
        return [member.values() for member in weak]
    finally:
        present.restore()
