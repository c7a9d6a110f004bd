"""Gaussian-process regression and classification in weight space, from sufficient statistics."""

from __future__ import annotations

import copy
import functools
from typing import Any, Self

import gpytorch
import torch
from torch import Tensor

from .. import _checks
from ..distributions import ComplexNormal, MultivariateNormal
from ..features.random_weights import weights_kept_on_error
from ..inference import (
    FunctionDraws,
    GaussianPosterior,
    PointMixture,
    PointPredictor,
    WeightPrior,
    drawn_weights,
    has_point_predictor,
    mixture,
)
from ..kernels.random_feature_kernel import check_no_operator
from ..kernels.reference_tensor import reference_tensor
from ..operators import Operator
from .function_samples import FunctionSamples
from .impropriety import SomeRows, warn_of_impropriety
from .mixture import functions_of_random_draws
from .model_lock import alone
from .posterior_points import PosteriorPoints
from .record import Record
from .refused_gradients import refusing
from .weight_space_leave_out import LeavesOut
from .weight_space_saving import Saves


class WeightSpaceGP(LeavesOut, Saves):
    r"""A Gaussian process with random features, trained and evaluated from sums over the data at O(N D^2).

    .. math:: B = I + \Phi^H S^{-1} \Phi, \qquad E f_* = \Phi_* B^{-1} \Phi^H S^{-1} y, \qquad
        \mathrm{Cov} f_* = \Phi_* B^{-1} \Phi_*^H

    It takes the same kernel and likelihood objects as GPyTorch's ExactGP. The statistics are additive: ``update`` adds
    rows, ``downdate`` takes rows away, ``merge`` joins models, and the result equals a fit to the rows that there are.
    For real labels and complex features the posterior is the real part of the complex one, which has no evidence;
    complex targets take a ComplexGaussianLikelihood. Where its noise is circular, and the residuals of a fit are
    significantly not, the first prediction after it warns. With improper noise, or a kernel of two outputs, which are
    real and imaginary part, the posterior has a pseudo-covariance.

    Several threads may read a model while one changes its rows: each sees the rows before or after. Parameters may not
    change meanwhile, as they do in :func:`rfgp.fit`.

    :param kernel: a kernel made by :func:`rfgp.approximate`, or a GPyTorch ScaleKernel around one.
    :param likelihood: a Gaussian, fixed-noise, complex Gaussian, complex fixed-noise or Dirichlet classification
        likelihood; for a kernel of several outputs a multitask Gaussian or multitask fixed-noise one, and for one of
        two also a complex one.
    :param mean: ZeroMean, ConstantMean or LinearMean, with a batch shape (C,) for classes if wanted; for several
        outputs a MultitaskMean of these too; default: ZeroMean.
    :param block_size: where it is given, what the features leave over is modeled too, inside blocks of at most so many
        near rows, at O(N (B^2 + B D)) more (PIC); for landmarks of one output with Gaussian or fixed noise. The model
        then keeps the training rows, for predictions and in its state. Default: no blocks.
    :param num_neighbors: with blocks, predictions are given the residual of so many of the nearest training rows;
        None for the block that a point lies in, which is the model of the evidence.
    :param residual: what training makes of the residual variance ``r(x)`` that features of one output lack: "none",
        the evidence of the features alone; "vfe", the variational bound, which subtracts the sum of r(x_i)/(2 s_i);
        "fitc", noise of each row. Predictions add r(x) in all of them.
    :param num_draws: the number J of independent draws of the random weights, each with D features and statistics of
        its own, at J N D^2 in all: error bars then show how much the draws differ. Predictions have the moments of the
        mixture: the mean of the means, and the mean of the covariances plus the covariance of the means. The seeds of
        the further draws follow from the weights of the kernel, which are the first. Default: 1.
    :param product_dtype: the dtype of Gram products; default: float64, or float32 for float32 features where the
        smallest noise exceeds 1 % of the largest prior variance. Sums are in float64.
    :param keep_data: whether ``training_data`` keeps the rows of ``fit`` and ``update``, for comparisons with the exact
        posterior. Neither predictions nor training need them. They are not part of the state.
    :raises ValueError: for a kernel without features, or another likelihood, mean or product_dtype.

    Source: T Eq. B.13 to B.20.

    >>> import gpytorch, rfgp
    >>> x, y = torch.rand(100, 2), torch.rand(100)
    >>> kernel = rfgp.approximate(gpytorch.kernels.PolynomialKernel(power=2), num_features=16, input_dim=2)
    >>> model = WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
    >>> model.posterior(x[:3]).variance.shape
    torch.Size([3])
    """

    def _single_draw(self, kernel: Any) -> WeightSpaceGP:
        """A model of one draw of the weights with the likelihood and the mean of this one, without data.

        :param kernel: a kernel with the parameters of this one, and with weights of its own.
        """
        options: dict[str, Any] = {"residual": self.residual, "product_dtype": self.product_dtype}
        model = WeightSpaceGP(kernel, self.likelihood, self.mean_module, **options)
        model._known_noise = self._known_noise
        return model

    def _unfitted(self) -> WeightSpaceGP:
        """A model with the parts and the settings of this one, maps of further draws included, and without data."""
        options: dict[str, Any] = {"residual": self.residual, "num_draws": self.num_draws}
        options |= {"block_size": self.block_size, "num_neighbors": self.num_neighbors}
        parts = self.covar_module, self.likelihood, self.mean_module
        model = WeightSpaceGP(*parts, product_dtype=self.product_dtype, **options)
        model.further_draws.maps = self.further_draws.maps
        return model

    @alone
    def weight_posterior(self) -> GaussianPosterior:
        """The posterior of the weights, of the first draw; a batch of C of them for a Dirichlet likelihood.

        For separable kernels with complete rows of one noise it is found from two small spectra.

        It is cached, without gradients in the parameters unless ``gpytorch.settings.detach_test_caches`` is off.

        :raises ValueError: where the model is not fitted, or stale.
        """
        self._known()
        tracks = gpytorch.settings.detach_test_caches.off() and torch.is_grad_enabled()
        state = {name: p.detach() for name, p in self.named_parameters()} | self._feature_state()
        state |= {name: b for name, b in self.covar_module.named_buffers() if "task_covar_module" in name}
        if self._noise.is_batched:
            state["alpha_epsilon"] = torch.tensor(self.likelihood.alpha_epsilon)
        if not tracks and self._posterior is not None and self._posterior[0].is_of(state):
            return self._posterior[1]
        if torch.compiler.is_compiling():
            raise ValueError("expected a prediction since the fit before a compiled one, got none; predict once")
        with torch.inference_mode(False), torch.set_grad_enabled(tracks):
            posterior = self._regression().posterior(self.statistics, tracks)
        if not tracks:
            self._posterior = Record(state), posterior
            if self._some_rows is not None:
                self._check_residuals(self._some_rows, posterior)
        return posterior

    def _check_residuals(self, rows: SomeRows, posterior: Any) -> None:
        """Warn where the noise of complex targets does not look circular."""
        x, y = (values.to(posterior.mean.device) for values in rows)
        regression, noise = self._regression(is_frozen=True), float(self.likelihood.noise.detach())
        with torch.no_grad():
            residuals = y - regression.function(posterior.mean, x)
            leverages = regression.leverages(x, posterior) / noise
        warn_of_impropriety(residuals, leverages, noise, stacklevel=6)

    @alone
    def posterior(self, x: Tensor, operator: Operator | None = None) -> MultivariateNormal | ComplexNormal:
        """The posterior of the function at inputs, without noise: ``likelihood(model.posterior(x))`` adds it.

        Means and variances are computed in chunks of rows; the N x N covariance is formed only where it is asked for.
        Variances are the true diagonal of the covariance, without GPyTorch's smallest one. Where the features are those
        of landmarks or of a truncated series, the diagonal includes the prior variance that they lack
        (:meth:`rfgp.kernels.RandomFeatureKernel.residual_variance`), independently between points and outputs. The
        distribution keeps its values, whatever happens to the model or to ``x`` later.

        :param x: inputs (..., N, d); (N, d) for a Dirichlet likelihood or several outputs.
        :param operator: a linear operator of :mod:`rfgp.operators` on the field of an operator-valued kernel, whose
            result is predicted in place of the field: its divergence, vorticity, potential, gradients and so on. The
            likelihood knows the noise of the outputs, and not that of these.
        :returns: a GPyTorch distribution, with batch shape (C,) for a Dirichlet likelihood, and a
            MultitaskMultivariateNormal for several outputs; a ComplexNormal for complex targets. It has the dtype of x.
        :raises ValueError: for bad inputs, or where the model is not fitted, or stale.
        """
        self._known()
        _checks.finite(_checks.inputs(x).detach())
        _checks.same_kind(x, reference_tensor(self.covar_module, x), "x", "the kernel")
        if operator is not None and not isinstance(operator, Operator):
            raise ValueError(f"expected an operator of rfgp.operators, got {operator!r}; such as Divergence()")
        if not self.covar_module.has_output_factor:
            check_no_operator(operator)
        regression = self._regression(is_frozen=not torch.compiler.is_compiling())
        own = regression.distribution(x, self.weight_posterior(), operator)
        further = [draw.posterior(x, operator) for draw in self.further_draws.of(self)]
        return mixture([own, *further]) if further else own

    @alone
    @torch.no_grad()
    def point_predictor(self, dtype: torch.dtype | None = None) -> PointPredictor | PointMixture | PosteriorPoints:
        """What says means and variances of single points as often as wanted, and nothing of how points covary.

        Roots of the posterior are computed once, and the features of a point once for its mean and its variance. It can
        be pickled, without the training data, and has no gradients: see :func:`rfgp.predict_map`, which makes it for
        you. Models with blocks, which keep their rows, and those of improper complex targets predict by
        :meth:`posterior`.

        :param dtype: of the features, products and results: torch.float32 or torch.float64; default: that of the
            kernel.
        :returns: a callable from points (N, d) to ``(mean, variance)``, both (N, T), or (N, C) for C classes.
        :raises ValueError: where the model is not fitted, or stale, or for a dtype where it predicts by ``posterior``.
        """
        self._known()
        own = reference_tensor(self.covar_module).dtype.to_real()
        if dtype not in (None, torch.float32, torch.float64):
            raise ValueError(f"expected torch.float32 or torch.float64 for dtype, got {dtype!r}; choose one of the two")
        parts = [draw._own_points(dtype or own) for draw in (self, *self.further_draws.of(self))]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            return known[0] if len(known) == 1 else PointMixture(known)
        if dtype not in (None, own):
            raise ValueError(
                f"expected {own}, the dtype of the model, got {dtype}: with blocks, improper complex targets or very "
                "many outputs there is no other; convert the model before the fit"
            )
        model = copy.copy(self)
        model.training_data = []
        return PosteriorPoints(model)

    def _own_points(self, dtype: torch.dtype) -> PointPredictor | None:
        """The predictor of the first draw, where its posterior has one."""
        regression, posterior = self._regression(is_frozen=True), self.weight_posterior()
        return PointPredictor(regression, posterior, dtype) if has_point_predictor(regression, posterior) else None

    def forward(self, x: Tensor) -> MultivariateNormal | ComplexNormal:
        """The posterior at inputs, as :meth:`posterior` gives it, and as GPyTorch's models do in evaluation mode."""
        return self.posterior(x)

    @alone
    def log_marginal_likelihood(self) -> Tensor:
        r"""The log evidence of the training data, summed over classes; differentiable in all parameters.

        .. math:: \log p(y) = -\tfrac12 \big(r^\top S^{-1} r - h^\top B^{-1} h + \log|B| + \log|S| + N \log 2 \pi\big),
            \qquad h = \Phi^\top S^{-1} r

        and twice that with pi in place of 2 pi for proper complex targets; improper ones have the evidence of their
        real and imaginary parts. With gradients enabled, fit and evaluate anew for
        every step; those of the parameters of the features run back to the fit, and are refused where rows have come
        or gone since, or where the fit was made without gradients.

        :returns: a float64 scalar, not divided by N.
        :raises ValueError: for real labels with complex features, where there is no evidence; where the model is not
            fitted, or stale. Its gradient raises a ValueError where it is refused.

        Source: T B.3; identity 1 of the errata for class labels.
        """
        self._known()
        if self._features.is_complex and not self._noise.is_complex:
            raise ValueError(
                "expected real features for the evidence of real labels, got complex ones, whose real part has none; "
                "use the :ctr form of the method"
            )
        own = self._regression().log_marginal_likelihood(self.statistics, self._rows)
        if not self.statistics.cross.requires_grad:
            own = refusing(own, self._summed_parameters())
        further = [draw.log_marginal_likelihood() for draw in self.further_draws.of(self)]
        return torch.stack([own, *further]).mean() if further else own

    @alone
    def sample_functions(self, num_functions: int, prior: bool = False) -> FunctionSamples:
        """Draws of functions from the posterior or the prior, which can be evaluated anywhere.

        They keep their values, whatever happens to the model later. They are functions of the features: they do not
        carry the variance that :meth:`posterior` adds where features of landmarks or of a truncated series lack some.
        With ``block_size`` those of the posterior do: they are drawn jointly inside every block, remember where they
        were evaluated, and have no gradients. Of several draws of the weights each function has one that is chosen at
        random.

        :param num_functions: the number S of draws.
        :param prior: whether they are drawn from the prior, for which the model need not be fitted.
        :returns: one callable from (..., q, d) to (S, ..., q), or to (S, ..., q, T) for several outputs, or to
            (S, ..., C, q) for C classes.
        :raises ValueError: where the model is not fitted, or stale; for the prior, where the kernel waits for its first
            inputs.
        """
        count = _checks.positive_integer("num_functions", num_functions)
        _checks.flag("prior", prior)
        further = self.further_draws.begin(self) if prior else self.further_draws.of(self)
        sources = [functools.partial(model._function_draws, prior=prior) for model in (self, *further)]
        draws = functions_of_random_draws(sources, count) if further else sources[0](count)
        return FunctionSamples(draws, count)

    def _function_draws(self, count: int, prior: bool) -> FunctionDraws:
        """Draws of functions with the weights of the first draw of features."""
        if not prior:
            weights = drawn_weights(self.weight_posterior(), count, self._noise.is_complex)
            return self._regression(is_frozen=True).draws(weights)
        regression = self._prior_regression(is_frozen=True)
        batch = (self._noise.num_systems,) if self._noise.is_batched else ()
        factor = regression.factor()
        known = WeightPrior.of((*batch, factor.num_columns), self._features.is_complex, factor.device)
        return regression.draws(drawn_weights(known, count, self._noise.is_complex))

    @alone
    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new random weights; the statistics are then stale.

        :param generator: a CPU generator; default: PyTorch's.
        """
        with weights_kept_on_error(self):
            self.covar_module.resample(generator)
            self.further_draws.resample(generator)
        return self
