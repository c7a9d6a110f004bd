"""The GPyTorch modules of which a model consists, their priors and their values."""

from __future__ import annotations

from collections.abc import Iterator

import gpytorch
import torch
from gpytorch.constraints import Interval
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


def constrained_parameters(
    part: gpytorch.Module,
) -> Iterator[tuple[str, torch.nn.Parameter, torch.nn.Module, Interval | None]]:
    """The parameters of a module by name, each with the module that it belongs to, and its constraint.

    GPyTorch's own look-up follows attributes, which hide the features of a kernel inside of another one.
    """
    owners = {id(p): module for module in part.modules() for p in module.parameters(recurse=False)}
    for name, parameter in part.named_parameters():
        owner = owners[id(parameter)]
        is_known = isinstance(owner, gpytorch.Module)
        constraint = owner.constraint_for_parameter_name(name.rpartition(".")[2]) if is_known else None
        yield name, parameter, owner, constraint


def constrained_values(parts: Parts) -> dict[str, list[float]]:
    """The constrained values of all parameters by name."""
    values = {}
    for prefix, part in parts.items():
        for name, parameter, _, constraint in constrained_parameters(part):
            value = parameter if constraint is None else constraint.transform(parameter)
            values[prefix + name.replace("raw_", "")] = value.detach().cpu().double().reshape(-1).tolist()
    return values
