"""Functions drawn from a Gaussian process with features, all of which are evaluated at once."""

from __future__ import annotations

import abc
import copy
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from ..._support import checks
from ..._support.gpytorch_names import forget_priors
from .posterior import GaussianPosterior

if TYPE_CHECKING:
    from .regression import Regression


class FunctionDraws(abc.ABC):
    """S functions that were drawn together. Their values never change, so that a copy of them is the object itself."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @abc.abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """The values (S, ..., N) at inputs (..., N, d); (S, ..., N, T) for several outputs."""

    @abc.abstractmethod
    def take(self, index: Tensor) -> FunctionDraws:
        """The functions with numbers (M,), on the CPU."""


class FeatureDraws(FunctionDraws):
    """The functions of draws (..., K, S) of the weights, by one product with the features of all inputs."""

    def __init__(self, regression: Regression, weights: Tensor) -> None:
        self.regression, self.weights = regression, weights

    def __call__(self, x: Tensor) -> Tensor:
        values: Tensor = self.regression.functions(self.weights, x)
        return values

    def take(self, index: Tensor) -> FeatureDraws:
        return FeatureDraws(self.regression, self.weights.index_select(-1, index.to(self.weights.device)))

    def __getstate__(self) -> dict[str, Any]:
        return {"regression": self.regression.detached(), "weights": self.weights.detach()}


class MixtureDraws(FunctionDraws):
    """Functions from several sources, each evaluated once; ``places`` has the numbers (S_i,) of each part."""

    def __init__(self, parts: list[FunctionDraws], places: list[Tensor]) -> None:
        self.parts, self.places = parts, places

    def __call__(self, x: Tensor) -> Tensor:
        values = torch.cat([part(x) for part in self.parts])
        return values[torch.cat(self.places).argsort().to(values.device)]

    def take(self, index: Tensor) -> MixtureDraws:
        parts, places = [], []
        for part, place_of_part in zip(self.parts, self.places, strict=True):
            numbers, place = (place_of_part.unsqueeze(-1) == index).nonzero(as_tuple=True)
            if len(numbers):
                parts.append(part.take(numbers))
                places.append(place)
        return MixtureDraws(parts, places)


def drawn_weights(weights: GaussianPosterior, num_samples: int, has_complex_targets: bool) -> Tensor:
    r"""Draws (..., K, S) of weights, of which functions are the products with features, or the real parts of these.

    Real features of complex targets have circular complex weights; where only the real part of a function is taken,
    deviations are :math:`\sqrt2` times as large.
    """
    size = weights.mean.shape[:-1].numel()
    checks.fits_in_memory(8.0 * size * num_samples, f"{num_samples} draws of {size} weights", "draw fewer functions")
    deviations = weights.deviations(num_samples)
    if has_complex_targets and not deviations.is_complex():
        deviations = torch.complex(deviations, weights.deviations(num_samples)) * 0.5**0.5
    elif deviations.is_complex() and not has_complex_targets:
        deviations = deviations * 2.0**0.5
    return weights.mean + deviations


def detached(module: Any) -> Any:
    """A copy of a module without priors, whose parameters are the leaves of graphs of their own."""
    leaves = {id(p): p.detach().requires_grad_(p.requires_grad) for p in module.parameters()}
    result = copy.deepcopy(module, leaves)
    forget_priors(result)
    return result
