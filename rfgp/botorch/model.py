"""A model for BoTorch whose posterior is one of weights: it costs the same after a million observations."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple, Self

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.cross_validation import CVResults
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.model import FantasizeMixin
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.models.utils import validate_input_scaling
from botorch.posteriors import Posterior
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import DirichletClassificationLikelihood, Likelihood
from gpytorch.means import Mean, MultitaskMean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.models import GP
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from .. import _checks
from ..inference import LeaveGroupOut, LeaveOneOut
from ..models import WeightSpaceGP
from ..models.record import Record
from ..training import FitSummary, fit
from .defaults import approximated, default_kernel, default_likelihood, default_mean
from .functions import Functions, has_known_noise


class Observations(NamedTuple):
    """Observations with their inputs.

    :param x: inputs, not transformed, (..., n, d).
    :param y: transformed observations, (..., n, m).
    :param noise: their noise variances, of the shape of y, where these are known.
    """

    x: Tensor
    y: Tensor
    noise: Tensor | None


class WeightSpaceModel(GPyTorchModel, GP, FantasizeMixin):
    r"""A :class:`rfgp.models.WeightSpaceGP` as a model of BoTorch: SingleTaskGP at O(N D^2) for N observations.

    .. math:: f(x) = \phi(x)\, w + m(x), \qquad w \mid y \sim N\big(B^{-1} \Phi^\top S^{-1} (y - m),\, B^{-1}\big)

    A posterior costs the same whatever N is, and so do fantasies: q new observations update a root of
    :math:`B^{-1}` at O(D^2 q), and those of a batch keep q columns each beside the root that they share. Every
    acquisition function of BoTorch takes the model. ``fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood,
    model))`` trains it by :func:`rfgp.fit`, as :meth:`fit` does.

    Several outputs are independent given their common kernel, with one Gram matrix for all, where ``kernel`` is of one
    output, and correlated where it is a MultitaskKernel.

    :param train_X: inputs (N, d), of the dtype of the model.
    :param train_Y: observations (N, m).
    :param train_Yvar: known noise variances (N, m); default: noise is learned.
    :param kernel: an exact kernel, which is approximated, or one made by :func:`rfgp.approximate`; default: BoTorch's
        RBFKernel with a lengthscale per input and its prior.
    :param likelihood: a Gaussian likelihood; for several outputs a multitask one. Default: BoTorch's prior of noise,
        for every output.
    :param mean: a mean function that a WeightSpaceGP takes; default: a constant for every output.
    :param num_features: the number D of features of an exact kernel.
    :param seed: the seed of its features; default: drawn from PyTorch's default generator.
    :param outcome_transform: BoTorch's transform of observations, or None; default: Standardize.
    :param input_transform: BoTorch's transform of inputs, without parameters to learn.
    :raises ValueError: for batches of training data, or parts that a WeightSpaceGP does not take.

    Source: Balandat et al., BoTorch (2020), for the interface; T Eq. B.13 to B.20.

    >>> x = torch.rand(50, 2, dtype=torch.float64)
    >>> model = WeightSpaceModel(x, torch.sin(6 * x).sum(-1, keepdim=True), num_features=64, seed=0)
    >>> posterior = model.posterior(torch.rand(5, 3, 2, dtype=torch.float64))
    >>> posterior.rsample(torch.Size([7])).shape
    torch.Size([7, 5, 3, 1])
    """

    gp: WeightSpaceGP

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        kernel: Kernel | None = None,
        likelihood: Likelihood | None = None,
        mean: Mean | None = None,
        num_features: int = 1024,
        seed: int | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
    ) -> None:
        _checks.inputs(train_X, name="train_X")
        if train_X.dim() != 2:
            raise ValueError(
                f"expected train_X of shape (N, d), got {tuple(train_X.shape)}; make a model for each batch, and a "
                "ModelListGP of them"
            )
        _check_shapes(train_X, train_Y, train_Yvar)
        if kernel is not None:
            _checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel", "such as gpytorch.kernels.RBFKernel()")
        if not isinstance(outcome_transform, _DefaultType):
            _checks.part("outcome_transform", outcome_transform, "botorch.models.transforms.Standardize(1)")
        _checks.part("input_transform", input_transform, "botorch.models.transforms.Normalize(2)")
        count = train_Y.shape[-1]
        outcome = Standardize(m=count) if isinstance(outcome_transform, _DefaultType) else outcome_transform
        with torch.no_grad():
            x = self.transform_inputs(train_X, input_transform)
        y, noise = train_Y, train_Yvar
        if outcome is not None:
            outcome.train()
            y, noise = outcome(Y=train_Y, Yvar=train_Yvar, X=x)
        validate_input_scaling(train_X=x, train_Y=y, train_Yvar=noise, check_nans_only=kernel is not None)
        exact = default_kernel(x.shape[-1], count) if kernel is None else kernel
        known = default_likelihood(count, noise) if likelihood is None else likelihood
        features = approximated(exact, num_features, x, count, seed)
        self._start(
            WeightSpaceGP(features, known, default_mean(count) if mean is None else mean).to(train_X),
            Observations(train_X, y, noise),
            outcome,
            input_transform,
        )

    def _start(
        self,
        gp: WeightSpaceGP,
        observations: Observations | None,
        outcome_transform: OutcomeTransform | None,
        input_transform: InputTransform | None,
    ) -> None:
        super().__init__()
        _check_model(gp)
        self.gp = gp
        self._observations: list[Observations] = [] if observations is None else [observations]
        self._outputs = tuple(range(gp.num_outputs))
        self._batch_shape = torch.Size()
        self._is_conditioned = False
        self._functions: Functions | None = None
        self._record: Record | None = None
        if outcome_transform is not None:
            self.outcome_transform = outcome_transform
        if input_transform is not None:
            self.input_transform = input_transform

    @classmethod
    def from_model(
        cls,
        gp: WeightSpaceGP,
        outcome_transform: OutcomeTransform | None = None,
        input_transform: InputTransform | None = None,
    ) -> Self:
        """The model of BoTorch of a fitted model, whose rows may have come from a loader and are not kept.

        :param gp: a fitted model of real outputs, with one draw of the weights and without blocks.
        :param outcome_transform: the transform, trained before, that its targets have seen.
        :param input_transform: the transform, trained before, that its inputs have seen.
        :raises ValueError: for another kind of model.

        >>> import gpytorch, rfgp
        >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=1)
        >>> gp = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
        >>> model = WeightSpaceModel.from_model(gp.condition(torch.rand(99, 1), torch.rand(99)))
        >>> model.posterior(torch.rand(3, 1)).mean.shape
        torch.Size([3, 1])
        """
        model = cls.__new__(cls)
        model._start(gp, None, outcome_transform, input_transform)
        return model.eval()

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
        return self._batch_shape

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """The inputs of all observations, (..., N, d), not transformed.

        :raises ValueError: where no rows are kept.
        """
        return (self._joined(0),)

    @property
    def train_targets(self) -> Tensor:
        """All observations, transformed, (..., N), or (..., m, N) for several outputs.

        :raises ValueError: where no rows are kept.
        """
        targets = self._joined(1)
        return targets.squeeze(-1) if self.num_outputs == 1 else targets.mT

    def _joined(self, field: int) -> Tensor:
        """Inputs (0), targets (1) or noise variances (2) of all observations together."""
        if not self._observations:
            raise ValueError("expected a model with rows, got one made by from_model, which keeps none; pass train_X")
        parts: list[Any] = [known[field] for known in self._observations]
        if len(parts) == 1:
            return parts[0]
        return torch.cat([part.expand(*self._batch_shape, *part.shape[-2:]) for part in parts], dim=-2)

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

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """The joint posterior of the functions at q points.

        :param X: (..., q, d).
        :param output_indices: which outputs; negative numbers count from the last. Default: all.
        :param observation_noise: whether to add noise, or its variances (..., q, m), of transformed observations. Where
            the noise of every observation is known, its mean is added.
        :param posterior_transform: a transform of the result.
        :returns: a GPyTorchPosterior of batch shape (...) and event shape (q, m), or what an outcome transform that is
            not linear makes of one.
        :raises ValueError: for inputs that are not finite, other outputs, or noise of another shape.
        """
        self.eval()
        _checks.finite(_checks.inputs(X, name="X").detach(), "X")
        self._check_batch(X)
        if posterior_transform is not None and not callable(posterior_transform):
            got = type(posterior_transform).__name__
            raise ValueError(f"expected a transform of posteriors, got {got}; such as a ScalarizedPosteriorTransform")
        x, functions = self.transform_inputs(X), self._present()
        outcome = getattr(self, "outcome_transform", None)
        noise = None if observation_noise is False else self._noise(functions, x, observation_noise)
        if output_indices is not None:
            output_indices = self._numbers(output_indices)
            functions = functions.select(output_indices)
            noise = None if noise is None else noise[..., output_indices, :][..., output_indices]
            outcome = None if outcome is None else outcome.subset_output(output_indices)
        if type(outcome) is Standardize and outcome._outputs is None:
            units, outcome = (outcome.means, outcome.stdvs), None
        else:
            units = None
        posterior: Posterior = GPyTorchPosterior(functions.distribution(x, noise, units))
        if outcome is not None:
            posterior = outcome.untransform_posterior(posterior, X=x)
        return posterior if posterior_transform is None else posterior_transform(posterior=posterior, X=x)

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> WeightSpaceModel:
        """The model given further observations, with the same parameters, at O(D^2 q).

        The result shares the root of the covariance of the weights with this model where X has batch dimensions, and
        its posterior is not changed by what happens to this model later. It shares kernel, likelihood and mean: set
        parameters on a ``copy.deepcopy`` of it.

        :param X: (..., q, d).
        :param Y: (..., q, m); it may have batch dimensions that X lacks, such as one for fantasies.
        :param noise: the variances of their noise, (..., q, m), in units of transformed observations; default: that of
            the likelihood, and the mean of all noise where that of every observation is known.
        :param kwargs: what BoTorch passes to other models.
        :returns: a model with the batch shape of X and Y.
        :raises ValueError: for observations of another number of outputs, or that are not finite.
        """
        self.eval()
        _checks.inputs(X, name="X")
        _checks.floating(Y, "Y")
        if Y.shape[-1:] != (self.num_outputs,) or X.shape[-2:-1] != Y.shape[-2:-1]:
            raise ValueError(
                f"expected X (..., q, d) and Y (..., q, {self.num_outputs}), got {tuple(X.shape)} and "
                f"{tuple(Y.shape)}; give every output a column"
            )
        _checks.finite(X.detach(), "X")
        _checks.finite(Y.detach(), "Y")
        y = self.outcome_transform(Y, X=X)[0] if hasattr(self, "outcome_transform") else Y
        x, functions = self.transform_inputs(X), self._present()
        covariance = self._noise(functions, x, True if noise is None else noise)
        if has_known_noise(self.likelihood):
            known = covariance.diagonal(dim1=-2, dim2=-1) - functions.noise.diagonal()
            noise = known.to(y.dtype).expand(*known.shape[:-2], *y.shape[-2:])
        return self._with(functions.conditioned(x, y, covariance), Observations(X, y, noise))

    @torch.no_grad()
    def leave_out(self, groups: Tensor | int | None = None, observation_noise: bool = True) -> CVResults:
        """The predictions of all observations, each without its own, as BoTorch's ``loo_cv`` gives them.

        :param groups: labels of groups that are left out together, (N,), or their number, as in
            :meth:`rfgp.WeightSpaceGP.leave_group_out`; default: every observation alone.
        :param observation_noise: whether variances are those of observations; default: True.
        :returns: BoTorch's ``CVResults``: the model, a posterior of batch shape (N,) and event shape (1, m), and the
            observations (N, 1, m) with their noise variances where these are known, in the units of the observations.
        :raises ValueError: where no rows are kept, where the model is conditioned or of some of the outputs, and for an
            outcome transform other than Standardize.
        """
        outcome = getattr(self, "outcome_transform", None)
        if self._is_conditioned:
            raise ValueError("expected a model of all outputs that is not conditioned, got another; leave out before")
        if outcome is not None and type(outcome) is not Standardize:
            raise ValueError(
                f"expected Standardize or no outcome transform, got {type(outcome).__name__}; leave it out"
            )
        self._present()
        y, known = self._joined(1), self._joined(2) if has_known_noise(self.likelihood) else None
        x, targets, noise = self._rows()
        if groups is None:
            left: LeaveOneOut | LeaveGroupOut = self.gp.leave_one_out(x, targets, noise)
        else:
            left = self.gp.leave_group_out(x, targets, groups, noise)
        variance = left.variance if observation_noise else left.latent_variance
        mean, variance = (v.reshape(len(x), 1, -1) for v in (left.mean, variance))
        observed = y.unsqueeze(-2)
        if known is not None:
            known = known.unsqueeze(-2)
        if outcome is not None:
            mean, variance = outcome.means + outcome.stdvs * mean, outcome.stdvs.square() * variance
            observed = outcome.means + outcome.stdvs * observed
            known = None if known is None else outcome.stdvs.square() * known
        normal = MultivariateNormal if mean.shape[-1] == 1 else MultitaskMultivariateNormal
        values = mean.squeeze(-1) if mean.shape[-1] == 1 else mean
        posterior = GPyTorchPosterior(normal(values, DiagLinearOperator(variance.flatten(1))))
        return CVResults(self, posterior, observed, known)

    def subset_output(self, idcs: list[int]) -> WeightSpaceModel:
        """The model of some of the outputs, with the parameters that it has now.

        :param idcs: their numbers; negative ones count from the last.
        :raises ValueError: for other numbers, or none.
        """
        idcs = self._numbers(idcs)
        result = self._with(self._present().select(idcs))
        result._outputs = tuple(self._outputs[index] for index in idcs)
        result._observations = [
            Observations(x, y[..., idcs], None if noise is None else noise[..., idcs])
            for x, y, noise in self._observations
        ]
        if hasattr(self, "outcome_transform"):
            result.outcome_transform = self.outcome_transform.subset_output(idcs)
        return result

    def sample_functions(self, num_functions: int) -> ModelSamples:
        """Draws of functions from the posterior, for Thompson sampling: one callable that can be pickled.

        :param num_functions: the number S of draws.
        :returns: a callable from (..., q, d) to (S, ..., q, m), in the units of X and Y, differentiable in X.
        :raises ValueError: for a model that is conditioned on batches of observations.
        """
        count = _checks.positive_integer("num_functions", num_functions)
        if self.batch_shape:
            raise ValueError(
                f"expected a model without batch dimensions, got {tuple(self.batch_shape)}; draw from the posterior"
            )
        self.eval()
        return ModelSamples(self._present(), count, self)

    def fit(self, **options: Any) -> FitSummary:
        """Learn kernel, noise and mean from the transformed observations by :func:`rfgp.fit`.

        :param options: those of :func:`rfgp.fit`, such as ``max_evaluations`` and ``time_limit``; progress is not shown
            by default.
        :returns: its summary.
        :raises ValueError: where there are no rows, or batches or a part of the outputs of them, or a transform of
            inputs with parameters to learn.
        """
        x, y, noise = self._rows()
        if self._is_conditioned:
            self.gp = copy.deepcopy(self.gp)
            if noise is not None and has_known_noise(self.likelihood):
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
        """What ``fit_gpytorch_mll`` does with the model: :meth:`fit`.

        :param mll: the marginal log likelihood of the model.
        :param optimizer_kwargs: options of :func:`rfgp.fit`.
        :param kwargs: what is not used, as BoTorch's own routines do.
        :returns: ``mll``, in evaluation mode.
        :raises ValueError: for a closure or an optimizer.
        """
        if closure is not None or closure_kwargs is not None or "optimizer" in kwargs:
            raise ValueError(
                "expected neither a closure nor an optimizer, got one; rfgp.fit trains the model: pass its options in "
                "optimizer_kwargs"
            )
        self.fit(**(optimizer_kwargs or {}))
        return mll.eval()

    def _rows(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Transformed inputs, targets and noise variances as a WeightSpaceGP takes them."""
        x, y = self._joined(0), self._joined(1)
        noise = self._joined(2) if has_known_noise(self.likelihood) else None
        if x.dim() > 2 or self.num_outputs != self.gp.num_outputs:
            raise ValueError(
                "expected all outputs of one set of observations, got a batch or some outputs; fit the model before it "
                "is conditioned on batches or divided"
            )
        transform = getattr(self, "input_transform", None)
        if transform is not None:
            if any(parameter.requires_grad for parameter in transform.parameters()):
                raise ValueError(
                    "expected a transform of inputs without parameters to learn, got some; set requires_grad_(False)"
                )
            with torch.no_grad():
                x = transform.preprocess_transform(x)
        if self.covar_module.has_output_factor:
            return x, y, noise
        return x, y.squeeze(-1), None if noise is None else noise.squeeze(-1)

    def _present(self) -> Functions:
        """The functions of the present parameters; the statistics are computed again where these have changed."""
        if self._is_conditioned and self._functions is not None:
            return self._functions
        tensors = self._tensors()
        if self._functions is None or self._record is None or not self._record.is_of(tensors):
            if self._observations:
                x, y, noise = self._rows()
                with torch.no_grad(), _no_advice():
                    self.gp.condition(x, y, noise)
            self._functions, self._record = Functions.of(self.gp), Record(self._tensors())
        return self._functions

    def _tensors(self) -> dict[str, Tensor]:
        """What the functions depend on, by name."""
        return dict(chain(self.named_parameters(), self.named_buffers()))

    def _with(self, functions: Functions, *added: Observations) -> Self:
        """A copy with other functions, which shares all else."""
        result = copy.copy(self)
        result._modules = self._modules.copy()
        result._functions, result._is_conditioned = functions, True
        result._observations = [*self._observations, *added]
        batches = [part.shape[:-2] for observed in added for part in observed if part is not None]
        result._batch_shape = torch.broadcast_shapes(self._batch_shape, *batches)
        return result

    def _noise(self, functions: Functions, x: Tensor, given: bool | Tensor) -> Tensor:
        """The noise covariance of rows, (..., q, m, m), in float64.

        :param given: True for that of the likelihood, or variances (..., q, m).
        """
        learned = functions.noise.expand(x.shape[-2], *functions.noise.shape)
        is_known = has_known_noise(self.likelihood)
        if given is True and not is_known:
            return learned
        variances = self._mean_noise() if isinstance(given, bool) else self._checked_noise(given, x)
        known = torch.diag_embed(variances.double().expand(*variances.shape[:-2], x.shape[-2], self.num_outputs))
        return known + learned if is_known else known

    def _check_batch(self, x: Tensor) -> None:
        """Raise a ValueError where the batch of points does not go with that of the observations."""
        try:
            torch.broadcast_shapes(x.shape[:-2], self.batch_shape)
        except RuntimeError:
            raise ValueError(
                f"expected X of shape (..., q, d) whose batch goes with {tuple(self.batch_shape)}, that of the "
                f"observations, got {tuple(x.shape)}; give X dimensions of size one"
            ) from None

    def _checked_noise(self, noise: Tensor, x: Tensor) -> Tensor:
        """Noise variances, or a ValueError where they are not those of rows (..., q, m)."""
        _checks.same_kind(_checks.floating(noise, "noise"), x, "noise", "X")
        if noise.dim() < 2 or noise.shape[-2] not in (1, x.shape[-2]) or noise.shape[-1] not in (1, self.num_outputs):
            raise ValueError(
                f"expected noise variances of shape (..., {x.shape[-2]}, {self.num_outputs}), got "
                f"{tuple(noise.shape)}; give every output a column"
            )
        if not bool((noise >= 0).all()):
            raise ValueError(f"expected noise variances of at least 0, got {float(noise.min()):g}; correct them")
        return noise

    def _numbers(self, outputs: list[int]) -> list[int]:
        """Numbers of outputs from 0, or a ValueError where there are no such outputs."""
        count = self.num_outputs
        if not isinstance(outputs, list | tuple) or not all(type(index) is int for index in outputs):
            raise ValueError(f"expected a list of numbers of outputs, got {outputs!r}; such as [0]")
        known = [index for index in outputs if -count <= index < count]
        if not known or len(known) < len(outputs):
            raise ValueError(f"expected numbers from 0 to {count - 1} of outputs, got {outputs}; correct them")
        return [index % count for index in known]

    def _mean_noise(self) -> Tensor:
        """The mean of the known noise variances, (..., 1, m)."""
        if self._observations:
            return self._joined(2).mean(dim=-2, keepdim=True)
        known: Tensor = self.likelihood.noise_covar.noise
        return known.reshape(-1, self.gp.num_outputs).mean(dim=0, keepdim=True)[:, list(self._outputs)]

    def _set_transformed_inputs(self) -> None:
        """Training inputs stay as they are: the statistics have seen the transformed ones."""

    def _revert_to_original_inputs(self) -> None:
        """See above."""

    def _extract_targets_and_noise(self) -> tuple[Tensor, Tensor | None]:
        has_noise = all(known.noise is not None for known in self._observations)
        return self._joined(1), self._joined(2) if has_noise else None

    def _restore_targets_and_noise(self, Y: Tensor, Yvar: Tensor | None, strict: bool) -> None:
        self._observations = [Observations(self._joined(0), Y, Yvar)]

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load parameters; the statistics are computed again from the observations of this model.

        The arguments are those of BoTorch's models.
        """
        result = super().load_state_dict(*args, **kwargs)
        self._record = None
        return result

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        result = super()._apply(fn, recurse)
        self._observations = [
            Observations(fn(x), fn(y), None if noise is None else fn(noise)) for x, y, noise in self._observations
        ]
        if self._is_conditioned and self._functions is not None:
            kernel, mean = copy.deepcopy((self._functions.kernel, self._functions.mean))
            self._functions = self._functions._replace(kernel=kernel._apply(fn), mean=mean._apply(fn))
        return result


class ModelSamples:
    """Draws of the functions of a model, which keep their values.

    :param functions: the functions.
    :param num_functions: the number S of draws.
    :param model: the model whose transforms of inputs and outcomes are used.

    >>> import rfgp.botorch
    >>> x = torch.rand(20, 2, dtype=torch.float64)
    >>> model = rfgp.botorch.WeightSpaceModel(x, x.sum(-1, keepdim=True))
    >>> model.sample_functions(3)(torch.rand(5, 2, dtype=torch.float64)).shape
    torch.Size([3, 5, 1])
    """

    def __init__(self, functions: Functions, num_functions: int, model: WeightSpaceModel) -> None:
        self._functions, self._weights = functions, functions.sample(num_functions)
        transforms = (getattr(model, name, None) for name in ("input_transform", "outcome_transform"))
        self._input_transform, self._outcome_transform = copy.deepcopy(tuple(transforms))

    def __call__(self, X: Tensor) -> Tensor:
        """The functions at X (..., q, d), as (S, ..., q, m).

        :raises ValueError: for bad inputs.
        """
        _checks.finite(_checks.inputs(X, name="X").detach(), "X")
        x = X if self._input_transform is None else self._input_transform(X)
        values = self._functions.values(self._weights, x)
        if self._outcome_transform is None:
            return values
        result: Tensor = self._outcome_transform.untransform(values, X=X)[0]
        return result


def _check_shapes(x: Tensor, y: Tensor, noise: Tensor | None) -> None:
    """Raise a ValueError where targets are not columns of finite numbers with a row for each of the inputs."""
    for name, values in (("train_Y", y), ("train_Yvar", noise)):
        if values is not None or name == "train_Y":
            _checks.same_kind(_checks.floating(values, name), x, name, "train_X")
    if y.dim() != 2 or y.shape[:-1] != x.shape[:-1] or not y.shape[-1]:
        raise ValueError(
            f"expected train_Y of shape {(*x.shape[:-1], 'm')}, got {tuple(y.shape)}; pass a column for every output"
        )
    if noise is not None and noise.shape != y.shape:
        raise ValueError(f"expected train_Yvar of shape {tuple(y.shape)}, got {tuple(noise.shape)}; pass variances")


def _check_model(gp: WeightSpaceGP) -> None:
    """Raise a ValueError where a model has no posterior of the weights that further rows can update."""
    _checks.instance("gp", gp, WeightSpaceGP, "a WeightSpaceGP", "make one of a kernel and a likelihood")
    is_simple = gp.block_size is None and gp.num_draws == 1 and not gp.covar_module.is_complex
    if not is_simple or isinstance(gp.likelihood, DirichletClassificationLikelihood):
        raise ValueError(
            "expected a model of real features and targets with one draw of the weights and without blocks, got "
            "another; leave out block_size and num_draws, and use the :ctr form of complex features"
        )


@contextmanager
def _no_advice() -> Iterator[None]:
    """No advice to take the exact kernel while there are few observations yet."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*the exact kernel costs less")
        yield
