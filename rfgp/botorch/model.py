"""A model for BoTorch whose posterior is one of weights: it costs the same after a million observations."""

from __future__ import annotations

from typing import Any, Self

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.cross_validation import CVResults
from botorch.models.model import FantasizeMixin
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.models.utils import validate_input_scaling
from botorch.posteriors import Posterior
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from torch import Tensor

from .._support import checks
from ..inference import LeaveGroupOut, LeaveOneOut
from ..models import WeightSpaceGP
from .checks import check_observations, check_points, check_training_data, checked_noise, output_numbers
from .cross_validation import check_outcome_transform, results
from .defaults import approximated, default_kernel, default_likelihood, default_mean
from .functions import Functions
from .observed import Observed, ObservedPart, has_given_noise
from .observed_model import ObservedModel
from .samples import ModelSamples


class WeightSpaceModel(ObservedModel, FantasizeMixin):
    r"""A :class:`rfgp.models.WeightSpaceGP` as a model of BoTorch: SingleTaskGP at O(N D^2) for N observations.

    .. math:: f(x) = \phi(x)\, w + m(x), \qquad w \mid y \sim N\big(B^{-1} \Phi^\top S^{-1} (y - m),\, B^{-1}\big)

    Posteriors do not depend on N, and fantasies of q observations take O(D^2 q). ``fit_gpytorch_mll`` trains the model
    by :func:`rfgp.fit`. Several outputs are independent, or correlated with a MultitaskKernel.

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
    >>> model.posterior(torch.rand(5, 3, 2, dtype=torch.float64)).rsample(torch.Size([7])).shape
    torch.Size([7, 5, 3, 1])
    """

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
        check_training_data(train_X, train_Y, train_Yvar)
        if kernel is not None:
            checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel", "such as gpytorch.kernels.RBFKernel()")
        if not isinstance(outcome_transform, _DefaultType):
            checks.part("outcome_transform", outcome_transform, "botorch.models.transforms.Standardize(1)")
        checks.part("input_transform", input_transform, "botorch.models.transforms.Normalize(2)")
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
        features = approximated(exact, num_features, x, count, seed)
        likelihood = default_likelihood(count, noise) if likelihood is None else likelihood
        gp = WeightSpaceGP(features, likelihood, default_mean(count) if mean is None else mean).to(train_X)
        super().__init__(gp, Observed([ObservedPart(train_X, y, noise)]), outcome, input_transform)

    @classmethod
    def from_model(
        cls,
        gp: WeightSpaceGP,
        outcome_transform: OutcomeTransform | None = None,
        input_transform: InputTransform | None = None,
    ) -> Self:
        """The model of BoTorch of a fitted model, whose rows may have come from a loader and are not kept.

        :param gp: a fitted model of real outputs, with one draw of the weights and without blocks.
        :param outcome_transform: the trained transform that its targets have seen.
        :param input_transform: the trained transform that its inputs have seen.
        :raises ValueError: for another kind of model.
        """
        model = cls.__new__(cls)
        ObservedModel.__init__(model, gp, Observed(), outcome_transform, input_transform)
        return model.eval()

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """The joint posterior of the functions at X (..., q, d), of batch shape (...) and event shape (q, m).

        :param output_indices: which outputs; default: all.
        :param observation_noise: whether to add noise, or its variances (..., q, m), of transformed observations. Of
            fixed noise the mean is added.
        :raises ValueError: for inputs that are not finite, other outputs, or noise of another shape.
        """
        self.eval()
        check_points(X, self.batch_shape)
        if posterior_transform is not None and not callable(posterior_transform):
            got = type(posterior_transform).__name__
            raise ValueError(f"expected a transform of posteriors, got {got}; such as a ScalarizedPosteriorTransform")
        x, functions = self.transform_inputs(X), self._present()
        outcome = getattr(self, "outcome_transform", None)
        noise = None if observation_noise is False else self._noise_of_rows(functions, x, observation_noise)
        if output_indices is not None:
            output_indices = output_numbers(output_indices, self.num_outputs)
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
        """The model given further observations, at O(D^2 q). It shares kernel, likelihood and mean.

        :param X: (..., q, d).
        :param Y: (..., q, m); it may have batch dimensions that X lacks, such as one for fantasies.
        :param noise: the variances of their noise, (..., q, m), in units of transformed observations; default: that of
            the likelihood, and of fixed noise the mean.
        :param kwargs: not used.
        :raises ValueError: for observations of another number of outputs, or that are not finite.
        """
        self.eval()
        check_observations(X, Y, self.num_outputs)
        y = self.outcome_transform(Y, X=X)[0] if hasattr(self, "outcome_transform") else Y
        x, functions = self.transform_inputs(X), self._present()
        covariance = self._noise_of_rows(functions, x, True if noise is None else checks.floating(noise, "noise"))
        if has_given_noise(self.likelihood):
            variances = covariance.diagonal(dim1=-2, dim2=-1) - functions.noise.diagonal()
            noise = variances.to(y.dtype).expand(*variances.shape[:-2], *y.shape[-2:])
        return self._with(functions.conditioned(x, y, covariance), self._observed.plus(ObservedPart(X, y, noise)))

    @torch.no_grad()
    def leave_out(self, groups: Tensor | int | None = None, observation_noise: bool = True) -> CVResults:
        """The predictions of all observations, each without its own, as BoTorch's ``loo_cv`` gives them.

        :param groups: labels of groups that are left out together, (N,), or their number; default: every observation
            alone.
        :param observation_noise: whether variances are those of observations.
        :raises ValueError: where no rows are kept, or the model is conditioned, of some outputs, or transformed
            otherwise
            than by Standardize.
        """
        outcome = getattr(self, "outcome_transform", None)
        if self._is_conditioned:
            raise ValueError("expected a model of all outputs that is not conditioned, got another; leave out before")
        check_outcome_transform(outcome)
        self._present()
        x, targets, noise = self._rows()
        if groups is None:
            left_out: LeaveOneOut | LeaveGroupOut = self.gp.leave_one_out(x, targets, noise)
        else:
            left_out = self.gp.leave_group_out(x, targets, groups, noise)
        variances = self._observed.noise if has_given_noise(self.likelihood) else None
        return results(self, left_out, self._observed.targets, variances, outcome, observation_noise)

    def subset_output(self, idcs: list[int]) -> WeightSpaceModel:
        """The model of the outputs with these numbers, with the parameters that it has now."""
        idcs = output_numbers(idcs, self.num_outputs)
        observed = self._observed.mapped(lambda x: x, lambda y: y[..., idcs])
        result = self._with(self._present().select(idcs), observed)
        result._outputs = tuple(self._outputs[index] for index in idcs)
        if hasattr(self, "outcome_transform"):
            result.outcome_transform = self.outcome_transform.subset_output(idcs)
        return result

    def sample_functions(self, num_functions: int) -> ModelSamples:
        """S draws of functions from the posterior, for Thompson sampling.

        They are one callable from (..., q, d) to (S, ..., q, m), which can be pickled, and is differentiable in X.
        """
        count = checks.positive_integer("num_functions", num_functions)
        if self.batch_shape:
            raise ValueError(
                f"expected a model without batch dimensions, got {tuple(self.batch_shape)}; draw from the posterior"
            )
        self.eval()
        return ModelSamples(self._present(), count, self)

    def _noise_of_rows(self, functions: Functions, x: Tensor, given: bool | Tensor) -> Tensor:
        """The noise covariance of rows, (..., q, m, m), that of the likelihood where variances are not given."""
        has_given = has_given_noise(self.likelihood)
        variances = None
        if not isinstance(given, bool):
            variances = checked_noise(given, x, self.num_outputs)
        elif has_given:
            variances = self._observed.mean_noise(self.likelihood, self._outputs)
        return functions.noise_of_rows(x.shape[-2], variances, has_given)
