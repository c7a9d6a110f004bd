"""The GPyTorch modules of which a model consists, their priors and their values."""

from __future__ import annotations

import gpytorch
import torch
from torch import Tensor

Parts = dict[str, gpytorch.Module]
"""Modules by the prefix of the names of their parameters."""


def parts_of(model: torch.nn.Module) -> Parts:
    """The GPyTorch modules of which a model consists, but variational strategies."""
    if isinstance(model, gpytorch.Module) and not isinstance(model, gpytorch.models.ApproximateGP):
        return {"": model}
    children = {name: parts_of(part) for name, part in model.named_children() if name != "variational_strategy"}
    return {f"{name}.{rest}": part for name, parts in children.items() for rest, part in parts.items()}


def log_prior(parts: Parts) -> Tensor:
    """The log density of all priors; one of shared parameters counts once."""
    total = torch.zeros((), dtype=torch.float64)
    counted = set()
    for part in parts.values():
        for _, module, prior, closure, _ in part.named_priors():
            key = (id(prior), *(id(parameter) for parameter in module.parameters(recurse=False)))
            if key not in counted:
                total = total + prior.log_prob(closure(module)).sum().double()
                counted.add(key)
    return total


def constrained_values(parts: Parts) -> dict[str, list[float]]:
    """The constrained values of all parameters by name."""
    values = {}
    for prefix, part in parts.items():
        for name, parameter, constraint in part.named_parameters_and_constraints():
            value = parameter if constraint is None else constraint.transform(parameter)
            values[prefix + name.replace("raw_", "")] = value.detach().cpu().double().reshape(-1).tolist()
    return values
