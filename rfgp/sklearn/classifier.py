"""Classification of a table with probabilities."""

from __future__ import annotations

import time
from typing import Any, Self

import numpy as np
import torch
from gpytorch.means import ConstantMean
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._support import checks
from ..likelihoods import DirichletClassificationLikelihood
from ..likelihoods.mean_softmax import mean_softmax
from .arrays import Floats, drawn_seed, validated
from .base import Parts, RandomFeatureGP
from .kernels import scaled_kernel

_HELD_OUT = 0.1
_FEWEST_HELD_OUT = 20
"""Where a tenth of the rows are fewer than that, the concentration of the labels keeps its default value."""
_NUM_DRAWS = 256


class RandomFeatureGPClassifier(ClassifierMixin, RandomFeatureGP):
    """Gaussian process classification of a table, at the price of one regression for all classes.

    The labels become targets of one regression per class, whose noise depends on the label (Dirichlet classification).

    :param kernel: see :class:`RandomFeatureGPRegressor`, and so all parameters.

    After ``fit`` there are ``classes_``, ``model_`` (the :class:`rfgp.WeightSpaceGP`, of standardized rows),
    ``fit_summary_``, ``x_scaler_`` and ``log_marginal_likelihood_value_``, of the transformed labels.

    Source: Milios et al., Dirichlet-based Gaussian processes for large-scale calibrated classification, 2018.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> y = np.where(X[:, 0] > 0, "right", "left")
    >>> model = RandomFeatureGPClassifier(random_state=0).fit(X, y)
    >>> model.predict([[-2.0, 0.0], [2.0, 0.0]]).tolist(), model.predict_proba(X).shape
    (['left', 'right'], (100, 2))
    """

    _metric = staticmethod(accuracy_score)

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn the parameters, and fit inputs (N, d) with labels (N,) of any kind."""
        return self._fit(X, y, None)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Add rows (N, d), as :meth:`RandomFeatureGPRegressor.partial_fit` does.

        :param classes: all classes that will ever come, in the first call; default: those in its labels.
        """
        return super().partial_fit(X, y) if hasattr(self, "model_") else self._fit(X, y, classes)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """The probability of every class at inputs (N, d): (N, C), in the order of ``classes_``."""
        x = self._inputs(X)
        with torch.no_grad():
            latent = self.model_.posterior(x)
            return _probabilities(latent.mean.mT, latent.variance.mT)

    def cross_val_predict(
        self, X: ArrayLike, y: ArrayLike, cv: Any = None, groups: ArrayLike | None = None, method: str = "predict"
    ) -> NDArray[Any]:
        """The prediction of every row by other folds, as :meth:`RandomFeatureGPRegressor.cross_val_predict` has it.

        :param method: "predict" for labels (N,), or "predict_proba" for probabilities (N, C).
        """
        checks.choice("method", method, ("predict", "predict_proba"))
        left_out = self._left_out(X, y, cv, groups)
        probabilities = _probabilities(left_out.mean.mT, left_out.latent_variance.mT)
        labels: NDArray[Any] = self.classes_[probabilities.argmax(-1)]
        return probabilities if method == "predict_proba" else labels

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class at inputs (N, d): labels (N,)."""
        check_is_fitted(self)
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(-1)]
        return labels

    def _fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None) -> Self:
        began = time.perf_counter()
        inputs, labels = self._rows(X, y, is_first=True)
        every = np.unique(labels if classes is None else np.asarray(classes))
        if len(every) < 2:
            raise ValueError(
                f"expected labels of at least two classes, got one class, {every[0]!r}; add rows of others"
            )
        _check_labels(labels, every)
        self.classes_, self.x_scaler_ = every, StandardScaler().fit(inputs)
        seed = drawn_seed(self.random_state)
        x, codes = self._model_rows(inputs, labels)
        exact = scaled_kernel(self.kernel, x.shape[-1])
        likelihood = DirichletClassificationLikelihood(num_classes=len(every), dtype=torch.float64)
        mean = ConstantMean(batch_shape=torch.Size([len(every)])).double()
        train, held_out = _split(codes, seed)
        parts = Parts(exact, likelihood, mean, seed, can_have_blocks=False)
        self._train(parts, x[train], codes[train], began)
        if len(held_out):
            with torch.no_grad():
                likelihood.select_alpha_epsilon(self.model_, x[held_out], codes[held_out], num_samples=_NUM_DRAWS)
                self.model_.update(x[held_out], codes[held_out])
        return self

    def _rows(self, X: ArrayLike, y: ArrayLike, is_first: bool) -> tuple[Floats, NDArray[Any]]:
        """Inputs (N, d) and labels (N,), checked."""
        inputs, labels = validated(self, X, y, dtype=np.float64, order="C", reset=is_first)
        check_classification_targets(labels)
        return inputs, labels

    def _model_rows(self, inputs: Floats, targets: NDArray[Any]) -> tuple[Tensor, Tensor]:
        _check_labels(targets, self.classes_)
        codes = torch.from_numpy(np.searchsorted(self.classes_, targets))
        return torch.from_numpy(self.x_scaler_.transform(inputs)), codes


def _probabilities(mean: Tensor, variance: Tensor) -> Floats:
    """The probabilities of classes from the latent functions, (N, C)."""
    probabilities: Floats = mean_softmax(mean, variance.sqrt()).numpy()
    return probabilities


def _check_labels(labels: NDArray[Any], classes: NDArray[Any]) -> None:
    """Raise a ValueError for a label that is none of the sorted classes."""
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        raise ValueError(
            f"expected labels among the classes {classes.tolist()}, got {unknown.tolist()}; give all classes to the "
            "first call of partial_fit"
        )


def _split(codes: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to train on, and rows on which the concentration of the labels is chosen, with every class in both."""
    counts = torch.bincount(codes)
    if len(codes) * _HELD_OUT < max(_FEWEST_HELD_OUT, len(counts)) or int(counts[counts > 0].min()) < 2:
        return torch.arange(len(codes)), torch.arange(0)
    splits = StratifiedShuffleSplit(1, test_size=_HELD_OUT, random_state=seed % 2**32)
    train, held_out = next(splits.split(np.zeros(len(codes)), codes.numpy()))
    return torch.from_numpy(train), torch.from_numpy(held_out)
