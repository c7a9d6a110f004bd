"""Regression of a table with error bars."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, MultitaskMean
from linear_operator.operators import DiagLinearOperator
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin, clone
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted
from torch import Tensor

from .._support import checks
from ..averaging import AveragedGP
from ..averaging.member import Moments
from ..averaging.mixture import Mixture, Tail
from ..inference.local import SharedRows
from ..linalg.sampling import drawing_from
from ..training import timing
from ..training.costs import slowness
from ..training.strategies import Strategy
from ..training.timing import Deadline
from . import gap_noise
from .arrays import Floats, all_or_nothing, as_tensor, check_numbers, drawn_seed
from .base import ONE_MODEL, RandomFeatureGP
from .baselines import Constant, Linear, linear_seconds
from .choice import Parts, plain_kernel
from .comparison import (
    BaselineComparison,
    LabeledRows,
    observed_means,
    split_rows,
    tail_of,
    target_losses,
    warn_of_copies,
)
from .fit_seconds import FitSize
from .forest import MOST_VALUES, forest_baseline
from .frames.donors import Imputations
from .kernels import multitask_kernel, scaled_kernel
from .latent import latent_moments, observed_variances
from .model_size import left_out_seconds
from .near_predictions import FittedRows, OwnRows, of_more_rows, own_rows, rows_of
from .phases import phases
from .row_weights import present, row_weights
from .scaling import ColumnScaler, input_scaler, num_lengthscales
from .student import StudentModels, student_model

_FIRST_HELD_OUT = 100
_OTHERS = {"constant": Constant, "linear": Linear}
"""What the model is compared with."""
_PHASES = ("parameters", "comparison", "all rows")
_TIMES_OF_GAPS = 4.0
"""As many times what the noise of rows with gaps takes has to be left."""
_LARGE_GAP_NOISE, _FEW_GAP_ROWS = 8.0, 300
"""From so many times the noise variance of complete rows on, rows with marked missing cells need a noise of their own,
which averages do not have; of fewer rows than this, one set of parameters has intervals that are too narrow."""
_FEWEST_ROWS, _FEWEST_KNOWN = 3, 10
"""Fewer rows do not tell how far targets vary; an output of fewer known values, where rows have others, is predicted
worse by averages."""
_TARGET_CHECKS: dict[str, Any] = {"dtype": np.float64, "ensure_2d": False, "ensure_all_finite": "allow-nan"}
_EDGE = 1e-12
_SMALLEST_NOISE = 1e-6
"""The smallest noise variance, in variances of the target."""
_NEGLIGIBLE_GAIN = 0.01
"""Nats of a row by which more near rows have to predict it better: they take ten times as long."""
AUTO_ROWS = 1500
"""Up to so many rows are averaged over parameters by default."""
MOST_AVERAGED = 3000
"""Rows that are averaged over parameters: more take minutes."""


class RandomFeatureGPRegressor(MultiOutputMixin, RegressorMixin, RandomFeatureGP):
    r"""Gaussian process regression of a table, for thousands to millions of rows.

    .. math:: y = f(x) + \epsilon, \qquad f \sim GP(m, k), \qquad \epsilon \sim N(0, \sigma^2)

    The estimator standardizes inputs and targets, and computes in float64. It learns a lengthscale for each column
    and all other parameters by maximizing the log marginal likelihood. Several targets share a learned covariance.
    Tables of up to 1,500 rows are averaged over parameters (see ``average``).

    :param kernel: "auto", a name ("rbf", "matern12", "matern32", "matern52", "rq", "linear", or "polynomial" of degree
        2), or a GPyTorch kernel of standardized inputs, which is copied. "auto" compares "matern32", "rbf" and
        "matern52" on held-out rows (:func:`rfgp.training.compare`), and a Matern kernel with a
        :class:`rfgp.kernels.LinearMap`. With several targets, "rbf" is left out; if some targets are missing, the
        kernel is "matern32". For one target, "auto" also adds a sum of functions of single inputs as the mean function
        if that improves the predictions of held-out rows. Its variance is part of the error bars, and counts as
        independent between rows in joint distributions. From more than 100,000 rows, the choice uses 100,000 random
        ones.
    :param num_features: the number of features. "auto": up to 1,000 rows every row is a landmark, which is the exact
        model; with more rows 512 or 1,024, or what the time limit allows.
    :param method: a method of :func:`rfgp.approximate`. "auto": landmarks, or exact features for "linear".
    :param block_size: the size of blocks of near rows, which model the residual of the features; None for no blocks.
        "auto": 256 or 512 if there are fewer landmarks than rows, or what the time limit allows. With missing targets,
        blocks hold known values, for up to eight targets; with more targets there are no blocks.
    :param num_neighbors: with blocks, the number of nearest training rows that a prediction uses in addition to the
        features; None for the rows of its block. "auto": 64, or 128 or 256 if these predict held-out rows better. If
        you set neither features nor blocks and the features of one target add nothing to near rows, "auto" predicts
        from near rows with the exact kernel alone: from the 64 nearest rows of each new row, or from up to 1,024 rows
        that close new rows share. ``return_cov`` and ``sample_y`` always use the features.
    :param strategy: the rows from which :func:`rfgp.fit` learns the parameters, such as "subset", "blocks" or
        "evidence". "auto": the exact likelihood up to 1,000 rows; near rows for several targets, and for one target
        that near rows predict alone; blocks if the model has blocks; else the default of :func:`rfgp.fit`.
    :param time_limit: about how many seconds ``fit`` may take; it also chooses the size of the model. Default: no
        limit.
    :param max_evaluations: the largest number of evaluations of the objective, see :func:`rfgp.fit`.
    :param average: whether to use :class:`rfgp.averaging.AveragedGP`, which averages over parameters and over scales
        of the inputs and targets, so that intervals from a few hundred rows have the right width. One member models
        the residuals of a forest. "auto": up to 1,500 rows, if you set none of the parameters above and no
        ``sample_weight``, each target has ten known values (or as many as there are rows, at least three), and a data
        frame has no text with many values. True: up to 3,000 rows.
    :param noise: "normal", or "student" for targets with outliers: Student's t noise by
        :class:`rfgp.models.LaplaceGP`, with one model for each target and without ``sample_weight``.
    :param fallback: whether to predict with a constant or a linear model if that is better on held-out rows. False: a
        warning only.
    :param verbose: whether ``fit`` prints about how long it will take, and shows a progress bar.
    :param random_state: a seed, a RandomState, or None for a new draw in every fit.
    :raises ValueError: at ``fit``, for invalid parameters or data.

    Attributes after ``fit``:

    - ``model_``: the :class:`rfgp.WeightSpaceGP` or :class:`rfgp.averaging.AveragedGP` of standardized rows. If near
      rows predict alone, the first access fits its features to the rows.
    - ``near_``: the near rows that predict alone, or None.
    - ``fit_summary_``: what :func:`rfgp.fit` returned; not with averages.
    - ``x_scaler_``, ``y_scaler_``: the scales of inputs and targets.
    - ``comparison_``: mean negative log densities of unseen standardized targets, for "model", "constant" and "linear".
    - ``fallback_``: the simpler model that predicts, or None.
    - ``gap_noise_``: the noise variance of training rows with marked missing cells, relative to complete rows; for one
      target and one set of parameters.
    - ``tail_degrees_``, ``tail_widths_``: the predictive distribution of one set of parameters is Student's t with
      these degrees of freedom (T,), infinite for a normal one; its central 95 % intervals are ``tail_widths_`` times as
      wide as those of the model. Both are chosen on unseen rows.
    - ``log_marginal_likelihood_value_``: the log marginal likelihood of the targets in their own units.

    >>> import numpy as np
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = RandomFeatureGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.0], [30.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.0)) < 0.01), bool(std[0] < 0.1 < std[1])
    (True, True)
    """

    _metric = staticmethod(r2_score)
    _one_model = (*ONE_MODEL, "noise")

    def __init__(
        self,
        kernel: str | Kernel = "auto",
        *,
        num_features: int | str = "auto",
        method: str = "auto",
        block_size: int | str | None = "auto",
        num_neighbors: int | str | None = "auto",
        strategy: str | Strategy = "auto",
        time_limit: float | None = None,
        max_evaluations: int = 200,
        average: bool | str = "auto",
        noise: str = "normal",
        fallback: bool = False,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.num_features = num_features
        self.method = method
        self.block_size = block_size
        self.num_neighbors = num_neighbors
        self.strategy = strategy
        self.time_limit = time_limit
        self.max_evaluations = max_evaluations
        self.fallback = fallback
        self.verbose = verbose
        self.random_state = random_state
        self.average = average
        self.noise = noise

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the parameters from inputs (N, d) and targets (N,) or (N, T), and condition the model on them.

        :param X: numbers, or a data frame with text, dates and missing cells, which :class:`TableEncoder` encodes.
        :param y: targets; NaN is a missing value.
        :param sample_weight: weights (N,) that divide the noise variance; error bars are those of weight one.
        """
        return self._learn_rows(X, y, sample_weight, has_more_rows=False)

    def _learn_rows(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, has_more_rows: bool) -> Self:
        deadline, noise = self._deadline, checks.choice("noise", self.noise, ("normal", "student"))
        with all_or_nothing(self):
            inputs, targets, weights = self._rows(X, y, sample_weight, is_first=True)
            if noise == "student" and weights is not None:
                raise ValueError('expected no sample_weight beside noise="student", got some; use noise="normal"')
            warn_of_copies(inputs, _columns(targets))
            self._num_target_axes = targets.ndim
            self._num_observed = (~np.isnan(_columns(targets))).sum(0)
            is_few = self._num_observed < _FEWEST_ROWS
            if is_few.any():
                which = "the targets" if is_few.all() else f"targets {', '.join(map(str, is_few.nonzero()[0][:5]))}"
                warnings.warn(
                    f"fewer than {_FEWEST_ROWS} known values do not tell how far {which} vary: intervals mean nothing",
                    UserWarning,
                    stacklevel=3,
                )
            self._has_more_rows = has_more_rows
            is_averaged = self._averages(inputs, targets, weights, deadline)
            self._tell(self._size(inputs, targets, is_averaged))
            if is_averaged:
                self._fit_average(*self._model_rows(inputs, targets), weights)
            else:
                self._fit(*self._model_rows(inputs, targets), weights, deadline)
            self._keep_first_rows(X, y, sample_weight)
        return self

    def _tells_no_scale(self, y: ArrayLike) -> bool:
        return _tells_no_scale(_columns(np.asarray(y, dtype=np.float64)))

    def _update(self, x: Tensor, targets: Tensor, weights: Tensor | None) -> None:
        averaged = self._model if isinstance(self._model, AveragedGP) else None
        total = 0 if averaged is None else len(averaged.y) + len(x)
        if averaged is not None and weights is None and total <= MOST_AVERAGED:
            if averaged.allows(targets):
                averaged.update(x, targets)
            else:
                self._fit_average(torch.cat([averaged.x, x]), torch.cat([averaged.y, targets]), None)
        elif averaged is not None and self.average == "auto":
            rows = torch.cat([averaged.x, x]), torch.cat([averaged.y, targets])
            known = None if weights is None else np.r_[np.ones(len(averaged.y)), weights.numpy()]
            self._fit(*rows, known, self._deadline)
        elif averaged is not None:
            what = f"{total:,} rows" if weights is None else "sample_weight"
            raise ValueError(
                f"expected at most {MOST_AVERAGED:,} rows and no sample_weight for average=True, got {what}; set "
                'average="auto"'
            )
        else:
            super()._update(x, targets, self._with_gaps(x, weights))
        self._num_observed = self._num_observed + (~np.isnan(_columns(targets.numpy()))).sum(0)

    def _fit(self, x: Tensor, z: Tensor, weights: Floats | None, deadline: Deadline) -> None:
        """Fit standardized rows, and compare the model with others on rows that it has not seen."""
        generator = torch.Generator().manual_seed(drawn_seed(self.random_state))
        rows = LabeledRows(x.numpy(), _columns(z.numpy()), weights)
        num_outputs = rows.y.shape[1]
        seconds = linear_seconds(len(x), x.shape[-1], num_outputs)
        train, held = split_rows(rows.y, generator)
        self.tail_degrees_, self.tail_widths_ = np.full(num_outputs, np.inf), np.ones(num_outputs)
        own = self._with_gaps(x, as_tensor(weights))
        with phases(_PHASES, self.verbose) as bar, torch.no_grad():
            bar.begin("parameters")
            shared: SharedRows | None = None
            with torch.enable_grad():
                if self.noise == "student":
                    model: Any = self._student_models(x[train], z[train], generator, deadline.earlier(seconds))
                    once = 0.0
                else:
                    parts = functools.partial(self._parts, num_lengthscales(self.x_scaler_), z, generator)
                    of_rows = None if own is None else own[train]
                    model, once = self._trained(parts, x[train], z[train], of_rows, len(x), deadline, seconds)
                    if model.conditioned is None:
                        shared = rows_of(model, FittedRows(x[train], z[train], of_rows))
            bar.begin("comparison")
            near: SharedRows | OwnRows | None = shared
            others = _OTHERS if deadline.allows(seconds + once) else {"constant": Constant}
            comparison = BaselineComparison(target_losses, others)
            if len(held):
                unseen = rows.take(held.numpy())
                precisions = None if own is None else own[held].numpy()
                weighted, until = unseen._replace(weights=precisions), deadline.earlier(seconds + once)
                near, found = _quickest(model, shared, weighted, until)
                seen = unseen.take(np.arange(len(found)))
                comparison.on_held_out(rows.take(train.numpy()), seen, self._judged(seen, found))
                bar.begin("all rows")
                if near is None and (deadline.allows(once) or not once):
                    model.update(x[held], z[held], weights=None if own is None else own[held])
            elif self.noise == "normal" and deadline.allows(left_out_seconds(model, len(x), once)):
                left_out = model.leave_one_out(x, z, weights=own)
                moments = [_columns(part.numpy()) for part in (left_out.mean, left_out.variance)]
                comparison.on_left_out(rows, self._judged(rows, np.stack(moments, axis=1)))
            self._compare(comparison, rows)
        self.model_ = model
        if near is not None:
            every = FittedRows(x, z, own)
            self._predict_from(of_more_rows(near, model, every), every)

    def _judged(self, rows: LabeledRows, found: Floats) -> Floats:
        """The losses (N,) of rows that a model has not seen, and the tails of each target that make them smallest.

        :param found: moments (N, 2, T), or the losses of models that have tails of their own.
        """
        if self.noise == "student":
            return found
        tail = tail_of(rows, found)
        self.tail_degrees_, self.tail_widths_ = tail.degrees.numpy(), tail.widths.numpy()
        return target_losses(rows, found, tail)

    @property
    def _tail(self) -> Tail:
        """The tails of new observations by one set of parameters; the others have their own."""
        if self.fallback_ is None and not self._is_averaged:
            return Tail(torch.from_numpy(self.tail_degrees_), torch.from_numpy(self.tail_widths_))
        return Tail(torch.full((self.y_scaler_.n_features_in_,), math.inf))

    def averages(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> bool:
        """Whether :meth:`fit` would average over parameters for these rows; it takes and raises the same.

        That takes about a second where ten cells of a column are missing, or more.
        """
        twin = clone(self)
        twin.number_marks = self.number_marks
        return twin._size_of(X, y, sample_weight).is_averaged

    def _size_of(self, X: ArrayLike, y: ArrayLike, sample_weight: Any) -> FitSize:
        inputs, targets, weights = self._rows(X, y, sample_weight, is_first=True)
        self._has_more_rows = False
        return self._size(inputs, targets, self._averages(inputs, targets, weights, self._deadline))

    def _size(self, inputs: Floats, targets: Floats, is_averaged: bool) -> FitSize:
        """The size of a fit to checked rows."""
        num_rows, num_columns = inputs.shape
        return FitSize(num_rows, num_columns, _columns(targets).shape[1], False, is_averaged, self._has_choice)

    def _averages(self, inputs: Floats, targets: Floats, weights: Floats | None, deadline: Deadline) -> bool:
        """Whether parameters are averaged over; a ValueError where they cannot be, and were to.

        It learns the scales of all inputs and targets, and the noise of rows with marked missing cells.
        """
        self.x_scaler_ = input_scaler(inputs, weights)
        self.y_scaler_ = ColumnScaler().fit(_columns(targets), sample_weight=weights)
        self.gap_noise_ = 1.0
        if self.average is not True:
            self.gap_noise_ = self._learned_gap_noise(*self._model_rows(inputs, targets), weights, deadline)
        if self.average == "auto":
            if self._has_more_rows:
                return False
            known = (~np.isnan(_columns(targets))).sum(0).min()
            is_small = len(inputs) <= AUTO_ROWS and known >= min(_FEWEST_KNOWN, len(inputs))
            is_uneven = self.gap_noise_ >= _LARGE_GAP_NOISE and len(inputs) >= _FEW_GAP_ROWS
            if self._given(weights) or self._has_levels or not is_small or is_uneven:
                return False
        elif not isinstance(self.average, bool):
            raise ValueError(f'expected "auto", True or False for average, got {self.average!r}; choose one of them')
        elif not self.average:
            return False
        return not _tells_no_scale(_columns(targets))

    def _fit_average(self, x: Tensor, z: Tensor, weights: Floats | None) -> None:
        """Fit standardized rows, averaging over parameters, and compare the model with others on rows left out."""
        given = self._given(weights)
        if given:
            raise ValueError(f"expected no {given[0]} beside average=True, got some; leave one of both out")
        if len(x) > MOST_AVERAGED:
            raise ValueError(
                f"expected at most {MOST_AVERAGED:,} rows for average=True, got {len(x):,} rows; leave it out"
            )
        self.tail_degrees_ = np.full(_columns(z.numpy()).shape[1], np.inf)
        self.tail_widths_ = np.ones_like(self.tail_degrees_)
        learns_baseline = functools.partial(forest_baseline, seed=drawn_seed(self.random_state))
        with phases(_PHASES[:2], self.verbose) as bar:
            bar.begin("parameters")
            model = AveragedGP(x, z, learns_baseline if z.numel() <= MOST_VALUES else None, self._bounds(z))
            rows = LabeledRows(x.numpy(), _columns(z.numpy()), None)
            bar.begin("comparison")
            others = _OTHERS if z.numel() <= MOST_VALUES else {"constant": Constant}
            comparison = BaselineComparison(target_losses, others)
            losses = observed_means(_columns(-model.left_out_log_density.numpy()), rows.y)
            comparison.on_left_out(rows, losses)
            self._compare(comparison, rows)
        self.model_ = model

    def _bounds(self, z: Tensor) -> tuple[float, float] | None:
        """The bounds of one standardized target (N,) whose values are shares; None for others."""
        if z.dim() > 1:
            return None
        ends = self.y_scaler_.transform([[0.0], [1.0]])[:, 0]
        low, high = ends.tolist()
        return (low, high) if low <= float(z.min()) and float(z.max()) <= high else None

    def _has_gaps(self, x: Tensor) -> Tensor:
        """Whether marked cells are missing in the rows of standardized inputs (N, d), (N,)."""
        return (x[:, list(self.marks_)] > 0.0).any(-1)

    def _learned_gap_noise(self, x: Tensor, z: Tensor, weights: Floats | None, deadline: Deadline) -> float:
        """The noise variance of such rows, in that of complete ones; one where it is not learned."""
        has_gaps = self._has_gaps(x)
        may_learn = self.noise == "normal" and z.numel() == len(z) and bool(has_gaps.any())
        if not (may_learn and deadline.allows(slowness() * _TIMES_OF_GAPS * gap_noise.SECONDS)):
            return 1.0
        generator = torch.Generator().manual_seed(drawn_seed(self.random_state))
        parts = self._parts(num_lengthscales(self.x_scaler_), z, generator, plain_kernel(self.kernel))
        return gap_noise.noise_ratio(parts, x, z, has_gaps, as_tensor(weights))

    def _of_gaps(self, x: Tensor) -> Tensor:
        """The noise variances of rows, in those of complete ones, (N, 1)."""
        return torch.where(self._has_gaps(x), self.gap_noise_, 1.0).double().unsqueeze(-1)

    def _with_gaps(self, x: Tensor, weights: Tensor | None) -> Tensor | None:
        """The weights (N,) of rows over the noise of their gaps."""
        if self.gap_noise_ == 1.0:
            return weights
        precisions = 1.0 / self._of_gaps(x).squeeze(-1)
        return precisions if weights is None else weights * precisions

    def _parts(self, num_columns: int, z: Tensor, generator: torch.Generator, kernel: str | Kernel) -> Parts:
        seed, constraint = generator.initial_seed(), GreaterThan(_SMALLEST_NOISE)
        num_outputs = z.numel() // len(z)
        if num_outputs == 1:
            exact = scaled_kernel(kernel, num_columns)
            likelihood = GaussianLikelihood(noise_constraint=constraint).double()
            return Parts(exact, likelihood, ConstantMean().double(), seed)
        exact = multitask_kernel(kernel, num_columns, num_outputs, generator)
        is_complete = not bool(torch.isnan(z).any())
        if is_complete:
            with drawing_from(generator):
                several = MultitaskGaussianLikelihood(num_outputs, rank=num_outputs, noise_constraint=constraint)
        else:
            several = MultitaskGaussianLikelihood(num_outputs, has_global_noise=False, noise_constraint=constraint)
        mean = MultitaskMean(ConstantMean(), num_outputs)
        return Parts(exact, several.double(), mean.double(), seed, 1 if is_complete else num_outputs)

    def _student_models(self, x: Tensor, z: Tensor, generator: torch.Generator, deadline: Deadline) -> StudentModels:
        """A model of every output, on a kernel that is learned with normal noise first."""
        models, columns = [], z.reshape(len(z), -1).unbind(-1)
        for number, column in enumerate(columns):
            share = deadline.share(1.0 / (len(columns) - number))
            observed = ~torch.isnan(column)
            rows = x[observed], column[observed]
            parts = functools.partial(self._parts, num_lengthscales(self.x_scaler_), column, generator)
            normal, _ = self._trained(parts, *rows, None, len(x), share.share(0.5), 0.0, plain_kernel(self.kernel))
            models.append(student_model(normal, *rows, share, self.max_evaluations))
        return StudentModels(models).condition(x, z)

    def _observed(self, x: Tensor) -> Any:
        """The distribution of new standardized observations at standardized inputs."""
        if self.fallback_ is None:
            latent = self.model_.posterior(x)
            if isinstance(latent, MultitaskMultivariateNormal) or isinstance(self.model_, StudentModels):
                return self.model_.likelihood(latent)
            variance = latent.variance.unsqueeze(-1)
            added = observed_variances(self.model_, x, variance, self._of_gaps(x)) - variance
            matrix = latent.lazy_covariance_matrix + DiagLinearOperator(added.squeeze(-1))
            return MultivariateNormal(latent.mean, matrix)
        mean, variance = (torch.from_numpy(part) for part in np.moveaxis(self.fallback_.predict(x.numpy()), 1, 0))
        if mean.shape[1] == 1:
            return MultivariateNormal(mean.squeeze(-1), DiagLinearOperator(variance.squeeze(-1)))
        return MultitaskMultivariateNormal(mean, DiagLinearOperator(variance.flatten()))

    def predict(self, X: ArrayLike, return_std: bool = False, return_cov: bool = False) -> Any:
        """Predict the mean of new observations at inputs (N, d), and their standard deviations or covariances.

        :returns: means (N,) or (N, T); with ``return_std`` or ``return_cov`` a pair of means and standard deviations
            of the same shape, or covariances (N, N) or (N, N, T).
        """
        return_std, return_cov = checks.flag("return_std", return_std), checks.flag("return_cov", return_cov)
        if return_std and return_cov:
            raise ValueError("expected at most one of return_std and return_cov, got both; ask twice")
        x, missing = self._inputs(X)
        with torch.no_grad():
            if return_cov:
                columns, covariances = self._joint(x, missing)
                scaled = covariances * self.y_scaler_.scale_**2
                mean = self._shaped(self.y_scaler_.inverse_transform(columns))
                return mean, scaled[..., 0] if self._num_target_axes == 1 else scaled
            columns, variance = self._moments(x, return_std, missing)
            mean = self._shaped(self.y_scaler_.inverse_transform(columns))
            return (mean, self._shaped(np.sqrt(variance) * self.y_scaler_.scale_)) if return_std else mean

    def _joint(self, x: Tensor, missing: Imputations | None) -> tuple[Floats, Floats]:
        """Means (N, T) and covariances (N, N, T) of new standardized observations.

        What is missing of rows adds to their variances alone.
        """
        if self._is_averaged:
            mean, _ = self._moments(x, False)
            covariances = np.moveaxis(self.model_.covariance(x).numpy().reshape(-1, len(x), len(x)), 0, -1)
        else:
            observed, count = self._observed(x), self.y_scaler_.n_features_in_
            mean = _columns(observed.mean.numpy())
            joint = observed.covariance_matrix.numpy().reshape(len(x), count, len(x), count)
            covariances = np.diagonal(joint, axis1=1, axis2=3) * self._tail.variance.numpy()
        if missing is None:
            return mean, covariances
        rows, mean, covariances = missing.rows.numpy(), mean.copy(), covariances.copy()
        pooled, variance = (part[rows] for part in self._moments(x, True, missing))
        mean[rows], covariances[rows, rows] = pooled, np.maximum(covariances[rows, rows], variance)
        return mean, covariances

    @property
    def _is_averaged(self) -> bool:
        """Whether an averaged model predicts."""
        return self.fallback_ is None and isinstance(self._model, AveragedGP)

    def predict_interval(self, X: ArrayLike, level: float = 0.95) -> Floats:
        """Central prediction intervals at inputs (N, d): lower and upper ends, (N, 2) or (N, 2, T).

        The ends are quantiles of the predictive distribution, which is a mixture if parameters are averaged over, and
        else Student's t with ``tail_degrees_`` and ``tail_widths_``.

        :param level: the probability of the interval.
        :raises ValueError: if ``level`` is not a probability.
        """
        tail = 0.5 - 0.5 * checks.share("level", level)
        return self.predict_quantiles(X, [tail, 1.0 - tail])

    def predict_quantiles(self, X: ArrayLike, levels: Sequence[float]) -> Floats:
        """Predict quantiles of new observations at inputs (N, d): (N, L) or (N, L, T), see :meth:`predict_interval`.

        :param levels: L probabilities.
        :raises ValueError: if a level is not a probability.
        """
        wanted = [checks.share("level", level) for level in np.ravel(levels).tolist()]
        if not wanted:
            raise ValueError("expected levels, got none; such as [0.025, 0.975]")
        x, missing = self._inputs(X)
        with torch.no_grad():
            if self._is_averaged:
                distribution = self._mixture(x, missing)
                columns = np.stack([_columns(distribution.icdf(level).numpy()) for level in wanted], axis=1)
            else:
                mean, variance = self._normal_moments(x, True, missing)
                steps = self._tail.icdf(
                    torch.tensor(wanted, dtype=torch.float64).unsqueeze(-1).expand(-1, mean.shape[1])
                )
                columns = mean[:, None] + steps.numpy() * np.sqrt(variance)[:, None]
        found: Floats = columns * self.y_scaler_.scale_ + self.y_scaler_.mean_
        return found[..., 0] if self._num_target_axes == 1 else found

    def log_density(self, X: ArrayLike, y: ArrayLike) -> Floats:
        """The log predictive densities of observations at inputs (N, d), in the units of the targets.

        The negative mean of these is the NLPD. The predictive distribution is that of :meth:`predict_quantiles`, which
        is in general not normal.

        :param y: observations (N,) or (N, T); NaN is a missing value.
        :returns: log densities of the same shape, NaN for missing observations.
        :raises ValueError: for observations of another shape, infinite values, or text.

        >>> import numpy
        >>> x = numpy.linspace(0.0, 6.0, 100)[:, None]
        >>> model = RandomFeatureGPRegressor(random_state=0).fit(x[::2], numpy.sin(x[::2, 0]))
        >>> bool(model.log_density(x, numpy.sin(x[:, 0])).min() > model.log_density(x[:1], [1.0])[0])
        True
        """
        check_numbers(y)
        (x, missing), targets = self._inputs(X), check_array(y, **_TARGET_CHECKS, input_name="y")
        shape = (len(x),) if self._num_target_axes == 1 else (len(x), self.y_scaler_.n_features_in_)
        if targets.shape != shape:
            raise ValueError(f"expected y of shape {shape}, got {targets.shape}; pass one observation for each mean")
        z = torch.from_numpy(self.y_scaler_.transform(_columns(targets)))
        with torch.no_grad():
            if self._is_averaged:
                distribution = self._mixture(x, missing)
                found = _columns(distribution.log_prob(z.reshape(distribution.mean.shape)).numpy())
            else:
                mean, variance = (torch.from_numpy(part) for part in self._normal_moments(x, True, missing))
                found = (self._tail.log_density((z - mean) / variance.sqrt()) - 0.5 * variance.log()).numpy()
        return self._shaped(found - np.log(self.y_scaler_.scale_))

    def _moments(self, x: Tensor, has_variance: bool, missing: Imputations | None = None) -> tuple[Floats, Floats]:
        """Means and variances (N, T) of new standardized observations at standardized inputs (N, d)."""
        if self._is_averaged:
            distribution = self._mixture(x, missing)
            return _columns(distribution.mean.numpy()), _columns(distribution.variance.numpy())
        mean, variance = self._normal_moments(x, has_variance, missing)
        return mean, variance * self._tail.variance.numpy()

    def _mixture(self, x: Tensor, missing: Imputations | None) -> Mixture:
        """What an averaged model says of new standardized observations."""
        found: Mixture = self.model_.predictive(x)
        if missing is None:
            return found
        parts = [self.model_.predictive(complete) for complete in missing.x]
        return found.imputed(missing.rows, missing.is_marked, parts)

    def _normal_moments(self, x: Tensor, has_variance: bool, missing: Imputations | None) -> tuple[Floats, Floats]:
        """Means and variances (N, T) of the normals whose central 95 % intervals new observations have."""
        found = self._complete_moments(x, has_variance)
        if missing is not None:
            parts = [self._complete_moments(complete, has_variance) for complete in missing.x]
            found = found.imputed(missing.rows, missing.is_marked, parts, self._tail.widths)
        return found.mean.numpy(), found.variance.numpy()

    def _complete_moments(self, x: Tensor, has_variance: bool) -> Moments:
        """Those of rows whose inputs are all there, or marked as missing."""
        if self.fallback_ is not None or isinstance(self._model, StudentModels):
            observed = self._observed(x)
            return Moments(observed.mean.reshape(len(x), -1), observed.variance.reshape(len(x), -1))
        near: Any = self.near_
        model = self.model_ if near is None else self._model
        mean, variance = latent_moments(model, x, has_variance, near)
        return Moments(mean, observed_variances(model, x, variance, self._of_gaps(x)) if has_variance else variance)

    def cross_val_predict(
        self,
        X: ArrayLike,
        y: ArrayLike,
        cv: Any = None,
        groups: ArrayLike | None = None,
        return_std: bool = False,
        sample_weight: ArrayLike | None = None,
    ) -> Any:
        """Predict every training row from the other folds without a refit: (N,) or (N, T).

        The parameters stay those of all rows.

        :param X: the inputs (N, d) of the fit.
        :param cv: None for leave-one-out, a number of folds, or a splitter that holds each row out once.
        :param return_std: whether to return a pair with standard deviations of new observations of weight one.
        :param sample_weight: the weights of the fit, all positive.
        """
        return_std = checks.flag("return_std", return_std)
        check_is_fitted(self)
        if isinstance(self._model, AveragedGP):
            x, z, folds, _ = self._fitted_rows(X, y, cv, groups, sample_weight)
            found = self._model.leave_group_out(x, z, folds)
            mean = self._shaped(self.y_scaler_.inverse_transform(_columns(found.mean.numpy())))
            std = self._shaped(_columns(found.stddev.numpy()) * self.y_scaler_.scale_)
            return (mean, std) if return_std else mean
        x, latent_mean, latent = self._left_out(X, y, cv, groups, sample_weight)
        mean = self._shaped(self.y_scaler_.inverse_transform(latent_mean.numpy()))
        if not return_std:
            return mean
        variance = observed_variances(self._model, x, latent, self._of_gaps(x)).numpy() * self._tail.variance.numpy()
        return mean, self._shaped(np.sqrt(variance) * self.y_scaler_.scale_)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> Floats:
        """Sample new observations at inputs (N, d), correlated between rows and targets: (N, S) or (N, T, S)."""
        (x, missing), n_samples = self._inputs(X), checks.positive_integer("n_samples", n_samples)
        random = check_random_state(random_state)
        with torch.no_grad():
            if missing is None:
                scaled = self._draws(x, n_samples, random)
            else:
                parts = [self._draws(*completed, random) for completed in missing.completed(x, n_samples, random)]
                scaled = np.concatenate(parts, axis=-1)[..., random.permutation(n_samples)]
                scaled += self._of_marks(x, missing)[..., None]
        result = scaled * self.y_scaler_.scale_[:, None] + self.y_scaler_.mean_[:, None]
        return result[:, 0] if self._num_target_axes == 1 else result

    def _of_marks(self, x: Tensor, missing: Imputations) -> Floats:
        """How far means (N, T) are from those over imputations: zero where no input marks what is missing."""
        is_unmarked = missing._replace(is_marked=torch.zeros_like(missing.is_marked))
        return self._moments(x, False, missing)[0] - self._moments(x, False, is_unmarked)[0]

    def _draws(self, x: Tensor, num_samples: int, random: np.random.RandomState) -> Floats:
        """Draws (N, T, S) of new standardized observations at standardized inputs (N, d)."""
        if self.fallback_ is None and isinstance(self.model_, StudentModels):
            of_outputs: Floats = self.model_.draws(x, num_samples, random)
            return of_outputs
        if self._is_averaged:
            generator = torch.Generator().manual_seed(int(random.randint(2**31)))
            draws = self.model_.sample(x, num_samples, generator).numpy()
            return np.moveaxis(draws.reshape(num_samples, len(x), -1), 0, -1)
        observed = self._observed(x)
        factor = torch.linalg.cholesky(observed.covariance_matrix).numpy()
        mean, std = (_columns(part.numpy())[..., None] for part in (observed.mean, observed.stddev))
        draws = (factor @ random.normal(size=(len(factor), num_samples))).reshape(*mean.shape[:2], num_samples)
        found: Floats = mean + std * self._with_tails(draws / std)
        return found

    def _with_tails(self, normal: Floats) -> Floats:
        """Standard normal values (N, T, S) with the tails of each target, by a normal copula."""
        levels = torch.special.ndtr(torch.from_numpy(normal)).clamp(_EDGE, 1.0 - _EDGE).mT
        tail = self._tail
        found: Floats = tail.icdf(levels).mT.numpy()
        return np.where(tail.degrees.isinf().numpy()[:, None], tail.scale.numpy()[:, None] * normal, found)

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The log marginal likelihood of the training data, for targets in their own units."""
        change = float(np.sum(self._num_observed * np.log(self.y_scaler_.scale_)))
        return super().log_marginal_likelihood_value_ - change

    def _rows(
        self, X: ArrayLike, y: ArrayLike, sample_weight: Any, is_first: bool
    ) -> tuple[Floats, Floats, Floats | None]:
        """Inputs (N, d), targets (N,) or (N, T), and weights, checked."""
        separately = {"dtype": np.float64, "order": "C"}, _TARGET_CHECKS
        check_numbers(y)
        inputs, targets = self._validated(X, y, is_first=is_first, validate_separately=separately)
        check_consistent_length(inputs, targets)
        columns = _columns(targets)
        if not is_first and columns.shape[1] != self.y_scaler_.n_features_in_:
            raise ValueError(
                f"expected {self.y_scaler_.n_features_in_} targets as in the first call, got {columns.shape[1]}; "
                "pass a column for each"
            )
        unknown = np.flatnonzero(np.isnan(columns).all(0))
        if is_first and len(unknown):
            raise ValueError(f"expected a known value of every target, got none of target {unknown[0]}; leave it out")
        weights, inputs, targets = present(row_weights(sample_weight, inputs), inputs, targets)
        known = ~np.isnan(_columns(targets)).all(1)
        if targets.size == len(targets) or not known.any():
            return inputs[known], targets[known], None if weights is None else weights[known]
        return inputs, targets, weights

    def _model_rows(self, inputs: Floats, targets: Floats) -> tuple[Tensor, Tensor]:
        scaled = torch.from_numpy(self.y_scaler_.transform(_columns(targets)))
        x = torch.from_numpy(self.x_scaler_.transform(inputs))
        return x, scaled.squeeze(-1) if scaled.shape[1] == 1 else scaled

    def _shaped(self, columns: Floats) -> Floats:
        """Values (N, T) in the shape that the targets had."""
        return columns[:, 0] if self._num_target_axes == 1 else columns


def _columns(values: Floats) -> Floats:
    """Values (N,) or (N, T) of one or several targets as (N, T)."""
    return values.reshape(len(values), -1)


def _tells_no_scale(columns: Floats) -> bool:
    """Whether targets (N, T) are so few, or one of them so alike, that their scale is not known."""
    is_alike = np.fmin.reduce(columns) == np.fmax.reduce(columns)
    return len(columns) < _FEWEST_ROWS or bool(is_alike.any())


def _as_time_allows(function: Callable[[LabeledRows], Floats], rows: LabeledRows, deadline: Deadline) -> Floats:
    """What a function says of rows (N, ...); of the first ones where time is short."""
    began, first = timing.clock(), np.arange(min(_FIRST_HELD_OUT, len(rows.x)))
    found, rest = function(rows.take(first)), np.arange(len(first), len(rows.x))
    if len(rest) and deadline.allows((timing.clock() - began) * len(rest) / len(first)):
        found = np.concatenate([found, function(rows.take(rest))])
    return found


def _quickest(
    model: Any, shared: SharedRows | None, rows: LabeledRows, deadline: Deadline
) -> tuple[SharedRows | OwnRows | None, Floats]:
    """Near rows that predict unseen rows about as well as any, those that take least time, and what they say of these.

    :param shared: rows that new ones share; None where the features of the model predict.
    """
    found = _as_time_allows(functools.partial(_unseen, model, shared), rows, deadline)
    own = None if shared is None else own_rows(shared)
    if own is None:
        return shared, found
    other = _as_time_allows(functools.partial(_unseen, model, own), rows, deadline)
    seen = rows.take(np.arange(min(len(found), len(other))))
    moments = (part[: len(seen.x)] for part in (found, other))
    losses = [float(target_losses(seen, part, tail_of(seen, part)).mean()) for part in moments]
    return (own, other) if losses[1] < losses[0] + _NEGLIGIBLE_GAIN else (shared, found)


def _unseen(model: Any, near: SharedRows | OwnRows | None, rows: LabeledRows) -> Floats:
    """Moments (N, 2, T) of rows that a model has not seen, or their losses (N,) by models that have tails."""
    x = torch.from_numpy(rows.x)
    if isinstance(model, StudentModels):
        return model.losses(x, torch.from_numpy(rows.y))
    mean, variance = latent_moments(model, x, rows=near)
    of_noise = 1.0 / torch.from_numpy(rows.ones_or_weights).unsqueeze(-1)
    return np.stack([mean.numpy(), observed_variances(model, x, variance, of_noise).numpy()], axis=1)
