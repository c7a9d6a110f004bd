"""Regression of a table with error bars."""

from __future__ import annotations

import time
from typing import Any, Self

import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, MultitaskMean
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import assert_all_finite, check_consistent_length
from torch import Tensor

from .._support import checks
from .arrays import Floats, drawn_seed, validated
from .base import Parts, RandomFeatureGP
from .kernels import multitask_kernel, scaled_kernel

_SMALLEST_NOISE = 1e-6
"""The smallest noise variance, in variances of the target."""


class RandomFeatureGPRegressor(MultiOutputMixin, RegressorMixin, RandomFeatureGP):
    r"""Gaussian process regression of a table, for thousands to millions of rows.

    .. math:: y = f(x) + \epsilon, \qquad f \sim GP(m, k), \qquad \epsilon \sim N(0, \sigma^2)

    Inputs and targets are standardized inside, and all is computed in float64. Parameters, with a lengthscale per
    column, are learned by the log marginal likelihood; several targets share a covariance that is learned too.

    :param kernel: "rbf", "matern12", "matern32", "matern52", "rq", "linear" or "polynomial" (of degree 2), or a
        GPyTorch kernel of standardized inputs, which is copied.
    :param num_features: "auto" takes every row as a landmark of up to 1,000, which is the exact model, 1,024 of up to
        10,000 rows, and else 512, or what the time limit allows.
    :param method: a method of :func:`rfgp.approximate`; "auto" takes landmarks, and exact features for "linear".
    :param block_size: how many near rows share what the features leave over; None for none. "auto" takes 256, or what
        the time limit allows, for landmarks of one target that are fewer than the rows.
    :param num_neighbors: with blocks, how many of the nearest training rows a prediction uses.
    :param strategy: from what :func:`rfgp.fit` learns parameters, such as "subset", "blocks" or "evidence". "auto"
        takes blocks where the model has blocks, the exact likelihood of up to 1,000 rows, and else what ``fit`` takes.
    :param time_limit: seconds for ``fit``, about, which choose the size of the model too; default: no limit.
    :param max_evaluations: the largest number of evaluations in the search for parameters, see :func:`rfgp.fit`.
    :param random_state: the seed, a RandomState, or None for a new draw in every fit.
    :raises ValueError: at ``fit``, for bad parameters or data.

    After ``fit`` there are ``model_`` (the :class:`rfgp.WeightSpaceGP`, of standardized rows), ``fit_summary_``,
    ``x_scaler_``, ``y_scaler_`` and ``log_marginal_likelihood_value_``.

    >>> import numpy as np
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = RandomFeatureGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.0], [30.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.0)) < 0.01), bool(std[0] < 0.1 < std[1])
    (True, True)
    """

    _metric = staticmethod(r2_score)

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn the parameters, and fit inputs (N, d) with targets (N,) or (N, T), where NaN is missing."""
        began = time.perf_counter()
        inputs, targets = self._rows(X, y, is_first=True)
        generator = torch.Generator().manual_seed(drawn_seed(self.random_state))
        self._num_target_axes = targets.ndim
        self.x_scaler_, self.y_scaler_ = StandardScaler().fit(inputs), StandardScaler().fit(_columns(targets))
        x, z = self._model_rows(inputs, targets)
        num_columns, num_outputs = x.shape[-1], self.y_scaler_.n_features_in_
        seed, constraint = generator.initial_seed(), GreaterThan(_SMALLEST_NOISE)
        if num_outputs == 1:
            exact = scaled_kernel(self.kernel, num_columns)
            likelihood = GaussianLikelihood(noise_constraint=constraint).double()
            parts = Parts(exact, likelihood, ConstantMean().double(), seed, can_have_blocks=True)
        else:
            exact = multitask_kernel(self.kernel, num_columns, num_outputs, generator)
            likelihood = MultitaskGaussianLikelihood(num_outputs, has_global_noise=False, noise_constraint=constraint)
            mean = MultitaskMean(ConstantMean(), num_outputs)
            parts = Parts(exact, likelihood.double(), mean.double(), seed, can_have_blocks=False)
        self._train(parts, x, z, began)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False, return_cov: bool = False) -> Any:
        """The mean of new observations at inputs (N, d), with their standard deviation or covariance if wanted.

        :returns: means (N,) or (N, T), or a pair with standard deviations (same shape) or covariances (N, N[, T]).
        """
        return_std, return_cov = checks.flag("return_std", return_std), checks.flag("return_cov", return_cov)
        if return_std and return_cov:
            raise ValueError("expected at most one of return_std and return_cov, got both; ask twice")
        x = self._inputs(X)
        with torch.no_grad():
            latent = self.model_.posterior(x)
            mean = self._shaped(self.y_scaler_.inverse_transform(_columns(latent.mean.numpy())))
            if return_std:
                deviations = _columns(self.model_.likelihood(latent).stddev.numpy())
                return mean, self._shaped(deviations * self.y_scaler_.scale_)
            if return_cov:
                return mean, self._covariances(self.model_.likelihood(latent), len(x))
        return mean

    def cross_val_predict(
        self, X: ArrayLike, y: ArrayLike, cv: Any = None, groups: ArrayLike | None = None, return_std: bool = False
    ) -> Any:
        """The prediction of every row by the rows of other folds, without a refit: (N,) or (N, T), or a pair.

        :param X: the inputs (N, d) that were fitted.
        :param cv: None for every row alone, a number of folds, or a splitter of scikit-learn that has every row once.
        """
        return_std = checks.flag("return_std", return_std)
        left_out = self._left_out(X, y, cv, groups)
        mean = self._shaped(self.y_scaler_.inverse_transform(_columns(left_out.mean.numpy())))
        if not return_std:
            return mean
        return mean, self._shaped(_columns(left_out.variance.sqrt().numpy()) * self.y_scaler_.scale_)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> Floats:
        """Draws of new observations at inputs (N, d), correlated between rows and targets: (N, S), or (N, T, S)."""
        x, n_samples = self._inputs(X), checks.positive_integer("n_samples", n_samples)
        with torch.no_grad():
            observed = self.model_.likelihood(self.model_.posterior(x))
            factor = torch.linalg.cholesky(observed.covariance_matrix).numpy()
            mean = _columns(observed.mean.numpy())
        draws = factor @ check_random_state(random_state).normal(size=(len(factor), n_samples))
        scaled = mean[..., None] + draws.reshape(*mean.shape, n_samples)
        result = scaled * self.y_scaler_.scale_[:, None] + self.y_scaler_.mean_[:, None]
        return result[:, 0] if self._num_target_axes == 1 else result

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The log evidence of the training data, for targets in their own units."""
        observed = self.y_scaler_.n_samples_seen_
        return super().log_marginal_likelihood_value_ - float(np.sum(observed * np.log(self.y_scaler_.scale_)))

    def _rows(self, X: ArrayLike, y: ArrayLike, is_first: bool) -> tuple[Floats, Floats]:
        """Inputs (N, d) and targets (N,) or (N, T), checked."""
        target_checks = {"dtype": np.float64, "ensure_2d": False, "ensure_all_finite": "allow-nan"}
        separately = {"dtype": np.float64, "order": "C"}, target_checks
        inputs, targets = validated(self, X, y, reset=is_first, validate_separately=separately)
        check_consistent_length(inputs, targets)
        if targets.size == len(targets):
            assert_all_finite(targets, input_name="y")
        return inputs, targets

    def _model_rows(self, inputs: Floats, targets: Floats) -> tuple[Tensor, Tensor]:
        columns = _columns(targets)
        if columns.shape[1] != self.y_scaler_.n_features_in_:
            raise ValueError(
                f"expected {self.y_scaler_.n_features_in_} targets as in the first call, got {columns.shape[1]}; "
                "pass a column for each"
            )
        scaled = torch.from_numpy(self.y_scaler_.transform(columns))
        x = torch.from_numpy(self.x_scaler_.transform(inputs))
        return x, scaled.squeeze(-1) if scaled.shape[1] == 1 else scaled

    def _covariances(self, observed: MultivariateNormal, num_rows: int) -> Floats:
        """The covariances of every target, in its units."""
        count = self.y_scaler_.n_features_in_
        joint = observed.covariance_matrix.reshape(num_rows, count, num_rows, count)
        by_target = joint.diagonal(dim1=1, dim2=3).numpy() * self.y_scaler_.scale_**2
        return by_target[..., 0] if self._num_target_axes == 1 else by_target

    def _shaped(self, columns: Floats) -> Floats:
        """Values (N, T) in the shape that the targets had."""
        return columns[:, 0] if self._num_target_axes == 1 else columns


def _columns(values: Floats) -> Floats:
    """Values (N,) or (N, T) of one or several targets as (N, T)."""
    return values.reshape(len(values), -1)
