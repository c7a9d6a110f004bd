"""Random features or landmarks of a table, for linear models behind them."""

from __future__ import annotations

import math
import warnings
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .._support import checks
from ..approximation.entry import approximate
from .arrays import Floats, all_or_nothing, drawn_seed, validated
from .kernels import input_kernel
from .scaling import ColumnScaler


class RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Random features or landmarks of a kernel of standardized inputs, in float64, for a linear model that follows.

    .. math:: k(x, y) \approx \phi(x)^\top \phi(y)

    :param kernel: "rbf", "matern12", "matern32", "matern52", "rq", "linear" or "polynomial" (of degree 2), or a
        GPyTorch kernel, which is copied and keeps its parameters.
    :param lengthscale: the lengthscale of a kernel given by name, in standard deviations; default: the square root of
        the number of columns.
    :param num_features: the number D of features, which most methods need to be even. There are fewer if the kernel is
        exact with fewer.
    :param method: a method of :func:`rfgp.approximate`, among them "landmarks".
    :param random_state: a seed, a RandomState, or None for a new draw in every fit.

    >>> import numpy as np
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = make_pipeline(RandomFeatures(num_features=64, random_state=0), RidgeClassifier())
    >>> bool(model.fit(X, X[:, 0] * X[:, 1] > 0).score(X, X[:, 0] * X[:, 1] > 0) > 0.9)
    True
    """

    def __init__(
        self,
        kernel: str | Kernel = "rbf",
        *,
        lengthscale: float | None = None,
        num_features: int = 256,
        method: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.num_features = num_features
        self.method = method
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn the scales of inputs (N, d), and draw the features."""
        with all_or_nothing(self):
            self._fit(X)
        return self

    def _fit(self, X: ArrayLike) -> None:
        inputs = validated(self, X, dtype=np.float64, order="C")
        seed = drawn_seed(self.random_state)
        self.x_scaler_ = ColumnScaler(compresses=True).fit(inputs)
        exact = input_kernel(self.kernel, inputs.shape[1])
        if isinstance(self.kernel, str) and exact.has_lengthscale:
            width = math.sqrt(inputs.shape[1]) if self.lengthscale is None else self.lengthscale
            exact.lengthscale = checks.positive("lengthscale", width)
        x = torch.from_numpy(self.x_scaler_.transform(inputs))
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*exact kernel costs less")
            rows = None if self.method == "auto" else x
            made = approximate(
                exact, self.num_features, method=self.method, input_dim=x.shape[-1], train_inputs=rows, seed=seed
            )
            self._n_features_out = made.features(x[:1]).shape[-1]
        self.kernel_ = made

    def transform(self, X: ArrayLike) -> Floats:
        """The features (N, D) of inputs (N, d)."""
        check_is_fitted(self)
        x = self.x_scaler_.transform(validated(self, X, dtype=np.float64, order="C", reset=False))
        with torch.no_grad():
            features: Floats = self.kernel_.features(torch.from_numpy(x)).numpy()
        return features
