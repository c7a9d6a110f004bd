"""What regression and classification of a table share: parameters, scales, the model and its training."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from .. import _checks
from ..approximation import approximate
from ..models import WeightSpaceGP
from ..training import fit
from .plan import DEFAULT_BLOCK_SIZE, Plan, default_plan, measured_speed, timed_plan


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
        time_limit: float | None = None,
        max_evaluations: int = 200,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.num_features = num_features
        self.method = method
        self.block_size = block_size
        self.num_neighbors = num_neighbors
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
        return torch.from_numpy(
            self.x_scaler_.transform(validate_data(self, X, dtype=np.float64, order="C", reset=False))
        )

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

    def _plan(self, exact: Kernel, x: Tensor, began: float, has_blocks: bool) -> Plan:
        """The size of the model: what is given, and the rest by the number of rows or the time limit.

        :param exact: the exact kernel.
        :param x: all inputs.
        :param began: when the fit began.
        :param has_blocks: whether the likelihood allows for blocks.
        """
        is_landmarks = self._method == "landmarks"
        if self.time_limit is None:
            chosen = default_plan(len(x))
        else:
            limit = _checks.positive("time_limit", self.time_limit, "choose a number of seconds")
            speed = measured_speed(exact, x)
            chosen = timed_plan(len(x), limit - (time.perf_counter() - began), speed)
        if self.num_features != "auto":
            chosen = chosen._replace(num_features=_checks.positive_integer("num_features", self.num_features))
            chosen = chosen._replace(block_size=DEFAULT_BLOCK_SIZE if chosen.num_features < len(x) else None)
        if self.block_size != "auto":
            chosen = chosen._replace(block_size=self.block_size)
        elif not (has_blocks and is_landmarks):
            chosen = chosen._replace(block_size=None)
        if is_landmarks:
            return chosen._replace(num_features=min(chosen.num_features, len(x)))
        return chosen._replace(num_features=chosen.num_features + chosen.num_features % 2)

    def _model(
        self, exact: Kernel, likelihood: Likelihood, mean: Mean, x: Tensor, plan: Plan, seed: int
    ) -> WeightSpaceGP:
        """The model before it has seen targets."""
        with _quiet():
            kernel = approximate(exact, plan.num_features, method=self._method, train_inputs=x, seed=seed)
        sizes = {"block_size": plan.block_size, "num_neighbors": self.num_neighbors}
        return WeightSpaceGP(kernel, likelihood.double(), mean.double(), **sizes)

    def _train(self, model: WeightSpaceGP, x: Tensor, y: Tensor, plan: Plan) -> None:
        """Find the parameters and fit."""
        with _quiet():
            self.fit_summary_ = fit(model, x, y, max_evaluations=self.max_evaluations, progress=False)
        self.model_ = model


@contextmanager
def _quiet() -> Iterator[None]:
    """No advice to take the exact kernel, which a small table gets, nor where targets have no noise."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*the exact kernel costs less")
        warnings.filterwarnings("ignore", message=".*noise ends at the lower bound")
        yield
