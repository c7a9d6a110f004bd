"""What regression and classification of a table share: parameters, scales, the model and its training."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._support import checks
from ..approximation.entry import approximate
from ..inference import LeaveGroupOut, LeaveOneOut
from ..models import WeightSpaceGP
from ..training import fit
from ..training.strategies import Strategy
from .arrays import Floats, validated
from .folds import fold_labels
from .kernels import is_rough
from .model_size import DEFAULT_BLOCK_SIZE, NUM_EXACT_ROWS, ModelSize, default_size, timed_size


class Parts(NamedTuple):
    """What a model is made of."""

    kernel: Kernel
    likelihood: Likelihood
    mean: Mean
    seed: int
    can_have_blocks: bool


class RandomFeatureGP(BaseEstimator):
    """The base of :class:`RandomFeatureGPRegressor`, where its parameters are described, and the classifier."""

    fit: Callable[..., Self]
    cross_val_predict: Callable[..., Any]
    _metric: Callable[..., float]

    def __init__(
        self,
        kernel: str | Kernel = "matern32",
        *,
        num_features: int | str = "auto",
        method: str = "auto",
        block_size: int | str | None = "auto",
        num_neighbors: int | None = 64,
        strategy: str | Strategy = "auto",
        time_limit: float | None = None,
        max_evaluations: int = 200,
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
        self.random_state = random_state

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The log evidence of the training data."""
        check_is_fitted(self)
        with torch.no_grad():
            return float(self.model_.log_marginal_likelihood())

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Add rows (N, d); the first call is ``fit``, whose scales, parameters and features stay."""
        if not hasattr(self, "model_"):
            return self.fit(X, y)
        x, targets = self._model_rows(*self._rows(X, y, is_first=False))
        with torch.no_grad():
            self.model_.update(x, targets)
        return self

    def cross_validate(
        self, X: ArrayLike, y: ArrayLike, cv: Any = 5, groups: ArrayLike | None = None
    ) -> dict[str, Floats]:
        """The scores of folds (R2 or accuracy), each predicted by the others without a refit: ``{"test_score": (K,)}``.

        :param X: the inputs (N, d) that were fitted.
        :param cv: a number of folds, or a splitter of scikit-learn that has every row once.
        """
        predicted, targets = self.cross_val_predict(X, y, cv, groups), np.asarray(y)
        folds = fold_labels(cv, np.asarray(X), targets, groups, is_classifier(self)).numpy()
        scores = [self._metric(targets[folds == fold], predicted[folds == fold]) for fold in range(folds.max() + 1)]
        return {"test_score": np.array(scores)}

    def _left_out(self, X: ArrayLike, y: ArrayLike, cv: Any, groups: Any) -> LeaveOneOut | LeaveGroupOut:
        """What the model predicts of every row of the fit by the rows of other folds."""
        check_is_fitted(self)
        inputs, targets = self._rows(X, y, is_first=False)
        folds = fold_labels(cv, inputs, targets, groups, is_classifier(self))
        x, z = self._model_rows(inputs, targets)
        return self.model_.leave_one_out(x, z) if cv is None else self.model_.leave_group_out(x, z, folds)

    @abc.abstractmethod
    def _rows(self, X: ArrayLike, y: ArrayLike, is_first: bool) -> tuple[Floats, NDArray[Any]]:
        """Inputs (N, d) and targets or labels, checked."""

    @abc.abstractmethod
    def _model_rows(self, inputs: Floats, targets: NDArray[Any]) -> tuple[Tensor, Tensor]:
        """Checked rows as the model takes them."""

    def _inputs(self, X: ArrayLike) -> Tensor:
        """New inputs, checked and standardized."""
        check_is_fitted(self)
        return torch.from_numpy(self.x_scaler_.transform(validated(self, X, dtype=np.float64, order="C", reset=False)))

    @property
    def _method(self) -> str:
        """Landmarks, unless another method is given, or the kernel has exact features."""
        if self.method != "auto":
            return self.method
        return "linear" if isinstance(self.kernel, str) and self.kernel == "linear" else "landmarks"

    def _train(self, parts: Parts, x: Tensor, y: Tensor, began: float) -> None:
        """Choose the size of the model, find its parameters, and fit it to standardized inputs (N, d)."""

        def complete(proposed: ModelSize) -> ModelSize:
            return self._completed(proposed, len(x), parts.can_have_blocks)

        def make(chosen: ModelSize) -> WeightSpaceGP:
            kernel = approximate(
                parts.kernel, chosen.num_features, method=self._method, train_inputs=x, seed=parts.seed
            )
            return WeightSpaceGP(
                kernel, parts.likelihood, parts.mean, block_size=chosen.block_size, num_neighbors=self.num_neighbors
            )

        with _quiet():
            if self.time_limit is None:
                has_blocks = parts.can_have_blocks and self.block_size is not None
                size = complete(default_size(len(x), has_blocks and is_rough(parts.kernel)))
            else:
                limit = checks.positive("time_limit", self.time_limit, "choose a number of seconds")
                size = timed_size(complete, make, x, y, began, limit, not parts.can_have_blocks)
            model = make(size)
            self.fit_summary_ = fit(
                model,
                x,
                y,
                strategy=self._strategy(model, y),
                time_limit=size.training_seconds,
                max_evaluations=self.max_evaluations,
                progress=False,
            )
        self.model_ = model

    def _strategy(self, model: WeightSpaceGP, y: Tensor) -> str | Strategy:
        """From what parameters are found, where that is left open: little data where it tells as much."""
        if self.strategy != "auto":
            return self.strategy
        if model.block_size is not None:
            return "blocks"
        return "auto" if len(y) > NUM_EXACT_ROWS or bool(torch.isnan(y).any()) else "subset"

    def _completed(self, proposed: ModelSize, num_rows: int, can_have_blocks: bool) -> ModelSize:
        """A size with what the user has set, and without what the model cannot have."""
        num_features, block_size = proposed.num_features, proposed.block_size
        if self.num_features != "auto":
            num_features = checks.positive_integer("num_features", self.num_features)
            block_size = DEFAULT_BLOCK_SIZE if block_size is None else block_size
        is_landmarks = self._method == "landmarks"
        num_features = min(num_features, num_rows) if is_landmarks else num_features + num_features % 2
        if not (is_landmarks and can_have_blocks and num_features < num_rows):
            block_size = None
        if self.block_size is None or isinstance(self.block_size, int):
            block_size = self.block_size
        elif self.block_size != "auto":
            raise ValueError(
                f'expected "auto", None or a number of rows for block_size, got {self.block_size!r}; choose one'
            )
        return ModelSize(num_features, block_size)


@contextmanager
def _quiet() -> Iterator[None]:
    """No advice to take the exact kernel, which a small table gets, nor where targets have no noise."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*the exact kernel costs less")
        warnings.filterwarnings("ignore", message=".*noise ends at the lower bound")
        yield
