"""The log evidence of a model and its data, as training needs it: for some rows or all, and left fitted at the end."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.models import ExactGP
from linear_operator.operators import DenseLinearOperator, MaskedLinearOperator
from torch import Tensor

from .._support import checks
from .._support.gpytorch_names import CHOLESKY_ALWAYS, class_regressions
from ..approximation.families.grid import grids_in, regrid
from ..approximation.grid_choice import MOST_FEATURES
from ..approximation.width_warning import quiet
from ..data.batches import Batch
from ..data.row_noise import WeightedNoise, noise_parts
from ..kernels.observation import check_observed_mean
from ..likelihoods import MultitaskFixedNoiseGaussianLikelihood
from ..models import WeightSpaceGP
from ..models.weight_space.imputation import needs_imputation
from ..models.weight_space.predictor import log_evidence
from ..models.weight_space.row_summation import check_rows
from .moments import DataMoments, data_moments
from .parts import Parts, parts_of
from .starts import random_rows
from .stationary import GaussianLogDensity

_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
"""Gradients per row and e-fold of a parameter that count as zero."""
_SAMPLE = 1000
_KNOWN_NOISE = (FixedNoiseGaussianLikelihood, MultitaskFixedNoiseGaussianLikelihood)


class Objective(abc.ABC):
    """The log evidence of training data."""

    model: Any
    x: Tensor
    y: Tensor
    centers_inputs: ClassVar[bool] = True
    """Whether kernels may be given the mean of the inputs as their center before."""
    growth: ClassVar[float] = 1.0
    """The power of the number of rows with which the time of an evaluation grows, at most."""
    quantity: ClassVar[str] = "log marginal likelihood"
    """What it is, in words."""
    leaves_fit: ClassVar[bool] = True
    """Whether the model is fitted to all rows at the end."""
    prior: Callable[[], Tensor] | None = None
    """The log density of the parameters, where it is not that of the registered priors alone."""

    @property
    def parts(self) -> Parts:
        """The modules whose parameters are learned."""
        return parts_of(self.model)

    @property
    def prior_weight(self) -> float:
        """How much the log priors count beside it."""
        return 1.0

    @property
    def described(self) -> str:
        """What it sees, in words."""
        return f"{self.num_rows} rows"

    def num_targets(self, rows: Tensor) -> int:
        """The number of rows of which it has the evidence."""
        return rows.numel()

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self.x.shape[-2]

    @property
    def can_take_rows(self) -> bool:
        """Whether the evidence of some of the rows can be evaluated."""
        return True

    @property
    def tolerance(self) -> float:
        """The largest gradient per row and e-fold of a parameter that counts as zero."""
        return _TOLERANCE.get(self.x.dtype, _TOLERANCE[torch.float32])

    def agreed(self, values: np.ndarray) -> np.ndarray:
        """Evidence and gradient on which all processes agree that train the model together."""
        return values

    def some_rows(self) -> Tensor | None:
        """Rows on which starts are compared; None for all."""
        is_small = self.num_rows <= _SAMPLE or not self.can_take_rows
        return None if is_small else random_rows(self.num_rows, _SAMPLE).to(self.x.device)

    def first_rows(self, size: int) -> Tensor | None:
        """So many random rows, or all that are at hand where these are fewer; None for all rows."""
        if not self.can_take_rows or size >= self.num_rows:
            return None
        return random_rows(self.x.shape[-2], size).to(self.x.device)

    def scaled_seconds(self, seconds: float, rows: Tensor | None, num_rows: int | None = None) -> float:
        """What takes so many seconds for these rows, for another number of them, or for all."""
        if rows is None:
            return seconds
        return seconds * ((self.num_rows if num_rows is None else num_rows) / rows.numel()) ** self.growth

    @property
    def outputs(self) -> Tensor:
        """The targets as columns, one per output, with NaN where they are missing."""
        return self.y.unsqueeze(-1) if self.y.dim() == 1 else self.y

    def begin(self) -> None:
        """Called when the parameters have their starting values."""
        return None

    def read_again(self) -> None:
        """Called when the features are others."""
        return None

    @contextmanager
    def many_evaluations(self) -> Iterator[None]:
        """What holds while it is evaluated many times."""
        yield

    @abc.abstractmethod
    def evidence(self, rows: Tensor | None = None) -> Tensor:
        """The log evidence of these rows, or of all; differentiable."""

    def remarks(self) -> list[str]:
        """What to warn of after training."""
        return []

    def write(self) -> None:
        """Give the model what was learned, where its own parameters are others."""
        return None

    def finish(self) -> Tensor:
        """Leave the model fitted, and return the evidence."""
        return self.evidence()

    def kernel_and_inputs(self) -> tuple[Kernel, Tensor] | None:
        """The exact kernel and what it is evaluated at, or None where there is no such kernel."""
        return self.model.covar_module.exact_kernel, self.x

    @functools.cached_property
    def moments(self) -> DataMoments:
        """The moments of inputs and targets."""
        return data_moments(self.x, self.outputs, getattr(self.model, "mean_module", None))


class WeightSpaceObjective(Objective):
    """Evidence of a weight-space model, with statistics computed anew for every set of parameters."""

    def __init__(self, model: WeightSpaceGP, x: Any, y: Any, noise: Any) -> None:
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            got = ", ".join(type(value).__name__ for value in (x, y))
            raise ValueError(f"expected tensors x and y for a WeightSpaceGP, got {got}; call fit(model, x, y)")
        self.model, self.x, self.y, self.noise = model, x, y, noise
        self.is_read = False
        with torch.no_grad(), quiet(), model.nothing_lost_on_error():
            self.rows = check_rows(model, x, y, noise, is_all=True)
            model.covar_module.scalar_features(x[:1])
            self.is_imputed = needs_imputation(model, x, y)

    @property
    def can_take_rows(self) -> bool:
        return not self.model.sums_hold

    def begin(self) -> None:
        self.regrid()

    def regrid(self) -> bool:
        """Take the best grid of frequencies for the present parameters, a much better one where rows have been read.

        :returns: whether it is another one.
        """
        is_other = self.model.has_grid and regrid(self.model.covar_module, self.precision(), self.is_read)
        if is_other:
            self.read_again()
        return is_other

    @torch.no_grad()
    def precision(self) -> float:
        """The number of rows, times the variance of the function over that of the noise."""
        kernel = self.model.covar_module
        x, y, noise = self.data(random_rows(len(self.x), _SAMPLE))
        noise_model = self.model.measured_noise
        smallest = noise_model.smallest(noise_model.weigh(check_rows(self.model, x, y, noise).observations))
        return self.num_rows * float(kernel.exact_kernel(x[:1], diag=True).max()) / smallest

    def remarks(self) -> list[str]:
        if not self.model.has_grid or not any(g.lacks_frequencies(self.precision()) for g in grids_in(self.model)):
            return []
        return [
            f"{self.num_rows} rows tell more of the kernel than {MOST_FEATURES} features of a Fourier grid, which "
            "num_features=None takes at most, so that intervals between and beyond rows may be too narrow; pass a "
            "larger num_features"
        ]

    def read_again(self) -> None:
        self.is_read = False

    @property
    def outputs(self) -> Tensor:
        likelihood = self.model.likelihood
        if isinstance(likelihood, gpytorch.likelihoods.DirichletClassificationLikelihood):
            _, targets = class_regressions(likelihood, self.y, likelihood.alpha_epsilon, torch.float64)
            return targets.reshape(-1, 1)
        if self.y.is_complex() and self.model.covar_module.has_output_factor:
            return torch.view_as_real(self.y)
        return super().outputs

    def data(self, rows: Tensor | None = None) -> Batch:
        """Inputs, targets and noise of some rows, or of all."""
        if rows is None:
            return self.x, self.y, self.noise
        noise, likelihood = self.noise, self.model.likelihood
        variances, weights = noise_parts(noise)
        if variances is None and type(likelihood) in _KNOWN_NOISE:
            variances = likelihood.noise_covar.noise
            noise = variances if weights is None else WeightedNoise(weights, variances)
        return self.x[rows], self.y[rows], None if noise is None else noise[rows]

    @property
    def is_of_fit(self) -> bool:
        """Whether the evidence of all rows is that of a model conditioned on them."""
        return self.model.sums_hold or self.is_imputed

    def evidence(self, rows: Tensor | None = None) -> Tensor:
        with quiet():
            if rows is None:
                return self.finish() if self.is_of_fit else log_evidence(self.model, self.rows)
            if self.model.sums_hold or self.is_imputed:
                return self.model.condition(*self.data(rows)).log_marginal_likelihood()
            return log_evidence(self.model, self.rows.take(rows))

    def finish(self) -> Tensor:
        return self.fitted().log_marginal_likelihood()

    def fitted(self) -> WeightSpaceGP:
        """The model, conditioned on all rows at the present parameters."""
        if self.is_read and self.model.sums_hold:
            return self.model
        self.read_rows()
        self.is_read = True
        return self.model

    def read_rows(self) -> None:
        """Condition the model on all rows."""
        self.model.condition(self.x, self.y, self.noise)


class ExactObjective(Objective):
    """Evidence of an exact GPyTorch model, by Cholesky factors."""

    growth: ClassVar[float] = 3.0

    def __init__(self, model: ExactGP, x: Any, y: Any) -> None:
        if (x is None) != (y is None):
            given, missing = ("x", "y") if y is None else ("y", "x")
            raise ValueError(f"expected x and y together, got {given} alone; pass {missing} too, or neither")
        if x is None:
            if model.train_inputs is None or model.train_targets is None:
                raise ValueError("expected training data, got a model without; call fit(model, x, y)")
            inputs, targets = model.train_inputs, model.train_targets
        else:
            inputs, targets = (x,), y
        self.is_masked = gpytorch.settings.observation_nan_policy.value() == "mask"
        self.model = model
        if isinstance(getattr(model, "covar_module", None), Kernel):
            check_observed_mean(model.covar_module, getattr(model, "mean_module", None))
        self._check(inputs[0], targets)
        self.inputs = tuple(part.unsqueeze(-1) if part.dim() == 1 else part for part in inputs)
        self.x, self.targets = self.inputs[0], targets
        if x is not None:
            model.set_train_data(self.inputs, y, strict=False)
        self.likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        model.train()

    def _check(self, x: Any, y: Any) -> None:
        inputs = checks.finite(checks.inputs(x.unsqueeze(-1) if isinstance(x, Tensor) and x.dim() == 1 else x))
        if not isinstance(y, Tensor) or not y.is_floating_point():
            got = y.dtype if isinstance(y, Tensor) else type(y).__name__
            raise ValueError(f"expected a floating-point tensor for y, got {got}; convert it with torch.as_tensor")
        if not self.is_masked and bool(torch.isnan(y).any()):
            raise ValueError(
                "expected targets without NaN, got some; remove these rows, or use a rfgp.WeightSpaceGP, which leaves "
                "missing outputs out at O(N D^2)"
            )
        if not self.is_masked:
            checks.finite(y, "y")
        rows, likelihood = inputs.shape[-2], self.model.likelihood
        tasks = getattr(likelihood, "num_tasks", None)
        if y.shape[-1:] != (rows,) if tasks is None else y.shape[-2:] != (rows, tasks):
            wanted = f"({rows},)" if tasks is None else f"({rows}, {tasks})"
            raise ValueError(f"expected y of shape {wanted}, or a batch of it, got {tuple(y.shape)}; correct it")
        before = self.model.train_inputs
        if before is not None and before[0].shape[-1] != inputs.shape[-1]:
            raise ValueError(
                f"expected x with {before[0].shape[-1]} columns as the model has, got {inputs.shape[-1]}; make another"
            )
        if isinstance(likelihood, FixedNoiseGaussianLikelihood) and likelihood.noise_covar.noise.shape[-1] != rows:
            raise ValueError(
                f"expected a likelihood that knows the noise of {rows} rows, got one of "
                f"{likelihood.noise_covar.noise.shape[-1]}; make the model with the noise of the new data"
            )

    @property
    def is_many(self) -> bool:
        """Whether the last dimension of the targets is that of several outputs."""
        return hasattr(self.model.likelihood, "num_tasks") and self.targets.dim() > 1

    @property
    def can_take_rows(self) -> bool:
        """For plain data alone: noise that is known by row, and batches, are taken whole."""
        is_fixed = isinstance(self.model.likelihood, FixedNoiseGaussianLikelihood)
        return not is_fixed and len(self.inputs) == 1 and self.x.dim() == 2 and self.targets.dim() <= 1 + self.is_many

    @property
    def outputs(self) -> Tensor:
        return self.targets.reshape(-1, self.targets.shape[-1]) if self.is_many else self.targets.reshape(-1, 1)

    def evidence(self, rows: Tensor | None = None) -> Tensor:
        if rows is None:
            return self._evidence(self.inputs, self.targets)
        inputs, targets = (self.x[rows],), self.targets[rows]
        self.model.set_train_data(*inputs, targets, strict=False)
        try:
            return self._evidence(inputs, targets)
        finally:
            self.model.set_train_data(self.inputs, self.targets, strict=False)

    def _evidence(self, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        with cholesky_forced():
            output = self.model(*inputs)
            if type(self.model.likelihood) is GaussianLikelihood and targets.dim() == 1 and not self.is_masked:
                covariance = output.lazy_covariance_matrix.evaluate_kernel()
                if isinstance(covariance, DenseLinearOperator):
                    with suppress(ValueError):  # of a matrix to which GPyTorch adds a jitter
                        noise, residual = self.model.likelihood.noise, targets - output.mean
                        density: Tensor = GaussianLogDensity.apply(covariance.to_dense(), noise, residual)
                        return density
            marginal = self.likelihood.likelihood(output, *inputs)
            if self.is_masked:
                observed = ~torch.isnan(targets)
                rows = observed.reshape(-1)
                covariance = MaskedLinearOperator(marginal.lazy_covariance_matrix, rows, rows)
                marginal, targets = MultivariateNormal(marginal.mean[observed], covariance), targets[observed]
            return marginal.log_prob(targets).sum()

    def finish(self) -> Tensor:
        self.model.train()
        value = self.evidence()
        self.model.eval()
        return value

    def kernel_and_inputs(self) -> tuple[Kernel, Tensor] | None:
        """Those of the lazy covariance that the model makes, so that features which a network makes are seen too."""
        with torch.no_grad():
            covariance = self.model.forward(*self.inputs).lazy_covariance_matrix
        kernel, x = getattr(covariance, "kernel", None), getattr(covariance, "x1", self.x)
        if kernel is None:
            kernel, x = getattr(self.model, "covar_module", None), self.x
        return None if kernel is None else (getattr(kernel, "exact_kernel", kernel), x)


@contextmanager
def cholesky_forced() -> Iterator[None]:
    """GPyTorch settings under which exact models use Cholesky factors whatever their size.

    >>> import gpytorch
    >>> with cholesky_forced():
    ...     gpytorch.settings.fast_computations.log_prob.on()
    False
    """
    with CHOLESKY_ALWAYS:
        yield
