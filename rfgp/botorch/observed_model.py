"""A WeightSpaceGP with its observations as BoTorch's models keep them: parameters, training and state."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, Self

import torch
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean, MultitaskMean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.models import GP
from torch import Tensor

from ..models import WeightSpaceGP
from ..models.record import Record
from ..training import FitSummary, fit
from .checks import check_model
from .functions import Functions
from .observed import Observed, ObservedPart, has_given_noise


class ObservedModel(GPyTorchModel, GP):
    """The part of a :class:`WeightSpaceModel` that learns."""

    gp: WeightSpaceGP

    def __init__(
        self,
        gp: WeightSpaceGP,
        observed: Observed,
        outcome_transform: OutcomeTransform | None,
        input_transform: InputTransform | None,
    ) -> None:
        super().__init__()
        check_model(gp)
        self.gp, self._observed = gp, observed
        self._outputs = tuple(range(gp.num_outputs))
        self._is_conditioned = False
        self._functions: Functions | None = None
        self._record: Record | None = None
        if outcome_transform is not None:
            self.outcome_transform = outcome_transform
        if input_transform is not None:
            self.input_transform = input_transform

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of the observations."""
        return self.gp.likelihood

    @property
    def covar_module(self) -> Any:
        """The kernel with features."""
        return self.gp.covar_module

    @property
    def mean_module(self) -> Mean:
        """The mean function."""
        return self.gp.mean_module

    @property
    def num_outputs(self) -> int:
        """The number m of outputs."""
        return len(self._outputs)

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the observations: () until it is conditioned on batches of them."""
        return self._observed.batch_shape

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """The inputs of all observations, (..., N, d): in evaluation mode transformed, as those of BoTorch's models."""
        x = self._observed.inputs
        if not self._has_transformed_inputs:
            return (x,)
        with torch.no_grad():
            return (self.input_transform.preprocess_transform(x),)

    @property
    def _has_transformed_inputs(self) -> bool:  # type: ignore[override]
        return not self.training and hasattr(self, "input_transform")

    @property
    def _original_train_inputs(self) -> Tensor:  # type: ignore[override]
        return self._observed.inputs

    @property
    def train_targets(self) -> Tensor:
        """All observations, transformed, (..., N), or (..., m, N) for several outputs."""
        targets = self._observed.targets
        return targets.squeeze(-1) if self.num_outputs == 1 else targets.mT

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior of all functions at inputs (..., N, d), before outcomes are untransformed."""
        x = self.transform_inputs(x)
        mean, covariance = self.mean_module(x), self.covar_module(x)
        if not self.covar_module.has_output_factor:
            return MultivariateNormal(mean, covariance)
        if not isinstance(self.mean_module, MultitaskMean):
            mean = mean.unsqueeze(-1).expand(*mean.shape, self.gp.num_outputs)
        return MultitaskMultivariateNormal(mean, covariance)

    def __call__(self, x: Tensor) -> MultivariateNormal:
        """In train mode the prior, and otherwise the posterior at transformed inputs (..., q, d), as in an ExactGP."""
        prior_or_posterior: Any = super().__call__ if self.training else self._present().distribution
        result: MultivariateNormal = prior_or_posterior(x)
        return result

    def fit(self, **options: Any) -> FitSummary:
        """Learn kernel, noise and mean from the transformed observations by :func:`rfgp.fit`, with its options."""
        x, y, noise = self._rows()
        if self._is_conditioned:
            self.gp = copy.deepcopy(self.gp)
            if noise is not None and has_given_noise(self.likelihood):
                self.likelihood.noise = noise
        with _no_advice():
            summary = fit(self.gp, x, y, noise=noise, **{"progress": False, **options})
        self._is_conditioned = False
        self._functions, self._record = Functions.of(self.gp), Record(self._tensors())
        return summary

    def custom_fit(
        self,
        mll: MarginalLogLikelihood,
        closure: Callable[..., Any] | None = None,
        closure_kwargs: dict[str, Any] | None = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> MarginalLogLikelihood:
        """:meth:`fit` for ``fit_gpytorch_mll``; returns the marginal log likelihood in evaluation mode.

        :param optimizer_kwargs: options of :func:`rfgp.fit`; ``{"options": {"maxiter": n}}`` of BoTorch's own optimizer
            is ``max_evaluations=n``.
        """
        if closure is not None or closure_kwargs is not None or "optimizer" in kwargs:
            raise ValueError(
                "expected neither a closure nor an optimizer, got one; rfgp.fit trains the model: pass its options in "
                "optimizer_kwargs"
            )
        self.fit(**_options_of_fit(optimizer_kwargs or {}))
        return mll.eval()

    def _rows(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Transformed inputs, targets and noise variances as a WeightSpaceGP takes them."""
        return self._observed.rows(self.gp, self.num_outputs, getattr(self, "input_transform", None))

    def _present(self) -> Functions:
        """The functions of the present parameters; the statistics are computed again where these have changed."""
        if self._is_conditioned and self._functions is not None:
            return self._functions
        tensors = self._tensors()
        if self._functions is None or self._record is None or not self._record.is_of(tensors):
            if self._observed.parts:
                x, y, noise = self._rows()
                with torch.no_grad(), _no_advice():
                    self.gp.condition(x, y, noise)
            self._functions, self._record = Functions.of(self.gp), Record(self._tensors())
        return self._functions

    def _tensors(self) -> dict[str, Tensor]:
        """What the functions depend on, by name."""
        return dict(chain(self.named_parameters(), self.named_buffers()))

    def _with(self, functions: Functions, observed: Observed) -> Self:
        """A copy with other functions and observations, which shares all else."""
        result = copy.copy(self)
        result._modules = self._modules.copy()
        result._functions, result._observed, result._is_conditioned = functions, observed, True
        return result

    def _set_transformed_inputs(self) -> None:
        """Training inputs are transformed where they are asked for."""

    def _revert_to_original_inputs(self) -> None:
        """See above."""

    def _extract_targets_and_noise(self) -> tuple[Tensor, Tensor | None]:
        return self._observed.targets, self._observed.noise

    def _restore_targets_and_noise(self, Y: Tensor, Yvar: Tensor | None, strict: bool) -> None:
        self._observed = Observed([ObservedPart(self._observed.inputs, Y, Yvar)], self.batch_shape)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load parameters; the statistics are computed again from the observations of this model."""
        result = super().load_state_dict(*args, **kwargs)
        self._record = None
        return result

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        result = super()._apply(fn, recurse)
        self._observed = self._observed.mapped(fn, fn)
        if self._is_conditioned and self._functions is not None:
            kernel, mean = copy.deepcopy((self._functions.kernel, self._functions.mean))
            self._functions = self._functions._replace(kernel=kernel._apply(fn), mean=mean._apply(fn))
        return result


@contextmanager
def _no_advice() -> Iterator[None]:
    """No advice to take the exact kernel while there are few observations yet."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*the exact kernel costs less")
        yield


def _options_of_fit(optimizer_kwargs: dict[str, Any]) -> dict[str, Any]:
    """Options of rfgp.fit, where BoTorch's optimizer has a number of iterations."""
    options = dict(optimizer_kwargs)
    of_scipy = dict(options.pop("options", {}))
    if "maxiter" in of_scipy:
        options["max_evaluations"] = of_scipy.pop("maxiter")
    if of_scipy:
        raise ValueError(
            f"expected maxiter alone among the options of BoTorch's optimizer, got {', '.join(of_scipy)}; rfgp.fit "
            "trains the model: pass its options in optimizer_kwargs"
        )
    return options
