"""Regression of counts with exposures."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import mean_poisson_deviance
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, column_or_1d
from torch import Tensor

from .._support import checks
from ..likelihoods.count_predictive import CountPredictive, dispersion_of
from ..likelihoods.counts import checked_counts, checked_exposure
from .arrays import Floats, all_or_nothing, check_masks, check_numbers, drawn_seed
from .baselines import NO_EVENT
from .choice import KERNELS
from .counts import (
    LIKELIHOODS,
    CountOptions,
    CountRows,
    count_parts,
    count_predictive,
    fitted_model,
    learned_parts,
    with_priors,
)
from .kernels import scaled_kernel
from .model_size import default_size
from .phases import phases
from .row_weights import row_weights
from .scaling import input_scaler, num_lengthscales
from .table_estimator import TableEstimator

_PHASES = ("parameters", "all rows")
_TARGET_CHECKS: dict[str, Any] = {"dtype": np.float64, "ensure_2d": False, "ensure_all_finite": "allow-nan"}
_LARGE = 1e15
"""Draws of counts of larger means are normal."""


class RandomFeatureGPCountRegressor(RegressorMixin, TableEstimator):
    r"""Gaussian process regression of counts, which rows have collected over different exposures.

    .. math:: E[y_i] = e_i\, e^{f(x_i)}, \qquad f \sim GP(m, k), \qquad
        \mathrm{Var}[y_i \mid f] = e_i\, e^{f(x_i)} + \alpha\, (e_i\, e^{f(x_i)})^2

    The exposures :math:`e_i` are years, areas or populations, ones by default. The posterior of the log rate f is that
    of :class:`rfgp.models.LaplaceGP`; predictions are averages over it. Parameters are learned by Laplace's evidence of
    up to 4,000 random rows, as many as have 1,000 counts above zero, with weak priors on lengthscales and output scales
    of kernels by name. Where all rows are more probable by one rate, it is predicted. Inputs are standardized inside,
    and all is computed in float64.

    :param kernel: "rbf", "matern32" and other names, or a GPyTorch kernel of standardized inputs, which is copied, as
        in :class:`RandomFeatureGPRegressor`. "auto" takes the one of "matern32", "rbf" and "matern52" with the largest
        evidence of 500 random rows, or more with rare events, and "matern32" with text of many values.
    :param num_features: "auto" takes every row as a landmark of up to 1,000, and else 512.
    :param method: a method of :func:`rfgp.approximate`; "auto" takes landmarks, and exact features for "linear".
    :param likelihood: "negative_binomial", whose dispersion :math:`\alpha` is learned, "poisson" with :math:`\alpha =
        0`, or "auto": Poisson where the evidence is not lower by it.
    :param time_limit: seconds for ``fit``, about; default: no limit.
    :param max_evaluations: the largest number of evaluations in the search for parameters, see :func:`rfgp.fit`.
    :param verbose: whether ``fit`` shows its phases by a bar.
    :param random_state: the seed, a RandomState, or None for a new draw in every fit.
    :raises ValueError: at ``fit``, for bad parameters or data.

    After ``fit`` there are ``model_`` (the :class:`rfgp.models.LaplaceGP` of standardized inputs, whose function is the
    logarithm of the rate over ``rate_``), ``rate_`` (the events of all rows over their exposure), ``dispersion_`` (zero
    for Poisson counts), ``fit_summary_`` (None without events), ``x_scaler_`` and ``log_marginal_likelihood_value_``.

    ``exposure`` is an argument of ``fit``, ``predict`` and ``score`` that scikit-learn routes:
    ``set_fit_request(exposure=True).set_score_request(exposure=True)``.

    Source: McCullagh and Nelder (1989), Generalized Linear Models, section 6.3, for exposures; Rasmussen and Williams
    (2006), section 3.4, for the posterior.

    >>> import numpy as np
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> years = np.tile([1.0, 2.0, 5.0], 20)
    >>> claims = np.random.default_rng(0).poisson(years * np.exp(1.0 + np.sin(X[:, 0])))
    >>> model = RandomFeatureGPCountRegressor(random_state=0).fit(X, claims, exposure=years)
    >>> rate = model.predict([[1.5]])
    >>> bool(abs(np.log(rate[0]) - 2.0) < 0.2), bool(np.isclose(model.predict([[1.5]], exposure=[3.0]), 3.0 * rate)[0])
    (True, True)
    """

    def __init__(
        self,
        kernel: str | Kernel = "auto",
        *,
        num_features: int | str = "auto",
        method: str = "auto",
        likelihood: str = "auto",
        time_limit: float | None = None,
        max_evaluations: int = 60,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.num_features = num_features
        self.method = method
        self.likelihood = likelihood
        self.time_limit = time_limit
        self.max_evaluations = max_evaluations
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, exposure: ArrayLike | None = None) -> Self:
        """Learn the parameters, and fit inputs (N, d) with counts (N,), where NaN is missing.

        :param X: numbers, or a data frame with text, dates and gaps as :class:`TableEncoder` takes it.
        :param exposure: over what rows have collected their counts, (N,), positive; default: ones.
        """
        deadline, likelihood = self._deadline, checks.choice("likelihood", self.likelihood, LIKELIHOODS)
        limit = checks.positive_integer("max_evaluations", self.max_evaluations)
        with all_or_nothing(self):
            inputs, counts, exposures = self._rows(X, y, exposure)
            self.x_scaler_ = input_scaler(inputs, None)
            self.rate_ = float(max(counts.sum(), NO_EVENT) / exposures.sum())
            x = torch.from_numpy(self.x_scaler_.transform(inputs))
            rows = CountRows(x, torch.from_numpy(counts), torch.from_numpy(exposures * self.rate_))
            seed = drawn_seed(self.random_state)
            candidates = [count_parts(kernel, likelihood, seed) for kernel in self._kernels(x.shape[1])]
            size = self._completed(default_size(len(x), True), len(x), candidates[0])
            options = CountOptions(likelihood, self._method, size.num_features, limit)
            with phases(_PHASES, self.verbose) as bar:
                bar.begin("parameters")
                parts, self.fit_summary_ = learned_parts(candidates, rows, options, deadline)
                bar.begin("all rows")
                self.model_ = fitted_model(parts, rows, options, deadline)
        return self

    @property
    def dispersion_(self) -> float:
        """The dispersion of the counts; zero for Poisson ones."""
        return dispersion_of(self.model_.likelihood)

    def predict(self, X: ArrayLike, exposure: ArrayLike | None = None, return_std: bool = False) -> Any:
        r"""The expected counts at inputs (N, d), (N,), with the standard deviations of new counts if wanted.

        .. math:: E[y] = e\, e^{m + v / 2}, \qquad \mathrm{Var}[y] = E[y] + E[y]^2\, \big((1 + \alpha)\, e^v - 1\big)

        Here m and v are the mean and the variance of the log rate. Without ``exposure`` these are rates.

        :param exposure: of the new rows, (N,), positive; default: ones.
        """
        return_std = checks.flag("return_std", return_std)
        found = self._predictive(X, exposure)
        return (found.mean.numpy(), found.stddev.numpy()) if return_std else found.mean.numpy()

    def predict_interval(self, X: ArrayLike, level: float = 0.95, exposure: ArrayLike | None = None) -> Floats:
        """Central intervals of new counts at inputs (N, d): lower and upper ends, (N, 2), which are in them.

        Counts are whole numbers: at least the given share of new ones is inside.

        :param level: the probability that a new count is in its interval, at least.
        :param exposure: of the new rows, (N,), positive; default: ones.
        :raises ValueError: for a level that is no probability.
        """
        tail = 0.5 - 0.5 * checks.share("level", level)
        return self.predict_quantiles(X, [tail, 1.0 - tail], exposure)

    def predict_quantiles(self, X: ArrayLike, levels: Sequence[float], exposure: ArrayLike | None = None) -> Floats:
        """Quantiles of new counts at inputs (N, d), (N, L): the smallest counts of at least these probabilities.

        They are those of the predictive distribution, negative binomial or Poisson with a log rate that is normal.

        :param levels: their L levels, between 0 and 1.
        :param exposure: of the new rows, (N,), positive; default: ones.
        :raises ValueError: for levels that are no probabilities.
        """
        wanted = [checks.share("level", level) for level in np.ravel(levels).tolist()]
        if not wanted:
            raise ValueError("expected levels, got none; such as [0.025, 0.975]")
        found = self._predictive(X, exposure)
        return np.stack([found.icdf(level).numpy() for level in wanted], axis=-1)

    def log_density(self, X: ArrayLike, y: ArrayLike, exposure: ArrayLike | None = None) -> Floats:
        """The log probabilities (N,) of new counts at inputs (N, d); their negative mean is the NLPD.

        :param y: counts (N,), where NaN is missing.
        :param exposure: of the new rows, (N,), positive; default: ones.
        :returns: log probabilities, NaN of missing counts.
        :raises ValueError: for what is no counts, or another number of them.
        """
        found = self._predictive(X, exposure)
        counts = torch.from_numpy(_counts(y, len(found.log_mean)))
        log_probabilities: Floats = found.log_prob(counts).numpy()
        return log_probabilities

    def sample_y(
        self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0, exposure: ArrayLike | None = None
    ) -> Floats:
        """Draws of new counts at inputs (N, d), whose rates are correlated between rows: (N, S)."""
        (x, missing), n_samples = self._inputs(X), checks.positive_integer("n_samples", n_samples)
        random, exposures = check_random_state(random_state), _exposures(exposure, len(x))
        if missing is None:
            log_rates = self._log_rates(x, n_samples, random)
        else:
            parts = [self._log_rates(*completed, random) for completed in missing.completed(x, n_samples, random)]
            log_rates = np.concatenate(parts, axis=-1)[:, random.permutation(n_samples)]
            is_unmarked, ones = missing._replace(is_marked=torch.zeros_like(missing.is_marked)), torch.ones(len(x))
            own, pooled = (count_predictive(self.model_, x, ones, each).log_mean for each in (missing, is_unmarked))
            log_rates += (own - pooled).numpy()[:, None]
        means, dispersion = (exposures * self.rate_)[:, None] * np.exp(log_rates), self.dispersion_
        if dispersion > 0.0:
            means = means * random.gamma(1.0 / dispersion, dispersion, size=means.shape)
        found: Floats = random.poisson(np.minimum(means, _LARGE)).astype(np.float64)
        large = means > _LARGE
        found[large] = np.round(random.normal(means[large], np.sqrt(means[large])))
        return found

    @torch.no_grad()
    def _log_rates(self, x: Tensor, num_samples: int, random: np.random.RandomState) -> Floats:
        """Draws (N, S) of log rates at standardized inputs (N, d), correlated between rows."""
        latent = self.model_.posterior(x)
        values, vectors = torch.linalg.eigh(latent.covariance_matrix)
        root = (vectors * values.clamp_min(0.0).sqrt()).numpy()
        found: Floats = latent.mean.numpy()[:, None] + root @ random.normal(size=(len(x), num_samples))
        return found

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        exposure: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        r"""The share D2 of the Poisson deviance that the inputs explain: one at best, zero for one rate of all rows.

        .. math:: D^2 = 1 - \frac{\mathrm{dev}(y, \hat y)}{\mathrm{dev}(y, e\, \sum_i y_i / \sum_i e_i)}

        Without ``exposure`` it is that of :class:`sklearn.linear_model.PoissonRegressor`.

        :param sample_weight: how much rows count, (N,), also in the one rate; default: equally.
        """
        rates = self.predict(X)
        known, counts, exposures = _known(y, exposure, len(rates))
        every = row_weights(sample_weight, rates)
        predicted, weights = rates[known] * exposures, np.ones(len(counts)) if every is None else every[known]
        if not (weights * counts).any():
            return 0.0
        of_one_rate = exposures * (weights * counts).sum() / (weights * exposures).sum()
        own, constant = (
            mean_poisson_deviance(counts, means, sample_weight=weights) for means in (predicted, of_one_rate)
        )
        return float(1.0 - own / constant) if constant > 0.0 else 0.0

    def _predictive(self, X: ArrayLike, exposure: Any) -> CountPredictive:
        """The distributions of new counts, (N,)."""
        x, missing = self._inputs(X)
        exposed = torch.from_numpy(_exposures(exposure, len(x)) * self.rate_)
        return count_predictive(self.model_, x, exposed, missing)

    def _kernels(self, num_columns: int) -> list[Kernel]:
        """The kernels to choose from."""
        kernel, count = self._with_levels(self.kernel, num_columns), num_lengthscales(self.x_scaler_)
        if isinstance(kernel, str):
            names = KERNELS if kernel == "auto" else (kernel,)
            return [with_priors(scaled_kernel(name, count)) for name in names]
        own = scaled_kernel(kernel, count)
        return [own if isinstance(self.kernel, Kernel) else with_priors(own)]

    def _rows(self, X: ArrayLike, y: ArrayLike, exposure: Any) -> tuple[Floats, Floats, Floats]:
        """Inputs (N, d), counts and exposures (N,) of the rows with a count, checked."""
        check_numbers(y)
        inputs, targets = self._validated(
            X, y, is_first=True, validate_separately=({"dtype": np.float64, "order": "C"}, _TARGET_CHECKS)
        )
        known, counts, exposures = _known(targets, exposure, len(inputs))
        if not len(counts):
            raise ValueError("expected known counts in y, got missing ones alone; pass some")
        return inputs[known], counts, exposures


def _known(y: Any, exposure: Any, num_rows: int) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """Which of N rows have a count (N,), and the counts and exposures (M,) of these."""
    counts = _counts(y, num_rows)
    known = ~np.isnan(counts)
    return known, counts[known], _exposures(exposure, num_rows, known)


def _counts(y: Any, num_rows: int) -> Floats:
    """Whole numbers of at least zero, or NaN, (N,)."""
    check_numbers(y)
    counts: Floats = column_or_1d(check_array(y, **_TARGET_CHECKS, input_name="y"), warn=True)
    if len(counts) != num_rows:
        raise ValueError(f"expected {num_rows} counts in y, got {len(counts)}; pass one for each row")
    checked_counts(counts, "y", "RandomFeatureGPRegressor")
    return counts


def _exposures(exposure: Any, num_rows: int, known: Any = slice(None)) -> Floats:
    """Positive exposures (M,) of the known ones of N rows, by default all of them, ones by default."""
    if exposure is None or isinstance(exposure, numbers.Real):
        exposure = np.full(num_rows, 1.0 if exposure is None else exposure)
    check_masks(exposure, "exposure")
    options: dict[str, Any] = {"dtype": np.float64, "ensure_2d": False, "input_name": "exposure"}
    every: Floats = check_array(exposure, ensure_all_finite=False, **options)
    if every.shape != (num_rows,):
        raise ValueError(f"expected exposure of shape {(num_rows,)}, got {every.shape}; pass one for each row")
    found: Floats = check_array(every[known], ensure_min_samples=0, copy=True, **options)
    if len(found):
        checked_exposure(torch.from_numpy(found))
    return found
