"""What a model by Laplace's approximation is conditioned on: the mode, and the sums there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ...inference import GaussianPosterior, WeightPosterior
from ...inference.latent.laplace import LaplaceSums, LatentFunctions
from ...inference.latent.newton import LaplaceProblem, Precision, precision_matrix
from ...inference.posterior.function_posterior import FunctionPosterior
from ...likelihoods import MultivariateNormal
from ..record import Record
from .rows import LaplaceRows


@dataclasses.dataclass(frozen=True)
class LaplaceMode:
    """The mode (D, R) of the weights, the sums over the training data there, and what both depend on."""

    weights: Tensor
    sums: LaplaceSums
    record: Record
    num_rows_kept: ClassVar[int] = 0

    @classmethod
    def search(
        cls, functions: LatentFunctions, rows: LaplaceRows, start: Tensor | None, record: Record
    ) -> tuple[Self, Tensor, int]:
        """The mode given rows, with Laplace's evidence, and how many passes over the rows it took."""
        problem = LaplaceProblem(functions, rows, rows.num_held)
        weights = problem.mode(start)
        evidence, sums = problem.log_evidence(weights)
        return cls(weights, sums.detach(), record), evidence, problem.num_passes

    def posterior(self, functions: LatentFunctions) -> GaussianPosterior:
        """The posterior of the weights."""
        if functions.kernel.has_output_factor:
            return self._posterior_of_tasks(functions)
        mixing, sums = functions.mixing, self.sums
        if len(mixing) > 1:
            factor = Precision(sums.gram, mixing, functions.likelihood.has_full_hessian).factor
            return FunctionPosterior(factor, self.weights)
        gram = sums.gram[0] * mixing.square()
        return WeightPosterior(gram, gram @ self.weights + sums.slope * mixing)

    def _posterior_of_tasks(self, functions: LatentFunctions) -> GaussianPosterior:
        """That of the weights (D R, 1), feature by feature, as the factor of a kernel of several outputs has them."""
        matrix, (width, num_sets) = precision_matrix(self.sums.gram, functions.mixing, True)[0], self.weights.shape
        gram = matrix.reshape(num_sets, width, num_sets, width).permute(1, 0, 3, 2).reshape(matrix.shape)
        cross = gram @ self.weights.reshape(-1, 1)
        gram.diagonal().sub_(1.0)
        return WeightPosterior(gram, cross)

    def evidence(self, functions: LatentFunctions) -> Tensor:
        """The log evidence."""
        precision = Precision(self.sums.gram, functions.mixing, functions.likelihood.has_full_hessian)
        return self.sums.log_density - 0.5 * (self.weights.square().sum() + precision.log_determinant)

    def distribution(
        self, functions: LatentFunctions, x: Tensor, posterior: GaussianPosterior, num_neighbors: int | None
    ) -> MultivariateNormal:
        """The latent functions at inputs."""
        return functions.distribution(x, posterior)

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        sums = LaplaceSums(*(part.to(device) for part in self.sums[:3]))
        return type(self)(self.weights.to(device), sums, self.record.to(device))

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors by name, without the record."""
        return {"weights": self.weights, **dict(zip(LaplaceSums._fields[:3], self.sums[:3], strict=True))}

    @classmethod
    def restored(cls, state: Mapping[str, Tensor], record: Record) -> Self:
        """The mode of a state; a KeyError where something is missing."""
        return cls(state["weights"], LaplaceSums(*(state[name] for name in LaplaceSums._fields[:3])), record)

    def check(self, functions: LatentFunctions) -> None:
        """Raise a ValueError where it is no mode of these functions."""
        shapes = [tuple(part.shape) for part in (self.weights, self.sums.slope, self.sums.gram)]
        width, (count, num_sets) = functions.num_features, functions.mixing.shape
        pairs = len(functions.likelihood.pairs)
        check_shapes(shapes, [(width, num_sets), (width, count), (pairs, width, width)])


def check_shapes(shapes: Any, wanted: Any) -> None:
    """Raise a ValueError where the sums of a state have other shapes than those of a model."""
    if shapes != wanted:
        raise ValueError(f"expected the state of a model with sums of shapes {wanted}, got {shapes}; make it alike")
