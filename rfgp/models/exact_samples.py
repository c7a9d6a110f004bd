"""Functions drawn from GPyTorch's exact models whose kernels have features."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultitaskMultivariateNormal
from gpytorch.models import ExactGP
from gpytorch.models.exact_prediction_strategies import prediction_strategy
from torch import Tensor

from .._support import checks
from ..approximation.hooks.feature_operator import FeatureLinearOperator
from ..approximation.hooks.noisy_features import NoisyFeaturesLinearOperator
from ..approximation.hooks.prediction import FeaturePredictionStrategy
from ..inference import OutputFactor
from ..inference.posterior.draws import FunctionDraws, detached, drawn_weights
from ..inference.posterior.posterior import RootPosterior
from ..linalg import joined, row_chunks
from .function_samples import FunctionSamples
from .snapshot import frozen
from .weight_space import WeightSpaceGP


def sample_functions(model: WeightSpaceGP | ExactGP, num_functions: int, prior: bool = False) -> FunctionSamples:
    """Draws of functions from a model whose kernel has features, as :class:`FunctionSamples`.

    :param model: a WeightSpaceGP, or a GPyTorch ExactGP whose kernel was made by :func:`rfgp.approximate`.
    :param num_functions: the number S of draws.
    :param prior: whether they are drawn from the prior.
    :returns: one callable from (..., q, d) to (S, ..., q), or (S, ..., q, T) for several outputs; a batch of models
        takes (q, d), or inputs with its batch dimensions, to (S, ..., q).
    :raises ValueError: for another model, one without training data, or a covariance without features.

    Source: T Eq. B.18 and B.19, with draws of the weights.

    >>> import gpytorch, rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=32, input_dim=2, seed=0)
    >>> model = rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
    >>> samples = sample_functions(model.condition(torch.rand(100, 2), torch.rand(100)), 20)
    >>> samples(torch.rand(7, 2)).shape
    torch.Size([20, 7])
    """
    if isinstance(model, WeightSpaceGP):
        return model.sample_functions(num_functions, prior)
    count = checks.positive_integer("num_functions", num_functions)
    checks.instance("model", model, ExactGP, "a WeightSpaceGP or a GPyTorch ExactGP", "use one of these")
    checks.flag("prior", prior)
    inputs = model.train_inputs
    if inputs is None or model.train_targets is None or len(inputs) != 1:
        raise ValueError("expected a model with one tensor of training inputs, and targets, got another; give it these")
    ((twin,), _) = frozen((model,), without=(model.prediction_strategy, model.likelihood, inputs, model.train_targets))
    twin.eval()
    with torch.no_grad():
        first = twin.forward(inputs[0][..., :1, :])
        scalar, factor = _features(first)
    if prior:
        batch = torch.broadcast_shapes(scalar.shape[:-2], factor.batch_shape)
        posterior: Any = RootPosterior.prior((*batch, factor.num_columns), False, scalar.device)
    else:
        posterior = _posterior(model, twin)
    weights = drawn_weights(posterior, count, has_complex_targets=False)
    return FunctionSamples(_ExactDraws(twin, weights, isinstance(first, MultitaskMultivariateNormal)), count)


class _ExactDraws(FunctionDraws):
    """The functions of draws of the weights (..., K, S) of a model."""

    def __init__(self, model: Any, weights: Tensor, is_multitask: bool) -> None:
        self.model, self.weights, self.is_multitask = model, weights, is_multitask

    def __call__(self, x: Tensor) -> Tensor:
        checks.finite(checks.inputs(x).detach())
        chunks = row_chunks(x.shape[-2], max(self.weights.shape[-2:]))
        values = joined((self._chunk(x[..., rows, :]) for rows in chunks), x.shape[-2], dim=-3)
        return (values if self.is_multitask else values.squeeze(-2)).movedim(-1, 0)

    def _chunk(self, x: Tensor) -> Tensor:
        """The values (..., N, T, S)."""
        prior = self.model.forward(x)
        scalar, factor = _features(prior)
        values = checks.no_overflow(factor.functions(scalar, self.weights), x)
        mean = prior.mean if self.is_multitask else prior.mean.unsqueeze(-1)
        return (values + mean.unsqueeze(-1)).to(x.dtype)

    def take(self, index: Tensor) -> FunctionDraws:
        weights = self.weights.index_select(-1, index.to(self.weights.device))
        return _ExactDraws(self.model, weights, self.is_multitask)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "model": detached(self.model), "weights": self.weights.detach()}


def _features(prior: Any) -> tuple[Tensor, OutputFactor]:
    """The scalar features that the covariance of a prior is made of, and how they become those of the outputs."""
    covariance = prior.lazy_covariance_matrix.evaluate_kernel()
    if not isinstance(covariance, FeatureLinearOperator):
        raise ValueError(
            f"expected a model whose covariance has features, got one with {type(covariance).__name__}; make its "
            "kernel, sums and products included, by rfgp.approximate"
        )
    return covariance.parts()


def _posterior(model: Any, twin: Any) -> Any:
    """The posterior of the weights that the model predicts with, or would predict with in eval mode."""
    tracks = torch.is_grad_enabled() and gpytorch.settings.detach_test_caches.off()
    with torch.set_grad_enabled(tracks):
        strategy = None if model.training else model.prediction_strategy
        if strategy is None:
            inputs = list(model.train_inputs)
            strategy = prediction_strategy(inputs, twin.forward(*inputs), model.train_targets, model.likelihood)
        noisy = strategy.lik_train_train_covar
        if not isinstance(strategy, FeaturePredictionStrategy) or not isinstance(noisy, NoisyFeaturesLinearOperator):
            raise ValueError(
                "expected a model whose covariance and noise have weights of features, got one that predicts densely; "
                "make its kernel by rfgp.approximate, with Gaussian or fixed noise, and for several outputs in a batch "
                "one model for each of the batch"
            )
        return strategy.weight_posterior()
