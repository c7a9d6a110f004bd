"""What functions a model may be: those of models in weight space, of exact models of GPyTorch, and of estimators."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP
from torch import Tensor

from ..._support import checks
from ...approximation import LandmarkKernel
from ...approximation.reference_tensor import reference_tensor
from ...averaging import AveragedGP
from ...linalg.column_scales import in_units, standardized
from ...models import WeightSpaceGP
from .sampled import SampledFunctions

Functions = Callable[[Tensor], Tensor]
"""The posterior mean and S functions of T outputs: from inputs (N, d) to values (N, (1 + S) T), in float64."""


class FunctionSource(abc.ABC):
    """A model of which functions can be drawn."""

    has_outputs: bool = False
    """Whether results have a dimension of outputs."""

    @property
    @abc.abstractmethod
    def bounds(self) -> Tensor | None:
        """The smallest and the largest training inputs, (2, d), where they are known."""

    @abc.abstractmethod
    def functions(self, num_functions: int) -> list[Functions]:
        """Functions drawn from the posterior, in groups that may have parameters of their own."""

    @abc.abstractmethod
    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the function at x (N, d), (N,) or (N, T) each, in float64."""


class WeightSpaceSource(FunctionSource):
    """The functions of a fitted WeightSpaceGP."""

    def __init__(self, model: WeightSpaceGP) -> None:
        if model.block_size is not None:
            raise ValueError(
                "expected a model without blocks, whose functions are features and weights, got one with block_size; "
                "use block_size=None"
            )
        if model.noise.is_complex:
            raise ValueError("expected a model of real targets, got one of complex ones; fit real and imaginary part")
        self.model = model
        self.has_outputs = model.noise.targets.has_tasks or model.noise.is_batched

    @property
    def bounds(self) -> Tensor | None:
        return None if self.model.conditioned is None else self.model.conditioned.sums.input_bounds

    def functions(self, num_functions: int) -> list[Functions]:
        return [SampledFunctions(self.model, num_functions)]

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        posterior = self.model.posterior(x.to(reference_tensor(self.model.covar_module)))
        mean, variance = posterior.mean.double().cpu(), posterior.variance.double().cpu()
        return (mean.mT, variance.mT) if self.model.noise.is_batched else (mean, variance)


class AveragedSource(FunctionSource):
    """The functions of an average over parameters."""

    def __init__(self, model: AveragedGP) -> None:
        self.model, self.has_outputs = model, model.has_outputs

    @property
    def bounds(self) -> Tensor:
        return torch.stack([self.model.x.amin(0), self.model.x.amax(0)])

    def functions(self, num_functions: int) -> list[Functions]:
        generator = torch.Generator().manual_seed(int(torch.randint(2**31, ())))

        def flat(functions: Functions) -> Functions:
            return lambda x: functions(x).flatten(1)

        return [flat(functions) for functions in self.model.draw_functions(num_functions, generator)]

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = self.model.function(x.double())
        return found.mean, found.variance


class EstimatorSource(FunctionSource):
    """The functions of a fitted regressor of :mod:`rfgp.sklearn`, in the units of its inputs and targets."""

    def __init__(self, estimator: Any) -> None:
        if estimator.encoder_ is not None:
            raise ValueError(
                "expected an estimator that was fitted to numbers, got one of a data frame with other cells; encode it "
                "by rfgp.sklearn.TableEncoder first"
            )
        self.inner = source_of(estimator.model_)
        self.has_outputs = self.inner.has_outputs
        inputs, targets = estimator.x_scaler_, estimator.y_scaler_
        self.scales = inputs.scales
        self.offset, self.unit = torch.from_numpy(targets.mean_), torch.from_numpy(targets.scale_)

    @property
    def bounds(self) -> Tensor | None:
        bounds = self.inner.bounds
        return None if bounds is None else in_units(bounds.double().cpu(), self.scales)

    def _standardized(self, x: Tensor) -> Tensor:
        return standardized(x.double(), self.scales)

    def functions(self, num_functions: int) -> list[Functions]:
        def scaled(functions: Functions) -> Functions:
            def values(x: Tensor) -> Tensor:
                standard = functions(self._standardized(x)).unflatten(-1, (-1, len(self.unit)))
                return (self.offset + self.unit * standard).flatten(-2)

            return values

        return [scaled(functions) for functions in self.inner.functions(num_functions)]

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = self.inner.moments(self._standardized(x))
        offset, unit = (part if mean.dim() > 1 else part[0] for part in (self.offset, self.unit))
        return offset + unit * mean, unit.square() * variance


def source_of(model: Any) -> FunctionSource:
    """The functions of a fitted model, or a ValueError where there are none."""
    if isinstance(model, FunctionSource):
        return model
    if isinstance(model, ExactGP):
        return WeightSpaceSource(_with_landmarks(model))
    if isinstance(model, AveragedGP):
        return AveragedSource(model)
    if isinstance(getattr(model, "model_", None), WeightSpaceGP | AveragedGP) and hasattr(model, "y_scaler_"):
        return EstimatorSource(model)
    what = "a fitted rfgp.WeightSpaceGP, gpytorch.models.ExactGP or rfgp.sklearn.RandomFeatureGPRegressor"
    checks.instance("model", model, WeightSpaceGP, what, "others have no functions that are drawn")
    return WeightSpaceSource(model)


@torch.no_grad()
def _with_landmarks(model: Any) -> WeightSpaceGP:
    """An exact model in weight space: with every training row as a landmark nothing is lost."""
    inputs, likelihood = model.train_inputs, model.likelihood
    is_plain = inputs is not None and len(inputs) == 1 and model.train_targets.dim() == 1
    if not is_plain or type(likelihood) is not GaussianLikelihood or not hasattr(model, "covar_module"):
        raise ValueError(
            "expected an ExactGP with covar_module, mean_module, a GaussianLikelihood, and targets of shape (N,), got "
            "another; pass a model of each output"
        )
    x, y = inputs[0].reshape(len(model.train_targets), -1), model.train_targets
    kernel = LandmarkKernel(model.covar_module, x.unique(dim=0))
    return WeightSpaceGP(kernel, likelihood, model.mean_module).condition(x, y)
