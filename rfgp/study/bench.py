"""One data set and one exact model, against which approximations are measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from math import nan
from typing import Any

import gpytorch
import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor
from torch.distributions import Normal

from .. import diagnostics
from .._support import checks
from ..approximation.entry import approximate
from ..diagnostics.kl import kl_per_point, plus_noise, posterior_marginals
from ..likelihoods import DirichletClassificationLikelihood
from ..likelihoods.noise import output_noise
from ..models import WeightSpaceGP
from ..training import FitSummary, fit
from .baselines import baselines
from .datasets import Dataset
from .datasets.base import Scaling
from .losses import Losses, classification_losses, mean_and_error, regression_losses
from .runs import Run
from .scaling import divisor, scale_field, scale_inputs

_KL_ROWS = 1000
_EVALUATIONS = 200  # of the exact evidence of one class; after 20 of digits a hundredth of a nat a row is left
DRAWS = 512
"""The draws of a latent function by which class probabilities are means."""


class _Exact(gpytorch.models.ExactGP):
    """The exact model, from parts that the approximations share."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: Any, mean: gpytorch.means.Mean, kernel: Kernel) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = mean, kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        mean = self.mean_module(x)
        if isinstance(self.mean_module, gpytorch.means.MultitaskMean):
            return gpytorch.distributions.MultitaskMultivariateNormal(mean, self.covar_module(x))
        return gpytorch.distributions.MultivariateNormal(mean, self.covar_module(x))


class Bench:
    """One scaled data set and one exact model, against which approximations are measured."""

    def __init__(
        self,
        dataset: Dataset,
        kernel: Kernel,
        exact_limit: int,
        alpha_epsilon: float,
        scaling: Scaling,
        is_field: bool = False,
    ) -> None:
        self.dataset, self.kernel = dataset, kernel
        self.classes, self.num_outputs = dataset.num_classes, dataset.num_outputs
        scale = scale_field if is_field else scale_inputs
        self.x, self.x_test, self.scaling = scale(dataset.x_train, dataset.x_test, scaling)
        self.some = _some_rows(len(self.x), max(exact_limit // self.num_outputs, 1))
        self.points = _some_rows(len(self.x_test), _KL_ROWS)
        self.others: dict[str, Losses] = {}
        if self.classes is None:
            checks.finite(dataset.y_train, "y_train")
            checks.finite(dataset.y_test, "y_test")
            self.shift = dataset.y_train.mean(0)
            std = dataset.y_train.std(0, correction=0)
            std = (dataset.y_train - self.shift).square().mean().sqrt().expand_as(std) if is_field else std
            self.unit = divisor(std, torch.ones_like(std).bool(), "targets")
            self.y, self.y_test = ((y - self.shift) / self.unit for y in (dataset.y_train, dataset.y_test))
            self.likelihood: Any = _gaussian(self.num_outputs, is_field)
            self.targets = self.y[self.some]
            batch = torch.Size()
        else:
            self.y, self.y_test = dataset.y_train, dataset.y_test
            self.likelihood = DirichletClassificationLikelihood(
                self.y[self.some], alpha_epsilon, num_classes=self.classes, dtype=torch.float64
            )
            self.targets = self.likelihood.transformed_targets
            batch = torch.Size([self.classes])
        self.mean: gpytorch.means.Mean = gpytorch.means.ConstantMean(batch_shape=batch).double()
        if self.num_outputs > 1:
            self.mean = gpytorch.means.MultitaskMean(self.mean, self.num_outputs)
        needed = 64.0 * (self.classes or 1) * (self.num_outputs * len(self.some)) ** 2
        what = f"the training of an exact model of {len(self.some)} rows"
        checks.fits_in_memory(needed, what, "lower --exact-limit (exact_limit)")

    def check_memory(self, num_features: int) -> None:
        """Raise where sums, factors and test features of so many features do not fit in memory."""
        needed = 8.0 * num_features * (3 * (self.classes or 1) * num_features + 2 * self.num_outputs * len(self.x_test))
        checks.fits_in_memory(needed, f"models of {num_features:,} features", "lower --num-features (num_features)")

    def description(self) -> dict[str, Any]:
        """The data set, without its rows."""
        data = self.dataset
        target = "target standardized; error and MNLL in its own units"
        if self.classes or self.num_outputs > 1:
            target = "class labels" if self.classes else "targets standardized; so are their total error and MNLL"
        return {
            "name": data.name,
            "task": data.task,
            "num_train": len(data.x_train),
            "num_test": len(data.x_test),
            "input_dim": data.x_train.shape[-1],
            "num_classes": self.classes,
            "outputs": list(self.output_names),
            "exact_rows": len(self.some),
            "preprocessing": f"{self.scaling}; {target}",
            "provenance": data.provenance,
            "licence": data.licence,
        }

    def learn(self, progress: bool | None) -> FitSummary:
        """Learn the parameters with the exact model, and freeze them."""
        try:
            limit = max(_EVALUATIONS // (self.classes or 1), 20)
            summary = fit(self.exact_model(), max_evaluations=limit, progress=progress)
        except (NotPSDError, NanError) as error:
            raise ValueError(
                f"expected an exact model with a Cholesky factor in float64, got none ({error}); choose another "
                "scaling of the inputs (--scaling) or another kernel"
            ) from None
        self.freeze()
        return summary

    def exact_model(self) -> gpytorch.models.ExactGP:
        """The exact model of some of the rows, for training."""
        return _Exact(self.x[self.some], self.targets, self.likelihood, self.mean, self.kernel)

    def freeze(self) -> None:
        """Keep the parameters as they are."""
        for part in self._parts.values():
            part.requires_grad_(False)

    @property
    def _parts(self) -> dict[str, torch.nn.Module]:
        return {"kernel": self.kernel, "likelihood": self.likelihood, "mean": self.mean}

    def state(self) -> dict[str, dict[str, Any]]:
        """The learned parameters."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load_state(self, state: dict[str, dict[str, Any]]) -> None:
        """Take parameters that were learned before, and freeze them."""
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
        self.freeze()

    def measure_baselines(self) -> tuple[Run, ...]:
        """A linear model, and one that looks at no input, fitted to all training rows."""
        results = baselines(self.x, self.y, self.x_test, self.y_test, self.classes)
        self.others |= {name: losses for name, (losses, _) in results.items()}
        runs = [
            Run(name, None, None, nan, nan, None, *self._scores(losses), nan, seconds, 0.0, **self._details(losses))
            for name, (losses, seconds) in results.items()
        ]
        return tuple(runs)

    def measure_exact(self) -> Run:
        """The exact model on its rows; its time to fit is that of a posterior at a single point."""
        x, y = self.x[self.some], self.y[self.some]

        def posterior(points: Tensor) -> Any:
            return diagnostics.exact_posterior(self.kernel, self.likelihood, x, y, points, self.mean)

        posterior(self.x_test[:1])
        _, fit_seconds = _timed(lambda: posterior(self.x_test[:1]))
        latent, seconds = _timed(lambda: posterior(self.x_test))
        self.reference = self._at_points(latent)
        losses = self._losses(latent)
        details = self._details(losses)
        self.others["exact"] = losses
        noisy = None if self.classes else 0.0
        times = fit_seconds, max(seconds - fit_seconds, 0.0)
        return Run("exact", None, None, 0.0, 0.0, noisy, *self._scores(losses), 0.0, *times, **details)

    def approximation(self, method: str, num_features: int, seed: int) -> Kernel:
        """The approximated kernel, which shares the parameters of the exact one."""
        return approximate(self.kernel, num_features, method=method, train_inputs=self.x, seed=seed)

    def fitted(self, job: tuple[str, int, int], rows: Tensor | slice) -> WeightSpaceGP:
        """A model with random features, fitted to some training rows and factorized."""
        model = WeightSpaceGP(self.approximation(*job), self.likelihood, self.mean)
        model.condition(self.x[rows], self.y[rows]).weight_posterior()
        return model

    def measure(self, job: tuple[str, int, int]) -> Run:
        """Everything about one method, number of features and seed."""
        model, fit_seconds = _timed(lambda: self.fitted(job, slice(None)))
        latent, predict_seconds = _timed(lambda: posterior_marginals(model, self.x_test))
        losses = self._losses(latent)
        if len(self.some) == len(self.x):
            near: Any = self._at_points(latent)
        else:
            near = posterior_marginals(self.fitted(job, self.some), self.x_test[self.points])
        return Run(
            *job,
            self._divergence(near, self.reference),
            self._divergence(self.reference, near),
            None if self.classes else self._divergence(*map(self._noisy, (near, self.reference))),
            *self._scores(losses),
            float(diagnostics.relative_frobenius_error(model.covar_module, self.x_test[self.points])),
            fit_seconds,
            predict_seconds,
            **self._details(losses),
        )

    def _at_points(self, latent: Any) -> Normal:
        rows = (self.points,) if self.num_outputs > 1 else (..., self.points)
        return Normal(latent.mean[rows], latent.stddev[rows], validate_args=False)

    def _divergence(self, p: Normal, q: Normal) -> float:
        """KL(p, q), summed over points and outputs, and averaged over classes."""
        return kl_per_point(p, q) * len(self.points) * self.num_outputs

    def _noisy(self, latent: Normal) -> Any:
        return plus_noise(latent, output_noise(self.likelihood))

    def probabilities(self, latent: Normal) -> Tensor:
        """Class probabilities (M, C) of latent functions (C, M)."""
        generator = torch.Generator().manual_seed(0)
        return self.likelihood.class_probabilities(latent, DRAWS, generator)

    def _losses(self, latent: Normal) -> Losses:
        """What predictions lose on every test row."""
        if self.classes is None:
            return regression_losses(self._noisy(latent), self.y_test)
        return classification_losses(self.probabilities(latent), self.y_test)

    def _scores(self, losses: Losses) -> tuple[float, float]:
        """Error and MNLL on the test rows: of one target in its units, of several over their standard deviations."""
        error, mnll = float(losses.error.mean()), float(losses.log_loss.mean())
        if self.classes is not None:
            return error, mnll
        if self.num_outputs > 1:
            return error**0.5, mnll
        return error**0.5 * float(self.unit), mnll + float(self.unit.log())

    def _details(self, losses: Losses) -> dict[str, Any]:
        """The rest of what a run has to say: trust, standard errors over rows, other models, single outputs."""
        (error, error_spread), (_, mnll_spread), (trust, trust_spread) = map(
            mean_and_error, (losses.error, losses.log_loss, losses.trust)
        )
        name, unit = "overconfidence", 1.0
        if self.classes is None:
            name, unit = "coverage", 1.0 if self.num_outputs > 1 else float(self.unit)
            error_spread = unit * error_spread / (2.0 * max(error, 1e-300) ** 0.5)
        outputs = {}
        for i, output in enumerate(self.output_names):
            scale = float(self.unit[i])
            outputs[output] = {
                "error": float(losses.error[:, i].mean()) ** 0.5 * scale,
                "mnll": float(losses.log_loss[:, i].mean()) + math.log(scale),
                "coverage": float(losses.trust[:, i].mean()),
            }
        return {
            name: trust,
            "row_errors": {"error": error_spread, "mnll": mnll_spread, name: trust_spread},
            "against": {other: losses.minus(losses_of_other) for other, losses_of_other in self.others.items()},
            "outputs": outputs,
        }

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of several outputs."""
        if self.num_outputs == 1:
            return ()
        return self.dataset.outputs or tuple(f"output {i + 1}" for i in range(self.num_outputs))


def _gaussian(num_outputs: int, is_field: bool) -> Any:
    """A Gaussian likelihood: each of several outputs has its own noise, but the components of a field share it."""
    if num_outputs == 1:
        return gpytorch.likelihoods.GaussianLikelihood().double()
    return gpytorch.likelihoods.MultitaskGaussianLikelihood(
        num_outputs, has_global_noise=is_field, has_task_noise=not is_field
    ).double()


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return call(), time.perf_counter() - start


def _some_rows(total: int, limit: int) -> Tensor:
    """The indices of all rows, or of a random choice of them (seed 0), in order."""
    if total <= limit:
        return torch.arange(total)
    return torch.randperm(total, generator=torch.Generator().manual_seed(0))[:limit].sort().values
