"""Classification of a table with probabilities."""

from __future__ import annotations

import functools
import math
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, clone
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._support import checks
from ..averaging import AveragedGPClassifier
from ..likelihoods import DirichletClassificationLikelihood
from ..likelihoods.dirichlet import dirichlet_targets
from ..models import LaplaceGP, WeightSpaceGP
from ..training.costs import slowness
from ..training.strategies import Strategy
from ..training.timing import Deadline
from .arrays import Floats, all_or_nothing, as_tensor, drawn_seed
from .base import ONE_MODEL, RandomFeatureGP
from .baselines import BoostedClasses, Frequencies, LogisticClasses, boosted_seconds, linear_seconds
from .calibration import choose_alpha, log_probabilities, tempered
from .choice import Parts
from .comparison import BaselineComparison, LabeledRows, class_losses
from .fit_seconds import FitSize
from .kernels import scaled_kernel
from .labels import (
    MOST_CLASSES,
    LabelModel,
    LaplaceOptions,
    better_model,
    laplace_targets,
    log_class_probabilities,
    near_or_features,
)
from .model_size import DEFAULT_BLOCK_SIZE, left_out_seconds
from .near_predictions import FittedRows, OwnLabels
from .phases import phases
from .row_weights import present, row_weights, with_class_weights
from .scaling import input_scaler, num_lengthscales

_HELD_OUT, _MOST_HELD_OUT = 0.1, 1000
_FEWEST_HELD_OUT, _ENOUGH = 20, 50
"""A tenth of the rows is held out, or up to a fourth where that is too few; none where even that is below 20 rows."""
_ENOUGH_TO_TELL, _LEFT_OUT_SECONDS = 100, 2.0
"""Fewer held-out rows do not tell whether other models are better: all rows do, each left out, where that is quick."""
_SECONDS_OF_HELD_OUT, _SECONDS_OF_CLASS, _SECONDS_OF_CELL, _SHARE_OF_TIME = 2.5e-3, 2e-6, 1e-10, 0.3
"""What a held-out row takes, also for each class and each cell of the rows that it is compared with, and the part of a
time limit that all held-out rows may take."""
_SHARE_OF_BOOSTING = 0.25
"""The part of the time that is left by which boosting may be compared with."""
_LARGE_LOSS, _MOST_ROWS = 0.1, 20_000
"""Where calibrated log losses are above that, other likelihoods are tried, with so many rows at most."""
_PHASES = ("parameters", "calibration", "all rows")
AUTO_ROWS, AUTO_LABELS = 400, 1500
"""Up to so many rows, and so many times classes, are averaged over parameters by default: it predicts them better."""
MOST_LABELS = 3000
"""Rows times classes that are averaged over parameters: more take minutes."""
_CONCENTRATION, _OF_ALL_CLASSES = 0.01, 0.1
"""Where the concentration of a class without the label starts, at most, and that of all classes together: it would hide
the label of a row among many classes."""
_FEWEST_CLASSES = 3
"""Two classes count as three."""


class RandomFeatureGPClassifier(ClassifierMixin, RandomFeatureGP):
    r"""Gaussian process classification of a table, at the cost of one regression for all classes.

    Small tables, of up to 400 rows and 1,500 rows times classes, are averaged over parameters
    (:class:`rfgp.averaging.AveragedGPClassifier`).

    With more rows, labels become the targets of one regression per class, with noise that depends on the label
    (Dirichlet classification). For up to five classes without weights, Laplace's approximation takes its place if it
    predicts held-out rows better. A temperature T, chosen on held-out rows, calibrates the probabilities,

    .. math:: p_c \propto q_c^{1 / T}

    :param kernel: "auto", a name such as "rbf" or "matern32", or a GPyTorch kernel of standardized inputs, as in
        :class:`RandomFeatureGPRegressor`.
    :param num_features: the number of landmarks, or of features of ``method``; "auto" depends on the number of rows.
    :param method: a method of :func:`rfgp.approximate`; "auto": landmarks.
    :param block_size: the size of blocks of near rows, which model the residual of the landmarks; None for no blocks.
    :param num_neighbors: with blocks, the number of nearest training rows that a prediction uses; None for the rows of
        its block. If you set neither features nor blocks, "auto" predicts with the exact kernel from the labels of the
        64 rows nearest to each new one, if that is as good on held-out rows as landmarks with blocks, or if the time
        is limited.
    :param strategy: the rows from which the parameters are learned; "auto": near rows.
    :param time_limit: about how many seconds ``fit`` may take; it also chooses the size of the model. Default: no
        limit.
    :param max_evaluations: the largest number of evaluations of the objective.
    :param average: whether to use :class:`rfgp.averaging.AveragedGPClassifier`, which averages over parameters and
        scales of the inputs. "auto": from 10 to 400 rows and up to 1,500 rows times classes, if you set no other
        parameter of the model and no ``sample_weight``, the columns are not pixels (64 or more of one unit), and a data
        frame has no text with many values. True: up to 1,000 rows of two classes, and 3,000
        rows times classes.
    :param class_weight: weights of the classes, which divide the noise of their rows: "balanced", a dict from labels to
        weights, or None for ones.
    :param fallback: whether to predict with class frequencies, logistic regression or boosting if these have a smaller
        log loss on held-out rows. False: a warning only. Boosting is compared for up to five classes and at least 100
        held-out rows.
    :param verbose: whether ``fit`` prints about how long it will take, and shows a progress bar.
    :param random_state: a seed, a RandomState, or None for a new draw in every fit.
    :raises ValueError: at ``fit``, for invalid parameters or data.

    Attributes after ``fit``:

    - ``classes_``: the labels, sorted.
    - ``model_``: the :class:`rfgp.averaging.AveragedGPClassifier`, :class:`rfgp.WeightSpaceGP` or
      :class:`rfgp.models.LaplaceGP` of standardized rows. If near rows predict alone, the first access fits its
      features to the rows.
    - ``near_``: the near rows that predict alone, or None.
    - ``fit_summary_``: what :func:`rfgp.fit` returned; not with averages.
    - ``x_scaler_``: the scale of the inputs; ``temperature_``: the T above.
    - ``comparison_``: mean log losses of unseen rows, for "model", "frequencies", "linear" and "boosting".
    - ``fallback_``: the simpler model that predicts, or None.
    - ``log_marginal_likelihood_value_``: the log marginal likelihood of the transformed labels, or with Laplace's
      approximation of the labels.

    Source: Milios et al., Dirichlet-based Gaussian processes for large-scale calibrated classification, 2018.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> y = np.where(X[:, 0] > 0, "right", "left")
    >>> model = RandomFeatureGPClassifier(random_state=0).fit(X, y)
    >>> model.predict([[-2.0, 0.0], [2.0, 0.0]]).tolist(), model.predict_proba(X).shape
    (['left', 'right'], (100, 2))
    """

    _metric = staticmethod(accuracy_score)
    _one_model = (*ONE_MODEL, "class_weight")

    model_: Any
    rows_: tuple[Tensor, Tensor] | None

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
        class_weight: str | dict[Any, float] | None = None,
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
        self.class_weight = class_weight

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the parameters from inputs (N, d) and labels (N,) of any type, and condition the model on them.

        :param sample_weight: weights (N,) that divide the noise of the rows; default: ones.
        """
        with all_or_nothing(self):
            return self._learn(X, y, None, sample_weight, has_more_rows=False)

    def partial_fit(  # type: ignore[override]
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add rows (N, d), as :meth:`RandomFeatureGPRegressor.partial_fit` does.

        :param classes: in the first call, all classes that will occur; default: those in its labels.
        """
        if self._is_fitted:
            return super().partial_fit(X, y, sample_weight)
        with all_or_nothing(self):
            return self._learn(X, y, classes, sample_weight, has_more_rows=True)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Predict the probability of every class at inputs (N, d): (N, C), in the order of ``classes_``."""
        x, missing = self._inputs(X)
        found = self._probabilities(x)
        if missing is not None and (unmarked := missing.unmarked) is not None:
            found[unmarked.rows.numpy()] = np.mean([self._probabilities(complete) for complete in unmarked.x], axis=0)
        return found

    def _probabilities(self, x: Tensor) -> Floats:
        """Those of every class at standardized inputs (N, d): (N, C)."""
        if self.fallback_ is not None:
            return _normalized(self.fallback_.predict(x.numpy()))
        near: Any = self.near_
        return self._calibrated(log_class_probabilities(self._model if near else self.model_, x, near))

    def _calibrated(self, logs: Floats) -> Floats:
        """The calibrated probabilities of classes from their logs (N, C)."""
        return _normalized(tempered(logs, 1.0 / self.temperature_))

    def cross_val_predict(
        self,
        X: ArrayLike,
        y: ArrayLike,
        cv: Any = None,
        groups: ArrayLike | None = None,
        method: str = "predict",
        sample_weight: ArrayLike | None = None,
    ) -> NDArray[Any]:
        """Predict every training row from the other folds, see :meth:`RandomFeatureGPRegressor.cross_val_predict`.

        :param method: "predict" for labels (N,), or "predict_proba" for probabilities (N, C).
        :param sample_weight: the weights of the fit, all positive.
        """
        checks.choice("method", method, ("predict", "predict_proba"))
        check_is_fitted(self)
        if isinstance(self._model, LaplaceGP):
            raise ValueError(
                "expected a model of Dirichlet targets to leave out rows without a refit, got a LaplaceGP, which "
                "predicts these labels better; use sklearn.model_selection.cross_val_predict, which refits"
            )
        if isinstance(self._model, AveragedGPClassifier):
            x, codes, folds, _ = self._fitted_rows(X, y, cv, groups, sample_weight)
            probabilities: Floats = self._model.leave_group_out(x, codes, folds).probs.numpy()
        else:
            _, mean, variance = self._left_out(X, y, cv, groups, sample_weight)
            probabilities = self._calibrated(log_probabilities(mean.mT, variance.mT))
        labels: NDArray[Any] = self.classes_[probabilities.argmax(-1)]
        return probabilities if method == "predict_proba" else labels

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class at inputs (N, d): labels (N,)."""
        check_is_fitted(self)
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(-1)]
        return labels

    def _learn(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None, sample_weight: Any, has_more_rows: bool
    ) -> Self:
        """What :meth:`fit` does; where more rows follow, parameters are averaged over if that is wanted alone."""
        deadline, self._has_more_rows = self._deadline, has_more_rows
        x, codes, weights = self._rows_of_fit(X, y, classes, sample_weight)
        is_averaged = self._averages(codes, weights, has_more_rows)
        self._tell(self._size(x, is_averaged))
        if is_averaged:
            self._fit_average(x, codes, weights)
        else:
            self._fit(x, codes, weights, deadline)
        self._keep_first_rows(X, y, sample_weight)
        return self

    def _learn_rows(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, has_more_rows: bool) -> Self:
        with all_or_nothing(self):
            return self._learn(X, y, self.classes_, sample_weight, has_more_rows)

    def _rows_of_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None, sample_weight: Any
    ) -> tuple[Tensor, Tensor, Floats | None]:
        """Rows as the model takes them, and weights; classes and scales of the inputs are learned."""
        inputs, labels, weights = self._rows(X, y, sample_weight, is_first=True)
        every = np.unique(labels if classes is None else np.asarray(classes))
        if len(every) < 2:
            raise ValueError(
                f"expected labels of at least two classes, got one class, {every.tolist()[0]!r}; add rows of others"
            )
        _check_labels(labels, every)
        self.classes_, self.x_scaler_ = every, input_scaler(inputs, weights)
        return *self._model_rows(inputs, labels), weights

    def averages(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> bool:
        """Whether :meth:`fit` would average over parameters for these rows; it takes and raises the same."""
        return clone(self)._size_of(X, y, sample_weight).is_averaged

    def _size_of(self, X: ArrayLike, y: ArrayLike, sample_weight: Any) -> FitSize:
        x, codes, weights = self._rows_of_fit(X, y, None, sample_weight)
        return self._size(x, self._averages(codes, weights, has_more_rows=False))

    def _size(self, x: Tensor, is_averaged: bool) -> FitSize:
        """The size of a fit to inputs (N, d)."""
        return FitSize(len(x), x.shape[1], len(self.classes_), True, is_averaged, self._has_choice)

    def _averages(self, codes: Tensor, weights: Floats | None, has_more_rows: bool) -> bool:
        """Whether parameters are averaged over; a ValueError for what is no choice."""
        if self.average == "auto":
            is_small = len(codes) <= AUTO_ROWS and self._num_labels(len(codes)) <= AUTO_LABELS
            is_picture = num_lengthscales(self.x_scaler_) < self.x_scaler_.n_features_in_
            if has_more_rows or self._given(weights) or self._has_levels or is_picture or not is_small:
                return False
        elif not isinstance(self.average, bool):
            raise ValueError(f'expected "auto", True or False for average, got {self.average!r}; choose one of them')
        return bool(self.average)

    def _num_labels(self, num_rows: int) -> int:
        """Rows times classes."""
        return num_rows * max(len(self.classes_), _FEWEST_CLASSES)

    def _fit_average(self, x: Tensor, codes: Tensor, weights: Floats | None) -> None:
        """Fit standardized rows, averaging over parameters, and compare the model with others on rows left out."""
        given = self._given(weights)
        if given:
            raise ValueError(f"expected no {given[0]} beside average=True, got some; leave one of both out")
        size, known = self._num_labels(len(codes)), codes.unique()
        if size > MOST_LABELS or len(known) < len(self.classes_):
            got = f"{size:,}" if size > MOST_LABELS else f"no rows of {len(self.classes_) - len(known)} classes"
            raise ValueError(
                f"expected at most {MOST_LABELS:,} rows times classes for average=True, and rows of every class, got "
                f'{got}; set average="auto"'
            )
        rows = LabeledRows(x.numpy(), codes.numpy(), None)
        with phases(_PHASES[:2], self.verbose) as bar:
            bar.begin("parameters")
            self.model_ = AveragedGPClassifier(x, codes)
            bar.begin("calibration")
            self.temperature_, self.rows_ = 1.0, None
            comparison = self._comparison(True)
            comparison.on_left_out(rows, -self.model_.leave_one_out(x, codes).log_prob(codes).numpy())
            self._compare(comparison, rows)

    def _fit(self, x: Tensor, codes: Tensor, weights: Floats | None, deadline: Deadline) -> None:
        """Fit standardized rows, and compare the model with others on rows that it has not seen."""
        seed, every = drawn_seed(self.random_state), self.classes_
        rows = LabeledRows(x.numpy(), codes.numpy(), weights)
        make_parts = functools.partial(_parts, num_lengthscales(self.x_scaler_), len(every), seed)
        own, train, held = as_tensor(weights), *_split(codes, seed, _most_held_out(x, len(every), deadline))
        seconds = linear_seconds(len(train), x.shape[-1], len(every))
        with phases(_PHASES, self.verbose) as bar, torch.no_grad():
            bar.begin("parameters")
            of_rows = None if own is None else own[train]
            with torch.enable_grad():
                model, _ = self._trained(make_parts, x[train], codes[train], of_rows, len(x), deadline, seconds)
            if of_rows is not None and isinstance(model.mean_module, ConstantMean):
                _weigh_means(model, codes[train], of_rows)
                model.condition(x[train], codes[train], weights=of_rows)
            bar.begin("calibration")
            boosted, is_near = boosted_seconds(x.shape[-1], len(every)), model.conditioned is None
            has_boosting = len(held) >= _ENOUGH_TO_TELL and len(every) <= MOST_CLASSES
            has_boosting = has_boosting and deadline.share(_SHARE_OF_BOOSTING).allows(boosted)
            comparison = self._comparison(deadline.allows(seconds), has_boosting)
            until = deadline.earlier(seconds + boosted if has_boosting else seconds)
            self.temperature_ = 1.0
            if len(held):
                unseen, summary = rows.take(held.numpy()), self.fit_summary_
                if is_near:
                    best = near_or_features(model, summary, x[train], codes[train], unseen, until)
                else:
                    best = LabelModel.scored(model, choose_alpha(model, unseen, until), unseen, summary)
                if own is None and self._may_take_laplace(codes[train], best.loss):
                    options, kernel = self._laplace_options(seed), model.covar_module.exact_kernel
                    best = better_model(best, kernel, x[train], codes[train], unseen, options, until)
                model, self.fit_summary_, self.temperature_ = best.model, best.summary, 1.0 / best.power
                losses = class_losses(unseen, tempered(best.logs, best.power))
                comparison.on_held_out(rows.take(train.numpy()), unseen, losses)
                bar.begin("all rows")
                is_near = best.near is not None
                self.model_, self.rows_ = model, (x[train], codes[train])
                if not is_near:
                    self._update(x[held], codes[held], None if own is None else own[held])
            seconds = math.inf if is_near or isinstance(model, LaplaceGP) else left_out_seconds(model, len(x))
            if len(held) < _ENOUGH_TO_TELL and deadline.allows(seconds) and seconds < _LEFT_OUT_SECONDS:
                left_out = model.leave_one_out(x, codes, weights=own)
                logs = tempered(log_probabilities(left_out.mean, left_out.latent_variance), 1.0 / self.temperature_)
                comparison.on_left_out(rows, class_losses(rows, logs))
            self._compare(comparison, rows)
            self.model_ = model
            if is_near:
                self.rows_ = None
                self._predict_from(OwnLabels(model, x, codes), FittedRows(x, codes))

    def _may_take_laplace(self, codes: Tensor, loss: float) -> bool:
        """Whether another likelihood may predict better: of few classes, all of which occur and are hard to tell."""
        counts = torch.bincount(codes, minlength=len(self.classes_))
        is_small = len(counts) <= MOST_CLASSES and len(codes) <= _MOST_ROWS
        return self.strategy == "auto" and is_small and int(counts.min()) > 0 and loss > _LARGE_LOSS

    def _laplace_options(self, seed: int) -> LaplaceOptions:
        """What the parameters say of a model by Laplace's approximation."""
        block_size = DEFAULT_BLOCK_SIZE if isinstance(self.block_size, str) else self.block_size
        num_features = None if isinstance(self.num_features, str) else self.num_features
        is_auto = isinstance(self.kernel, str) and self.kernel == "auto"
        return LaplaceOptions(is_auto, self._method, num_features, block_size, self.max_evaluations, seed)

    def _update(self, x: Tensor, targets: Tensor, weights: Tensor | None) -> None:
        """Add rows to the model; one by Laplace's approximation without blocks is fitted to all, from its mode."""
        if self.near_ is not None and weights is None:
            super()._update(x, targets, None)
            return
        model: Any = self.model_
        self.near_ = None
        if isinstance(model, AveragedGPClassifier):
            self._update_average(model, x, targets, weights)
            return
        if not isinstance(model, LaplaceGP):
            self.rows_ = None
            model.update(x, targets, weights=weights)
            return
        if weights is not None:
            raise ValueError("expected no sample_weight for a LaplaceGP, got some; give weights to the first call, too")
        if model.block_size is not None:
            self.rows_ = None
            model.update(x, laplace_targets(model, targets))
            return
        before = (x[:0], targets[:0]) if self.rows_ is None else self.rows_
        inputs, codes = torch.cat([before[0], x]), torch.cat([before[1], targets])
        model.condition(inputs, laplace_targets(model, codes), start=model.mode)
        self.rows_ = inputs, codes

    def _update_average(self, model: AveragedGPClassifier, x: Tensor, targets: Tensor, weights: Tensor | None) -> None:
        """Add rows to an average; with too many, or with weights, one set of parameters is learned from all."""
        size = self._num_labels(len(model.y) + len(x))
        if weights is None and size <= MOST_LABELS:
            model.update(x, targets)
        elif self.average == "auto":
            known = None if weights is None else np.r_[np.ones(len(model.y)), weights.numpy()]
            self._fit(torch.cat([model.x, x]), torch.cat([model.y, targets]), known, self._deadline)
        else:
            what = f"{size:,} rows times classes" if weights is None else "sample_weight"
            raise ValueError(
                f"expected at most {MOST_LABELS:,} rows times classes and no sample_weight for average=True, got "
                f'{what}; set average="auto"'
            )

    def _comparison(self, has_time: bool, has_boosting: bool = False) -> BaselineComparison:
        """What the model is compared with."""
        count = len(self.classes_)
        others: dict[str, Any] = {"frequencies": lambda: Frequencies(count)}
        if has_time:
            others["linear"] = lambda: LogisticClasses(count)
        if has_boosting:
            others["boosting"] = lambda: BoostedClasses(count)
        return BaselineComparison(class_losses, others)

    def _rows(
        self, X: ArrayLike, y: ArrayLike, sample_weight: Any, is_first: bool
    ) -> tuple[Floats, NDArray[Any], Floats | None]:
        """Inputs (N, d), labels (N,) and weights, checked."""
        inputs, labels = self._validated(X, y, is_first=is_first, dtype=np.float64, order="C")
        check_classification_targets(labels)
        weights = with_class_weights(row_weights(sample_weight, inputs), self.class_weight, labels)
        weights, inputs, labels = present(weights, inputs, labels)
        return inputs, labels, weights

    def _model_rows(self, inputs: Floats, targets: NDArray[Any]) -> tuple[Tensor, Tensor]:
        _check_labels(targets, self.classes_)
        codes = torch.from_numpy(np.searchsorted(self.classes_, targets))
        return torch.from_numpy(self.x_scaler_.transform(inputs)), codes


def _parts(num_columns: int, num_classes: int, seed: int, kernel: str | Kernel) -> Parts:
    """What a model of Dirichlet targets is made of."""
    concentration = min(_CONCENTRATION, _OF_ALL_CLASSES / num_classes)
    likelihood = DirichletClassificationLikelihood(
        alpha_epsilon=concentration, num_classes=num_classes, dtype=torch.float64
    )
    mean = ConstantMean(batch_shape=torch.Size([num_classes])).double()
    return Parts(scaled_kernel(kernel, num_columns), likelihood, mean, seed, num_classes=num_classes)


@torch.no_grad()
def _weigh_means(model: WeightSpaceGP, codes: Tensor, weights: Tensor) -> None:
    """Set the mean of every class to that of its targets under the weights of rows, which tuning has not seen."""
    likelihood: Any = model.likelihood
    values = dirichlet_targets(likelihood.alpha_epsilon)
    shares = torch.bincount(codes, weights.double(), likelihood.num_classes) / weights.sum()
    model.mean_module.constant.copy_(values.outside + (values.inside - values.outside) * shares)


def _normalized(logs: Floats) -> Floats:
    """Probabilities that sum to one."""
    probabilities: Floats = np.exp(logs)
    return probabilities / probabilities.sum(-1, keepdims=True)


def _check_labels(labels: NDArray[Any], classes: NDArray[Any]) -> None:
    """Raise a ValueError for a label that is none of the sorted classes."""
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        raise ValueError(
            f"expected labels among the classes {classes.tolist()}, got {unknown.tolist()}; give all classes to the "
            "first call of partial_fit"
        )


def _most_held_out(x: Tensor, num_classes: int, deadline: Deadline) -> int:
    """How many rows are predicted by all rows (N, d) in a part of the time that is left, about."""
    seconds = slowness() * (_SECONDS_OF_HELD_OUT + _SECONDS_OF_CLASS * num_classes + _SECONDS_OF_CELL * x.numel())
    return int(min(_MOST_HELD_OUT, max(_ENOUGH_TO_TELL, _SHARE_OF_TIME * deadline.left / seconds)))


def _split(codes: Tensor, seed: int, most: int = _MOST_HELD_OUT) -> tuple[Tensor, Tensor]:
    """Rows to train on, with every class, and rows on which the model is calibrated, of classes as evenly as it goes.

    The latter are equally many steps apart in the order of classes, without the first row of each.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(codes), generator=generator)
    order = order[codes[order].argsort(stable=True)]
    is_first = torch.ones(len(codes), dtype=torch.bool)
    is_first[1:] = codes[order].diff() != 0
    others = order[~is_first]
    count = min(max(int(_HELD_OUT * len(codes)), min(_ENOUGH, len(codes) // 4)), most, len(others))
    if count < _FEWEST_HELD_OUT:
        return torch.arange(len(codes)), torch.arange(0)
    steps = torch.arange(count) + torch.rand(1, generator=generator, dtype=torch.float64)
    is_held = torch.zeros(len(codes), dtype=torch.bool)
    is_held[others[(steps * len(others) / count).long().clamp_max(len(others) - 1)]] = True
    every = torch.arange(len(codes))
    return every[~is_held], every[is_held]
