"""One data set and one exact model, against which approximations are measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor
from torch.distributions import Normal

from .. import _checks, diagnostics
from ..approximation import approximate
from ..datasets import Dataset
from ..datasets.base import Scaling
from ..likelihoods import DirichletClassificationLikelihood
from ..models import WeightSpaceGP
from ..training import FitSummary, fit
from .measurements import Run
from .scaling import divisor, scale_inputs

_KL_ROWS = 1000
DRAWS = 512
"""The draws of a latent function by which class probabilities are means."""


class _Exact(gpytorch.models.ExactGP):
    """The exact model, from parts that the approximations share."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: Any, mean: gpytorch.means.Mean, kernel: Kernel) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = mean, kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Bench:
    """One scaled data set and one exact model, against which approximations are measured."""

    def __init__(
        self, dataset: Dataset, kernel: Kernel, exact_limit: int, alpha_epsilon: float, scaling: Scaling
    ) -> None:
        self.dataset, self.kernel = dataset, kernel
        self.x, self.x_test, self.scaling = scale_inputs(dataset.x_train, dataset.x_test, scaling)
        self.some = _some_rows(len(self.x), exact_limit)
        self.points = _some_rows(len(self.x_test), _KL_ROWS)
        self.classes = dataset.num_classes
        if self.classes is None:
            std = dataset.y_train.std(correction=0)
            self.shift, self.unit = (
                float(dataset.y_train.mean()),
                float(divisor(std, std.new_ones(()).bool(), "targets")),
            )
            self.y = (dataset.y_train - self.shift) / self.unit
            self.likelihood: Any = gpytorch.likelihoods.GaussianLikelihood().double()
            self.targets = self.y[self.some]
            batch = torch.Size()
        else:
            self.y = dataset.y_train
            self.likelihood = DirichletClassificationLikelihood(
                self.y[self.some], alpha_epsilon, num_classes=self.classes, dtype=torch.float64
            )
            self.targets = self.likelihood.transformed_targets
            batch = torch.Size([self.classes])
        self.mean = gpytorch.means.ConstantMean(batch_shape=batch).double()
        needed = 64.0 * (self.classes or 1) * len(self.some) ** 2
        what = f"the training of an exact model of {len(self.some)} rows"
        _checks.fits_in_memory(needed, what, "lower --exact-limit (exact_limit)")

    def check_memory(self, num_features: int) -> None:
        """Raise where sums, factors and test features of so many features do not fit in memory."""
        needed = 8.0 * num_features * (3 * (self.classes or 1) * num_features + 2 * len(self.x_test))
        _checks.fits_in_memory(needed, f"models of {num_features:,} features", "lower --num-features (num_features)")

    def description(self) -> dict[str, Any]:
        """The data set, without its rows."""
        data = self.dataset
        target = "class labels" if self.classes else "target standardized; error and MNLL in its own units"
        return {
            "name": data.name,
            "task": data.task,
            "num_train": len(data.x_train),
            "num_test": len(data.x_test),
            "input_dim": data.x_train.shape[-1],
            "num_classes": self.classes,
            "exact_rows": len(self.some),
            "preprocessing": f"{self.scaling}; {target}",
            "provenance": data.provenance,
            "licence": data.licence,
        }

    def learn(self, progress: bool | None) -> FitSummary:
        """Learn the parameters with the exact model, and freeze them."""
        model = _Exact(self.x[self.some], self.targets, self.likelihood, self.mean, self.kernel)
        try:
            summary = fit(model, progress=progress)
        except (NotPSDError, NanError) as error:
            raise ValueError(
                f"expected an exact model with a Cholesky factor in float64, got none ({error}); choose another "
                "scaling of the inputs (--scaling) or another kernel"
            ) from None
        model.requires_grad_(False)
        return summary

    def measure_exact(self) -> Run:
        """The exact model on its rows; its time to fit is that of a posterior at a single point."""
        x, y = self.x[self.some], self.y[self.some]

        def posterior(points: Tensor) -> Any:
            return diagnostics.exact_posterior(self.kernel, self.likelihood, x, y, points, self.mean)

        posterior(self.x_test[:1])
        _, fit_seconds = _timed(lambda: posterior(self.x_test[:1]))
        latent, seconds = _timed(lambda: posterior(self.x_test))
        self.reference = self._at_points(latent)
        error, mnll = self._scores(latent)
        noisy = None if self.classes else 0.0
        return Run("exact", None, None, 0.0, 0.0, noisy, error, mnll, 0.0, fit_seconds, max(seconds - fit_seconds, 0.0))

    def approximation(self, method: str, num_features: int, seed: int) -> Kernel:
        """The approximated kernel, which shares the parameters of the exact one."""
        return approximate(self.kernel, num_features, method=method, train_inputs=self.x, seed=seed)

    def fitted(self, job: tuple[str, int, int], rows: Tensor | slice) -> WeightSpaceGP:
        """A model with random features, fitted to some training rows and factorized."""
        model = WeightSpaceGP(self.approximation(*job), self.likelihood, self.mean)
        model.fit(self.x[rows], self.y[rows]).weight_posterior()
        return model

    def measure(self, job: tuple[str, int, int]) -> Run:
        """Everything about one method, number of features and seed."""
        model, fit_seconds = _timed(lambda: self.fitted(job, slice(None)))
        latent, predict_seconds = _timed(lambda: _marginals(model.posterior(self.x_test)))
        error, mnll = self._scores(latent)
        if len(self.some) == len(self.x):
            near = self._at_points(latent)
        else:
            near = _marginals(self.fitted(job, self.some).posterior(self.x_test[self.points]))
        return Run(
            *job,
            _divergence(near, self.reference),
            _divergence(self.reference, near),
            None if self.classes else _divergence(self._noisy(near), self._noisy(self.reference)),
            error,
            mnll,
            float(diagnostics.relative_frobenius_error(model.covar_module, self.x_test[self.points])),
            fit_seconds,
            predict_seconds,
        )

    def _at_points(self, latent: Normal) -> Normal:
        return Normal(latent.mean[..., self.points], latent.stddev[..., self.points], validate_args=False)

    def _noisy(self, latent: Normal) -> Normal:
        return Normal(latent.mean, (latent.variance + self.likelihood.noise).sqrt(), validate_args=False)

    def _scores(self, latent: Normal) -> tuple[float, float]:
        """Error and MNLL on the test rows, in units of the target."""
        y = self.dataset.y_test
        if self.classes is None:
            predictive = self._noisy(latent)
            predictive = Normal(predictive.mean * self.unit + self.shift, predictive.stddev * self.unit)
            return float(diagnostics.rmse(predictive.mean, y)), float(diagnostics.regression_mnll(predictive, y))
        generator = torch.Generator().manual_seed(0)
        probabilities = self.likelihood.class_probabilities(latent, DRAWS, generator)
        return (
            float(diagnostics.error_rate(probabilities, y)),
            float(diagnostics.classification_mnll(probabilities, y)),
        )


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return call(), time.perf_counter() - start


def _marginals(distribution: Any) -> Normal:
    return Normal(distribution.mean, distribution.variance.clamp_min(0.0).sqrt(), validate_args=False)


def _divergence(p: Normal, q: Normal) -> float:
    """KL(p, q), averaged over classes; infinite where a variance has vanished."""
    if not bool((p.stddev > 0).all() and (q.stddev > 0).all()):
        return math.inf
    return float(diagnostics.kl_divergence(p, q).mean())


def _some_rows(total: int, limit: int) -> Tensor:
    """The indices of all rows, or of a random choice of them (seed 0), in order."""
    if total <= limit:
        return torch.arange(total)
    return torch.randperm(total, generator=torch.Generator().manual_seed(0))[:limit].sort().values
