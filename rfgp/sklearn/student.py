"""Regression with outliers: a model of every output whose noise is Student's t."""

from __future__ import annotations

import copy
import warnings
from typing import Any, Self, cast

import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods import StudentTLikelihood
from linear_operator.operators import BlockInterleavedLinearOperator, CatLinearOperator, DiagLinearOperator
from torch import Tensor

from ..approximation.entry import approximate
from ..models import LaplaceGP, WeightSpaceGP
from ..training import Evidence, fit
from ..training.timing import Deadline
from .arrays import Floats
from .comparison import observed_means

_FEWEST_DEGREES = 2.5
"""The smallest number of degrees of freedom: at two the variance of noise is infinite."""
_SMALLEST_NOISE = 1e-6
_TUNED_ROWS, _TUNED_WIDTH, _EVALUATIONS, _TUNED_SHARE = 1000, 256, 20, 0.4
_WIDTH = 512
_SMALLEST_SHARE = 0.05
"""Noise starts at that share of the variance of the targets at least: where it is tiny, no mode is found."""
_RISES = 5


class StudentModels:
    """Independent models of the outputs, with the rows that they are fitted to."""

    def __init__(self, models: list[LaplaceGP]) -> None:
        self.models = models
        self.rows: list[tuple[Tensor, Tensor]] = []

    def condition(self, x: Tensor, z: Tensor) -> Self:
        """Fit inputs (N, d) and targets (N,) or (N, T), where NaN is missing."""
        self.rows = []
        return self.update(x, z)

    def update(self, x: Tensor, z: Tensor, weights: Tensor | None = None) -> Self:
        """Add rows; Newton's method goes on at the present mode. Where it fails, the models stay as they were."""
        if weights is not None:
            raise ValueError('expected no sample_weight beside noise="student", got some; use noise="normal"')
        columns, is_first = z.reshape(len(z), -1).unbind(-1), not self.rows
        added = [(x[~column.isnan()], column[~column.isnan()]) for column in columns]
        rows = added if is_first else [_joined(*pair) for pair in zip(self.rows, added, strict=True)]
        models = self.models if is_first else copy.deepcopy(self.models)
        for model, own, new in zip(models, rows, added, strict=True):
            if is_first or len(new[0]):
                _condition(model, *own, None if is_first else new)
        self.models, self.rows = models, rows
        return self

    def posterior(self, x: Tensor) -> MultivariateNormal:
        """The functions without noise at inputs (N, d)."""
        found = [model.posterior(x) for model in self.models]
        if len(found) == 1:
            return found[0]
        blocks = CatLinearOperator(*[part.lazy_covariance_matrix.unsqueeze(0) for part in found], dim=0)
        mean = torch.stack([part.mean for part in found], dim=-1)
        return MultitaskMultivariateNormal(mean, BlockInterleavedLinearOperator(blocks, block_dim=0))

    def likelihood(self, latent: MultivariateNormal) -> MultivariateNormal:
        """New observations, with the variance of their noise."""
        noise = torch.stack([noise_variance(model) for model in self.models])
        by_row = noise.expand(*latent.mean.reshape(-1, len(noise)).shape).flatten()
        return type(latent)(latent.mean, latent.lazy_covariance_matrix + DiagLinearOperator(by_row))

    @torch.no_grad()
    def draws(self, x: Tensor, num_samples: int, random: np.random.RandomState) -> Floats:
        """Draws (N, T, S) of new observations: of the functions, which are normal, plus Student's t noise."""
        columns = []
        for model in self.models:
            latent, likelihood = model.posterior(x), cast(Any, model.likelihood)
            values, vectors = torch.linalg.eigh(latent.covariance_matrix)
            root = (vectors * values.clamp_min(0.0).sqrt()).numpy()
            functions = latent.mean.numpy()[:, None] + root @ random.normal(size=(len(x), num_samples))
            noise = random.standard_t(float(likelihood.deg_free), size=functions.shape)
            columns.append(functions + float(likelihood.noise) ** 0.5 * noise)
        return np.stack(columns, axis=1)

    def losses(self, x: Tensor, z: Tensor) -> Floats:
        """The negative log densities of new observations (N, T), means over observed outputs, (N,)."""
        filled = z.nan_to_num(0.0).unbind(-1)
        densities = torch.stack(
            [
                model.likelihood.log_marginal(column, model.posterior(x))
                for model, column in zip(self.models, filled, strict=True)
            ],
            dim=-1,
        )
        return observed_means(-densities.numpy(), z.numpy())

    def log_marginal_likelihood(self) -> Tensor:
        """Laplace's approximation of the log evidence of all outputs."""
        return torch.stack([model.log_marginal_likelihood() for model in self.models]).sum()

    def leave_one_out(self, *_: Any, **__: Any) -> Any:
        """Not known in closed form."""
        raise ValueError('expected noise="normal" to leave out rows without a refit, got "student"; refit each fold')

    leave_group_out = leave_one_out


def noise_variance(model: LaplaceGP) -> Tensor:
    """The variance of Student's t, a scalar."""
    likelihood: Any = model.likelihood
    degrees = likelihood.deg_free.detach().double().reshape(())
    return likelihood.noise.detach().double().reshape(()) * degrees / (degrees - 2.0)


def student_model(normal: WeightSpaceGP, x: Tensor, y: Tensor, deadline: Deadline, limit: int) -> LaplaceGP:
    """A model of one output with Student's t noise, which begins with the parameters of one with normal noise.

    Some rows teach it the noise, and change the kernel, by few landmarks.

    :param limit: the largest number of evaluations.
    """
    likelihood = StudentTLikelihood(
        deg_free_constraint=GreaterThan(_FEWEST_DEGREES), noise_constraint=GreaterThan(_SMALLEST_NOISE)
    ).double()
    with torch.no_grad():
        spread, smallest = _spread(y - normal.posterior(x).mean), _SMALLEST_SHARE * _spread(y - y.median())
        likelihood.noise = float(max(spread, smallest, 2.0 * _SMALLEST_NOISE))
        likelihood.deg_free = 4.0
    some = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:_TUNED_ROWS]
    kernel: Any = normal.covar_module
    width, time_limit = kernel.num_scalar_features, deadline.share(_TUNED_SHARE).limit
    if len(some) > _TUNED_WIDTH < width:
        kernel = approximate(kernel.exact_kernel, _TUNED_WIDTH, method="landmarks", train_inputs=x[some], seed=0)
    tuned = _condition(LaplaceGP(kernel, likelihood, normal.mean_module), x[some], y[some])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*ends at the .* bound")
        fit(
            tuned,
            x[some],
            y[some],
            strategy=Evidence(initialize=False),
            time_limit=time_limit,
            max_evaluations=min(limit, _EVALUATIONS),
            progress=False,
        )
    if kernel is not normal.covar_module:
        kernel = approximate(kernel.exact_kernel, min(width, _WIDTH), method="landmarks", train_inputs=x, seed=0)
    return LaplaceGP(kernel, likelihood, normal.mean_module, block_size=normal.block_size)


def _condition(model: LaplaceGP, x: Tensor, y: Tensor, added: tuple[Tensor, Tensor] | None = None) -> LaplaceGP:
    """Fit rows, with more noise where Newton's method does not converge, as it may where noise is tiny.

    :param added: the last of the rows, where the model has those before.
    """
    likelihood: Any = model.likelihood
    start = None if added is None or model.block_size is not None else model.mode
    for _ in range(_RISES):
        try:
            return model.condition(x, y, start=start) if added is None or start is not None else model.update(*added)
        except ValueError:
            added = None
            with torch.no_grad():
                likelihood.noise = 4.0 * likelihood.noise
    return model.condition(x, y, start=start)


def _spread(values: Tensor) -> float:
    """The variance of normal values by their median, which outliers do not change."""
    return float((values.abs().median() / 0.6745).square())


def _joined(before: tuple[Tensor, Tensor], added: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return torch.cat([before[0], added[0]]), torch.cat([before[1], added[1]])
