"""What regression and classification of a table share: the model, its training, and rows that come later."""

from __future__ import annotations

import abc
import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import DirichletClassificationLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._support import checks
from ..approximation.entry import approximate
from ..models import WeightSpaceGP
from ..training import Neighbors, fit
from ..training.costs import covariance_seconds, slowness
from ..training.neighbors import ParametersAlone
from ..training.starts import random_rows
from ..training.strategies import Strategy
from ..training.timing import Deadline
from .arrays import Floats, all_or_nothing, as_tensor, joined
from .choice import MakeParts, Parts, chosen_neighbors, chosen_parts, with_additive_mean
from .comparison import BaselineComparison, LabeledRows
from .fit_seconds import FitSize, tell
from .folds import fold_labels
from .kernels import KERNELS, is_rough
from .latent import with_means
from .model_size import NUM_EXACT_ROWS, ModelSize, default_size, timed_size
from .near_predictions import FittedRows, NearPredictor, needs_no_features, of_more_rows
from .table_estimator import TableEstimator

_SECONDS_OF_NEAR_ROWS, _SHARE_OF_NEAR_ROWS = 1e-5, 0.4
"""What it takes to look whether near rows need no features, for each row, and the part of a time limit for that."""
_TIMES_OF_OUTPUTS = 3
"""How many times as long as one fit of so many outputs all of it takes."""
_MOST_CHOICE_ROWS, _MOST_CHOICE_CELLS = 100_000, 16_000_000
"""Random rows by which kernels, functions of single inputs and the number of neighbors are chosen, at most, and cells:
20,000 rows of pictures."""
_CELLS_OF_SECOND, _FEWEST_CHOICE_ROWS = 1e6, 3000
"""Of a time limit, each second has so many of these cells, but for the fewest rows that tell kernels apart."""
_OF_CELLS = 50
"""Evaluations of the evidence of few cells, after which it gains nothing that other rows would show."""

_FIRST_ROWS = 100
"""From fewer rows parameters are learned again each time that ``partial_fit`` has doubled their number."""

ONE_MODEL = (
    *("kernel", "num_features", "method", "block_size", "num_neighbors", "strategy"),
    *("time_limit", "max_evaluations"),
)
"""What is set for a model with one set of parameters."""


class RandomFeatureGP(TableEstimator):
    """The base of :class:`RandomFeatureGPRegressor`, where its parameters are described, and the classifier."""

    strategy: str | Strategy
    max_evaluations: int

    fit: Callable[..., Self]
    cross_val_predict: Callable[..., Any]
    _metric: Callable[..., float]

    _one_model: tuple[str, ...]

    near_: NearPredictor | None = None
    """The training rows near new ones, where these predict in place of the features of the model."""
    _near_rows: FittedRows
    """These rows, on which the model is conditioned when it is asked for first."""
    _is_waiting: bool = False
    """Whether the model has not been asked for."""

    _first_rows: tuple[Any, Any, Any] | None
    """Inputs, targets and weights of all rows, where they are too few for their parameters to be kept."""
    _num_learned: int
    """Of how many rows parameters were learned; of none where these tell no scale."""
    _has_more_rows: bool
    """Whether the model began with ``partial_fit``."""

    @property
    def model_(self) -> Any:
        """The fitted model. If near rows predict alone, the first access fits its features to the rows."""
        if not self._is_fitted:
            raise AttributeError(f"expected a fitted {type(self).__name__}, got one without data; call fit first")
        if self._is_waiting:
            x, y, weights = self._near_rows
            with torch.no_grad():
                self._model.condition(x, y, weights=weights)
            self._is_waiting = False
        return self._model

    @model_.setter
    def model_(self, model: Any) -> None:
        self._model, self.near_, self._is_waiting = model, None, False

    def _predict_from(self, near: NearPredictor, rows: FittedRows) -> None:
        """Predict new rows from those near them, without the features of the model."""
        self.near_, self._near_rows, self._is_waiting = near, rows, True

    @property
    def learned_(self) -> Any:
        """The model with its parameters; if near rows predict alone, it may have no rows yet."""
        check_is_fitted(self)
        return self._model

    @property
    def _is_fitted(self) -> bool:
        """Whether there is a model, which this does not condition."""
        return "_model" in vars(self)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Add rows (N, d). The first call is ``fit``; later ones keep its scales, parameters, features and calibration.

        Those of fewer than 100 rows, or of a constant target, are not kept: everything is learned again from all rows
        each time that their number has doubled, or that the target varies, while there are at most 1,000 rows. So it is
        if all targets lay between 0 and 1 and a new one does not. With ``average="auto"``, only models that began with
        ``fit`` are averaged over parameters, up to 3,000 rows (or rows times classes).
        """
        if not self._is_fitted:
            return self._learn_rows(X, y, sample_weight, has_more_rows=True)
        inputs, targets, weights = self._rows(X, y, sample_weight, is_first=False)
        if not len(inputs):
            return self
        every = None if self._first_rows is None else _joined_rows(self._first_rows, (X, y, sample_weight))
        if every is not None and not self._tells_no_scale(every[1]) and len(every[1]) >= 2 * self._num_learned:
            return self._learn_rows(*every, has_more_rows=self._has_more_rows)
        x, z = self._model_rows(inputs, targets)
        with all_or_nothing(self), torch.no_grad():
            self._update(x, z, as_tensor(weights))
        if every is not None:
            self._first_rows = every if len(every[1]) <= NUM_EXACT_ROWS else None
        return self

    @abc.abstractmethod
    def _learn_rows(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, has_more_rows: bool) -> Self:
        """What ``fit`` does; where more rows follow, parameters are averaged over if that is wanted alone."""

    def _tells_no_scale(self, y: ArrayLike) -> bool:
        """Whether targets, in the form that a user gives, do not tell the scale of others."""
        return False

    def _keep_first_rows(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        """Keep a copy of the rows that were fitted where they are too few for their parameters to be kept."""
        self._num_learned = 0 if self._tells_no_scale(y) else len(np.asarray(y))
        self._first_rows = copy.deepcopy((X, y, sample_weight)) if self._num_learned < _FIRST_ROWS else None

    def _update(self, x: Tensor, targets: Tensor, weights: Tensor | None) -> None:
        """Add rows to the model, and to those that predict in place of its features."""
        near = self.near_
        if near is not None:
            rows = self._near_rows.joined(FittedRows(x, targets, weights))
            self.near_, self._near_rows = of_more_rows(near, self._model, rows), rows
        if not self._is_waiting:
            self._model.update(x, targets, weights=weights)

    def cross_validate(
        self,
        X: ArrayLike,
        y: ArrayLike,
        cv: Any = 5,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> dict[str, Floats]:
        """Score K folds (R2 or accuracy), each predicted from the others without a refit: ``{"test_score": (K,)}``.

        :param X: the inputs (N, d) of the fit.
        :param cv: a number of folds, or a splitter of scikit-learn that holds each row out once.
        :param sample_weight: the weights of the fit, all positive.
        """
        predicted, targets = self.cross_val_predict(X, y, cv, groups, sample_weight=sample_weight), np.asarray(y)
        folds = fold_labels(cv, np.asarray(X), targets, groups, is_classifier(self)).numpy()
        scores = [self._metric(targets[folds == fold], predicted[folds == fold]) for fold in range(folds.max() + 1)]
        return {"test_score": np.array(scores)}

    def _fitted_rows(
        self, X: ArrayLike, y: ArrayLike, cv: Any, groups: Any, sample_weight: Any
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Rows of the fit as the model takes them, the folds that are left out (N,), and weights."""
        check_is_fitted(self)
        if self.encoder_ is not None and any(column.codes for column in self.encoder_.columns_):
            raise ValueError(
                "expected text of at most 50 values to leave out rows without a refit, got more, whose inputs know "
                "the targets; use sklearn.model_selection.cross_val_predict, which refits"
            )
        inputs, targets, weights = self._rows(X, y, sample_weight, is_first=False)
        if len(inputs) < len(np.asarray(X)):
            raise ValueError(
                "expected no weights of zero, and no missing targets, beside rows that are left out, got some; pass "
                "the other rows"
            )
        folds = fold_labels(cv, inputs, targets, groups, is_classifier(self))
        x, z = self._model_rows(inputs, targets)
        return x, z, folds, self._with_gaps(x, as_tensor(weights))

    def _left_out(
        self, X: ArrayLike, y: ArrayLike, cv: Any, groups: Any, sample_weight: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Standardized rows (N, d) of the fit, and what the rows of other folds say of the functions there.

        :returns: the inputs, and means and variances, (N, T) each.
        """
        x, z, folds, own = self._fitted_rows(X, y, cv, groups, sample_weight)
        if self.near_ is not None:
            self._near_rows.check(FittedRows(x, z, own))
            return x, *with_means(self._model, x, *self.near_.left_out(folds))
        model = self.model_
        if cv is None:
            left_out = model.leave_one_out(x, z, weights=own)
        else:
            left_out = model.leave_group_out(x, z, folds, weights=own)
        mean, variance = left_out.mean, left_out.latent_variance
        if is_classifier(self):
            return x, mean.mT, variance.mT
        return x, mean.reshape(len(x), -1), variance.reshape(len(x), -1)

    def _with_gaps(self, x: Tensor, weights: Tensor | None) -> Tensor | None:
        """The weights (N,) by which the noise of rows at standardized inputs (N, d) is divided."""
        return weights

    @abc.abstractmethod
    def _rows(
        self, X: ArrayLike, y: ArrayLike, sample_weight: Any, is_first: bool
    ) -> tuple[Floats, NDArray[Any], Floats | None]:
        """Inputs (N, d), targets or labels, and weights (N,) if there are any, checked; without rows of weight zero."""

    @abc.abstractmethod
    def _model_rows(self, inputs: Floats, targets: NDArray[Any]) -> tuple[Tensor, Tensor]:
        """Checked rows as the model takes them."""

    def _given(self, weights: Floats | None) -> list[str]:
        """What was given that belongs to a model with one set of parameters."""
        plain = type(self)()
        given = [name for name in self._one_model if getattr(self, name) != getattr(plain, name)]
        return given + (["sample_weight"] if weights is not None else [])

    @abc.abstractmethod
    def _size_of(self, X: ArrayLike, y: ArrayLike, sample_weight: Any) -> FitSize:
        """The size of a fit to rows, whose classes and scales are learned."""

    @property
    def _has_choice(self) -> bool:
        """Whether held-out rows choose the kernel, not with random effects; a ValueError for no name of one."""
        if isinstance(self.kernel, str) and self.kernel not in KERNELS:
            checks.choice("kernel", self.kernel, ("auto", *KERNELS))
        return isinstance(self.kernel, str) and self.kernel == "auto" and not self._has_levels

    def _seconds(self, size: FitSize) -> float:
        """What a fit of a size takes, about, in the time limit."""
        return min(size.seconds, self._deadline.left)

    def _tell(self, size: FitSize) -> None:
        """Say how long the fit that begins will take, where that is wanted."""
        if self.verbose:
            tell(self._seconds(size), "time_limit=60" if self.time_limit is None else None)

    def estimated_seconds(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Estimate how many seconds :meth:`fit` to these rows will take on this machine; it takes and raises the same.

        Nothing is fitted. The estimate depends on the numbers of rows, columns, targets and classes, and on a
        measurement of the speed of the machine, which takes some hundredths of a second once. With default parameters,
        four of five estimates are right up to a factor of two. With ``verbose=True``, :meth:`fit` prints the same.

        >>> import numpy as np
        >>> from rfgp.sklearn import RandomFeatureGPRegressor
        >>> X = np.random.default_rng(0).normal(size=(5000, 3))
        >>> 0.0 < RandomFeatureGPRegressor(time_limit=2.0).estimated_seconds(X, X[:, 0]) <= 2.0
        True
        """
        return self._seconds(clone(self)._size_of(X, y, sample_weight))

    def _compare(self, comparison: BaselineComparison, rows: LabeledRows) -> None:
        """Keep the losses, and what predicts in place of a model that is worse than others."""
        self.comparison_ = comparison.means
        self.fallback_ = None
        if comparison.better is not None and self.fallback:
            self.fallback_ = comparison.others[comparison.better]().fit(*rows)
        elif comparison.better is not None:
            comparison.warn()

    def _trained(
        self,
        make_parts: MakeParts,
        x: Tensor,
        y: Tensor,
        weights: Tensor | None,
        num_rows: int,
        deadline: Deadline,
        after: float,
        kernel: str | Kernel | None = None,
    ) -> tuple[WeightSpaceGP, float]:
        """A model of chosen size and parameters, fitted to standardized inputs (N, d), and the seconds of one fit.

        It is not conditioned where new rows are to be predicted from those near them, without features.

        :param num_rows: the number of all rows, also those that come later.
        :param after: the seconds that are needed after that.
        :param kernel: in place of the one of the estimator.
        """
        kernel = self._with_levels(self.kernel if kernel is None else kernel, x.shape[-1])
        in_time = max(_FEWEST_CHOICE_ROWS, _CELLS_OF_SECOND * deadline.left / x.shape[-1])
        most = int(min(_MOST_CHOICE_ROWS, _MOST_CHOICE_CELLS // x.shape[-1], in_time))
        some = slice(None) if len(x) <= most else random_rows(len(x), most)
        sample = x[some], y[some]
        with _quiet():
            parts = chosen_parts(make_parts, kernel, *sample, deadline)
            if weights is None:
                parts = with_additive_mean(parts, *sample, deadline)

        def complete(proposed: ModelSize) -> ModelSize:
            return self._completed(proposed.of_cells(parts.num_cells), len(x), parts)

        def make(chosen: ModelSize) -> WeightSpaceGP:
            kernel = approximate(
                parts.kernel, chosen.num_features, method=self._method, train_inputs=x, seed=parts.seed
            )
            return WeightSpaceGP(
                kernel, parts.likelihood, parts.mean, block_size=chosen.block_size, num_neighbors=chosen.num_neighbors
            )

        with _quiet():
            has_blocks = parts.can_have_blocks(self._usual_width) and self.block_size is not None
            size = complete(default_size(num_rows, has_blocks and is_rough(parts.kernel)))
            model = make(size)
            strategy: str | Strategy = self.strategy
            is_open = self._may_do_without_features(size, parts, x, weights, deadline)
            if is_open and (parts.num_classes > 1 or needs_no_features(model, FittedRows(x, y, weights))):
                strategy = ParametersAlone(initialize=not parts.is_tuned)
                if deadline.is_set:
                    (x, y), weights = sample, None if weights is None else weights[some]
                size = size._replace(training_seconds=deadline.earlier(after).limit)
            elif deadline.is_set:
                self._warn_of_outputs(covariance_seconds(y))
                is_slow = not parts.can_have_blocks(self._usual_width)
                size = timed_size(complete, make, x, y, deadline, after, is_slow, parts.num_cells)
                model = make(size)
            elif size.block_size is not None and parts.is_tuned and self.num_neighbors == "auto":
                neighbors = chosen_neighbors(parts, *sample)
                size = complete(default_size(num_rows, has_blocks and is_rough(parts.kernel), neighbors))
                model = make(size)
            self.fit_summary_ = fit(
                model,
                x,
                y,
                weights=weights,
                strategy=self._strategy(model, y, parts.is_tuned) if strategy == "auto" else strategy,
                time_limit=size.training_seconds,
                max_evaluations=min(self.max_evaluations, _OF_CELLS) if _has_few_cells(y) else self.max_evaluations,
                progress=False,
            )
        return model, size.fit_seconds

    def _warn_of_outputs(self, seconds: float) -> None:
        """Warn, before, where a fit to any rows takes longer than there is time, for its outputs."""
        if self.time_limit is not None and seconds > self.time_limit:
            warnings.warn(
                f"time_limit={self.time_limit:g} s is too short for the covariance of so many targets, which takes "
                f"about {_TIMES_OF_OUTPUTS * seconds:.2g} s: the fit goes on without a choice of its size; fit fewer "
                "targets at once, or raise time_limit",
                stacklevel=4,
            )

    def _may_do_without_features(
        self, size: ModelSize, parts: Parts, x: Tensor, weights: Tensor | None, deadline: Deadline
    ) -> bool:
        """Whether near rows may predict alone, where nothing else is set.

        They predict one target that can have blocks too, with learned parameters, or classes without weights, also
        where time is too short to learn parameters before.
        """
        is_open = (self.num_features, self.block_size, self.num_neighbors) == ("auto", "auto", "auto")
        if not is_open or self.strategy != "auto" or self._method != "landmarks" or len(x) <= NUM_EXACT_ROWS:
            return False
        if parts.num_classes > 1:
            return weights is None and (parts.is_tuned or deadline.is_set)
        is_one = isinstance(parts.likelihood, GaussianLikelihood) and size.block_size is not None
        has_time = deadline.allows(slowness() * _SECONDS_OF_NEAR_ROWS * len(x) / _SHARE_OF_NEAR_ROWS)
        return is_one and parts.is_tuned and has_time

    def _strategy(self, model: WeightSpaceGP, y: Tensor, is_tuned: bool) -> str | Strategy:
        """From what parameters are found: little data where it tells as much."""
        is_several = isinstance(model.likelihood, DirichletClassificationLikelihood | MultitaskGaussianLikelihood)
        if is_several and len(y) > 1 and not (_has_few_cells(y) and model.block_size is None):
            return Neighbors(initialize=not is_tuned)
        if model.block_size is not None:
            return "blocks"
        is_exact = len(y) <= max(NUM_EXACT_ROWS, model.covar_module.num_scalar_features)
        return "subset" if is_exact and not bool(torch.isnan(y).any()) else "auto"


def _has_few_cells(y: Tensor) -> bool:
    """Whether targets are missing, and so few are known that their evidence is as cheap as any other score."""
    return bool(torch.isnan(y).any()) and y.numel() <= NUM_EXACT_ROWS


@contextmanager
def _quiet() -> Iterator[None]:
    """No advice to take the exact kernel, which a small table gets, nor where targets have no noise, or only noise.

    Held-out rows compare an estimator with a constant.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*the exact kernel costs less")
        warnings.filterwarnings("ignore", message=".*(noise ends at the lower|outputscale ends at the upper) bound")
        warnings.filterwarnings("ignore", message="the noise that was learned is multiplied")
        warnings.filterwarnings("ignore", message="the fit is no better than a constant with noise")
        yield


def _joined_rows(first: tuple[Any, Any, Any], second: tuple[Any, Any, Any]) -> tuple[Any, Any, Floats | None]:
    """Rows and later ones: inputs, targets and weights, which are ones where only the others have some."""
    weights, y = None, second[1]
    if np.ndim(y) != np.ndim(first[1]):
        y = np.asarray(y).reshape(-1, *np.shape(first[1])[1:])
    if first[2] is not None or second[2] is not None:
        parts = [
            np.broadcast_to(1.0 if w is None else np.asarray(w, float), len(np.asarray(of)))
            for _, of, w in (first, second)
        ]
        weights = np.concatenate(parts)
    return joined(first[0], second[0]), joined(first[1], y), weights
