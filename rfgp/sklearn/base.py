"""What regression and classification of a table share: parameters, scales, the model and its training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .. import _checks
from ..approximation import approximate
from ..models import WeightSpaceGP
from ..training import fit
from .arrays import validated
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

    def __init__(
        self,
        kernel: str | Kernel = "matern32",
        *,
        num_features: int | str = "auto",
        method: str = "auto",
        block_size: int | str | None = "auto",
        num_neighbors: int | None = 64,
        strategy: str = "auto",
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

    def _inputs(self, X: ArrayLike) -> Tensor:
        """New inputs, checked and standardized."""
        check_is_fitted(self)
        return torch.from_numpy(self.x_scaler_.transform(validated(self, X, dtype=np.float64, order="C", reset=False)))

    def _standardized(self, X: np.ndarray) -> Tensor:
        """The inputs of the first fit, whose scales are kept."""
        self.x_scaler_ = StandardScaler().fit(X)
        return torch.from_numpy(self.x_scaler_.transform(X))

    @property
    def _method(self) -> str:
        """Landmarks, unless another method is given, or the kernel has exact features."""
        if self.method != "auto":
            return self.method
        return "linear" if isinstance(self.kernel, str) and self.kernel == "linear" else "landmarks"

    def _train(self, parts: Parts, x: Tensor, y: Tensor, began: float) -> None:
        """Choose the size of the model, find its parameters, and fit it.

        :param x: standardized inputs, (N, d).
        """

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
                limit = _checks.positive("time_limit", self.time_limit, "choose a number of seconds")
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

    def _strategy(self, model: WeightSpaceGP, y: Tensor) -> str:
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
            num_features = _checks.positive_integer("num_features", self.num_features)
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
