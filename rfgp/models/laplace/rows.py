"""What a model by Laplace's approximation is made of and conditioned on, checked."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import torch
from gpytorch.means import LinearMean, Mean, MultitaskMean
from torch import Tensor

from ..._support import checks
from ...approximation.reference_tensor import reference_tensor
from ...data.base import Source
from ...data.batches import batches
from ...inference.latent.latent_terms import (
    ClassFunctions,
    LatentLikelihood,
    OneFunction,
    TaskFunctions,
    latent_likelihood,
)
from ...likelihoods.counts import CountLikelihood, checked_exposure
from ...passes import Shard

if TYPE_CHECKING:
    from gpytorch.likelihoods import Likelihood

    from ...approximation.feature_kernel import FeatureKernel
    from .model import LaplaceGP


class LaplaceRows:
    """The rows of a fit as checked re-iterable batches, from inputs, targets and exposures, or from a loader."""

    def __init__(self, model: LaplaceGP, x: Any, y: Any, exposure: Any = None) -> None:
        if isinstance(x, Shard):
            raise ValueError("expected the rows of all ranks for a LaplaceGP, got the Shard of one; pass all rows")
        self.model, self.x, self.y = model, x, y
        checked = batches(x, y, exposure)
        self._checked = [self._check(*batch) for batch in checked] if isinstance(x, Tensor) else None
        if self._checked is None and iter(x) is x:
            raise ValueError(
                f"expected batches that can be gone through again, got {type(x).__name__}, which is used up after one "
                "pass; pass a list or a DataLoader"
            )

    @property
    def num_held(self) -> int | None:
        """How many rows there are, if tensors hold them."""
        return None if self._checked is None else sum(len(x) for x, *_ in self._checked)

    def take(self, rows: Tensor) -> Self:
        """Some of the rows of tensors."""
        twin = copy.copy(self)
        twin.x, twin.y = self.x[rows], self.y[rows]
        twin._checked = [(x[rows], y[rows], exposure[rows]) for x, y, exposure in self]
        return twin

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        if self._checked is not None:
            yield from self._checked
            return
        for batch in batches(self.x, self.y, None):
            yield self._check(*batch)

    def _check(self, x: Any, y: Any, exposure: Any) -> tuple[Tensor, Tensor, Tensor]:
        model = self.model
        checks.finite(checks.inputs(x).detach())
        if x.dim() != 2:
            raise ValueError(f"expected training inputs of shape (N, d), got {tuple(x.shape)}; fit one model per batch")
        checks.same_kind(x, reference_tensor(model.covar_module, x), "x", "the kernel")
        return x, model.latent.targets(y, x), self._exposures(exposure, x, y)

    def _exposures(self, exposure: Any, x: Tensor, y: Tensor) -> Tensor:
        """Exposures (N, 1) or (N, T) in float64, ones where there are none."""
        if exposure is None:
            return x.new_ones(len(x), 1, dtype=torch.float64)
        if isinstance(self.x, Source):
            raise ValueError("expected batches (x, y), got noise beside them; the likelihood of a LaplaceGP has it")
        if not isinstance(self.model.likelihood, CountLikelihood):
            raise ValueError(
                "expected batches (x, y), got noise or exposure beside them: the likelihood of a LaplaceGP has the "
                f"noise, and {type(self.model.likelihood).__name__} has no exposure; use a PoissonLikelihood or a "
                "NegativeBinomialLikelihood of rfgp.likelihoods"
            )
        values = checked_exposure(exposure)
        if values.shape != y.shape or values.device != x.device:
            raise ValueError(
                f"expected exposure of the shape of y, {tuple(y.shape)}, on {x.device}, got {tuple(values.shape)} on "
                f"{values.device}; pass one for each count"
            )
        return values.double().reshape(len(x), -1)


def latent_functions(kernel: FeatureKernel, likelihood: Likelihood, hessian: str) -> LatentLikelihood:
    """The latent functions of a kernel and a likelihood; a ValueError for parts that do not go together."""
    latent, count = latent_likelihood(likelihood, hessian), num_tasks(kernel)
    if count is None:
        return latent
    if not isinstance(latent, OneFunction):
        raise ValueError(
            f"expected a likelihood of one latent function for the cells of tasks, got {type(likelihood).__name__}; "
            "use a scalar kernel for classes"
        )
    return TaskFunctions(latent, count)


def check_parts(kernel: FeatureKernel, mean: Any, num_functions: int) -> None:
    """Raise a ValueError where the kernel or the mean are not those of so many latent functions."""
    if kernel.has_output_factor:
        _check_tasks(kernel, mean, num_functions)
        return
    if not isinstance(mean, Mean) or isinstance(mean, MultitaskMean):
        raise ValueError(
            f"expected a mean function of one output, got {type(mean).__name__}; give it a batch shape for classes"
        )
    allowed = [torch.Size()] if num_functions == 1 else [torch.Size(), torch.Size([num_functions])]
    scale, inner = kernel.scale_shape, kernel.unscaled
    batch = mean.weights.shape[:-2] if isinstance(mean, LinearMean) else getattr(mean, "batch_shape", torch.Size())
    if inner.batch_shape or scale not in allowed or batch not in allowed:
        wrong = next(shape for shape in (inner.batch_shape, scale, batch) if shape)
        raise ValueError(
            f"expected batch shapes () or (Q,) of output scale and mean for Q = {num_functions} latent functions, and "
            f"() inside the features, got {tuple(wrong)}; batch only the ScaleKernel and the mean, over classes"
        )


def num_tasks(kernel: FeatureKernel) -> int | None:
    """The number of tasks of a separable kernel; None for a scalar kernel."""
    if not kernel.has_output_factor:
        return None
    if kernel.batch_shape or kernel.separated() is None:
        raise ValueError(
            "expected a kernel of one output, or a separable one of several tasks, such as a MultitaskKernel, got "
            "another; make a model for each output"
        )
    none = torch.zeros(1, 1)
    return int(kernel.num_outputs_per_input(none, none))


def _check_tasks(kernel: FeatureKernel, mean: Any, count: int) -> None:
    """Raise a ValueError where the mean is not one of all tasks, or for each of them."""
    means = list(mean.base_means) if isinstance(mean, MultitaskMean) else [mean]
    if not isinstance(mean, Mean) or len(means) not in (1, count) or any(getattr(m, "batch_shape", ()) for m in means):
        raise ValueError(
            f"expected a mean function of all tasks, or a MultitaskMean of {count}, got {type(mean).__name__}; use one"
        )


def check_local(kernel: FeatureKernel, latent: LatentLikelihood) -> None:
    """Raise a ValueError where what features leave over cannot be modeled inside blocks."""
    if not kernel.has_residual_covariance:
        raise ValueError(
            "expected landmarks for block_size, whose features leave over a process of their own, got other features; "
            'use rfgp.approximate(kernel, num_features, method="landmarks", train_inputs=x)'
        )
    if isinstance(latent, ClassFunctions):
        if latent.likelihood.mixing_weights is not None:
            raise ValueError(
                "expected a SoftmaxLikelihood without mixing weights for block_size, got one with them; use "
                "SoftmaxLikelihood(num_classes=C, mixing_weights=False)"
            )
        if not latent.has_full_hessian:
            raise ValueError(
                f'expected hessian="full" for block_size, got {latent.hessian!r}; use it, or leave block_size out'
            )


def checked_start(start: Tensor | None, shape: tuple[int, int]) -> Tensor | None:
    """Weights in float64, or a ValueError where they are not like those that are searched for."""
    if start is None:
        return None
    if checks.floating(start, "start").shape != shape:
        raise ValueError(f"expected start of shape {shape}, got {tuple(start.shape)}; take the mode")
    return checks.finite(start.detach(), "start").double()
