"""The posterior of the weights, computed once, and predictions from it that later changes of the model do not reach."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import gpytorch
import torch
from gpytorch.means import Mean
from torch import Tensor

from ..._support import checks
from ..._support.torch_names import is_transformed
from ...approximation.family import check_no_operator
from ...approximation.reference_tensor import reference_tensor
from ...functionals import Operator
from ...inference import GaussianPosterior, NoiseModel, PointMixture, PointPredictor
from ...inference.local import (
    LocalPoints,
    LocalRegression,
    LocalRows,
    SystemRegression,
    WhitenedNoise,
    regression_of,
)
from ...inference.posterior.complex_regression import ComplexRegression
from ...inference.posterior.draws import FunctionDraws, drawn_weights
from ...inference.posterior.grid_points import GridPointPredictor, WidePointPredictor, has_series
from ...inference.posterior.mixture import mixture
from ...inference.posterior.point_predictor import has_point_predictor
from ...inference.posterior.posterior import RootPosterior
from ...inference.posterior.regression import Regression
from ...inference.posterior.wide_grid import WidePosterior
from ...likelihoods import ComplexNormal, MultivariateNormal
from ..impropriety import SomeRows, warn_of_impropriety
from ..posterior_points import PosteriorPoints
from ..record import Record
from ..snapshot import Snapshot, Snapshots
from .conditioned import checked, conditioned_of, summed_parameters, summed_state
from .further_draws import functions_of_random_draws
from .row_summation import CheckedRows, block_rows, feature_sums
from .row_sums import RowSums

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel
    from .model import WeightSpaceGP


def refusing(value: Tensor, parameters: Iterable[Tensor]) -> Tensor:
    """A value whose gradient in parameters that it depends on without a graph raises a ValueError; others stay."""
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    if not learned or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return value
    zero: Tensor = _Refused.apply(value.detach(), *learned)
    return value + zero


class _Refused(torch.autograd.Function):
    """Zero, whose gradient is refused."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, *parameters: Tensor) -> Tensor:
        return torch.zeros_like(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        raise ValueError(
            "expected sums of a fit for the gradient of the evidence in the parameters of the features, got sums "
            "without gradients: those of a fit under torch.no_grad(), or changed by update, downdate, forget or merge; "
            "call condition with all rows, or torch.autograd.grad for the other parameters alone"
        )


Points = PointPredictor | LocalPoints | PointMixture | PosteriorPoints


class Predictor:
    """The posterior of the weights of one draw of features, and a snapshot of kernel and mean, while both are valid."""

    def __init__(self) -> None:
        self._posterior: tuple[Record, GaussianPosterior] | None = None
        self._snapshots = Snapshots()
        self._seen: tuple[Snapshot, GaussianPosterior] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: all but what belongs to a snapshot."""
        return self.__dict__ | {"_seen": None}

    def clear(self) -> None:
        """Forget the posterior."""
        self._posterior = self._seen = None

    def at_present(self, model: WeightSpaceGP) -> tuple[Regression, GaussianPosterior]:
        """What functions follow from, of a snapshot: the regression and the posterior of its weights."""
        if torch.compiler.is_compiling() or is_transformed():
            return self.regression(model), self.weight_posterior(model)
        snapshot = self._snapshot(model)
        if self._seen is not None and self._seen[0] is snapshot and not _tracks() and not model.noise.is_batched:
            return self._regression(model, *snapshot), self._seen[1]
        posterior = self.weight_posterior(model)
        self._seen = None if _tracks() else (snapshot, posterior)
        return self._regression(model, *snapshot), posterior

    def regression(self, model: WeightSpaceGP, is_frozen: bool = False) -> Regression:
        """See :meth:`WeightSpaceGP.regression`."""
        return self._regression(
            model, *(self._snapshot(model) if is_frozen else (model.covar_module, model.mean_module))
        )

    def _regression(self, model: WeightSpaceGP, kernel: FeatureKernel, mean: Mean) -> Regression:
        local = None if model.conditioned is None else model.conditioned.sums.local
        return regression_on(model, local, kernel, mean)

    def prior_regression(self, model: WeightSpaceGP) -> Regression:
        """How weights become functions, whatever the rows are, of a snapshot."""
        kind = ComplexRegression if model.noise.is_of_parts else Regression
        return kind(*self._snapshot(model), model.noise)

    def _snapshot(self, model: WeightSpaceGP) -> Snapshot:
        return self._snapshots.take(model.covar_module, model.mean_module, model.likelihood)

    def weight_posterior(self, model: WeightSpaceGP) -> GaussianPosterior:
        """The posterior of the weights; see :meth:`WeightSpaceGP.weight_posterior`."""
        tracks = _tracks()
        summed = summed_state(model)
        state = {name: p.detach() for name, p in model.named_parameters()} | summed
        noise = model.noise
        if noise.num_outputs > 1:
            state |= {name: b for name, b in model.covar_module.named_buffers() if "task_covar_module" in name}
        if noise.is_batched:
            state["alpha_epsilon"] = torch.tensor(model.likelihood.alpha_epsilon)
        if not tracks and self._posterior is not None and self._posterior[0].is_of(state):
            return self._posterior[1]
        if torch.compiler.is_compiling():
            raise ValueError("expected a prediction since the fit before a compiled one, got none; predict once")
        conditioned = conditioned_of(model)
        conditioned.record.check(summed, "the statistics were computed")
        with torch.inference_mode(False), torch.set_grad_enabled(tracks):
            posterior: GaussianPosterior = self.regression(model).posterior(conditioned.sums.draws[0], tracks)
        if not tracks and not is_transformed():
            self._posterior = Record(state), posterior
            if conditioned.sums.some_rows is not None:
                _check_residuals(model, conditioned.sums.some_rows, posterior)
        return posterior

    def points(self, model: WeightSpaceGP, dtype: torch.dtype) -> PointPredictor | LocalPoints | None:
        """The predictor of means and variances at points, where the posterior has one."""
        with torch.no_grad():
            regression, posterior = self.at_present(model)
        if isinstance(regression, LocalRegression | SystemRegression):
            return LocalPoints(regression, posterior, dtype)
        if isinstance(posterior, WidePosterior):
            return WidePointPredictor(regression, posterior, dtype)
        if has_series(regression, posterior):
            return GridPointPredictor(regression, posterior, dtype)
        return PointPredictor(regression, posterior, dtype) if has_point_predictor(regression, posterior) else None


def regression_on(model: WeightSpaceGP, local: LocalRows | None, kernel: FeatureKernel, mean: Mean) -> Regression:
    """How statistics become posteriors, of rows in blocks or others, with a kernel and a mean like those of a model."""
    noise: NoiseModel = model.noise
    if noise.is_of_parts:
        return ComplexRegression(kernel, mean, noise, model.has_grid)
    if local is not None:
        return regression_of(kernel, mean, noise, local, model.num_neighbors)
    noise = WhitenedNoise(noise) if model.is_whitened else noise
    return Regression(kernel, mean, noise, model.residual == "vfe", model.has_grid)


def _tracks() -> bool:
    """Whether gradients run through posteriors of the weights, which are not kept then."""
    return gpytorch.settings.detach_test_caches.off() and torch.is_grad_enabled()


def _check_residuals(model: WeightSpaceGP, rows: SomeRows, posterior: GaussianPosterior) -> None:
    """Warn where the noise of complex targets does not look circular."""
    x, y = (values.to(posterior.mean.device) for values in rows)
    regression, noise = model.regression(is_frozen=True), float(model.likelihood.noise.detach())
    with torch.no_grad():
        residuals = y - regression.function(posterior.mean, x)
        leverages = regression.leverages(x, posterior) / noise
    warn_of_impropriety(residuals, leverages, noise, stacklevel=7)


def posterior(model: WeightSpaceGP, x: Tensor, operator: Operator | None) -> MultivariateNormal | ComplexNormal:
    """See :meth:`WeightSpaceGP.posterior`."""
    conditioned_of(model)
    checks.finite(checks.inputs(x).detach())
    checks.same_kind(x, reference_tensor(model.covar_module, x), "x", "the kernel")
    if operator is not None and not isinstance(operator, Operator):
        raise ValueError(f"expected an operator of rfgp.functionals, got {operator!r}; such as Divergence()")
    if operator is not None and not model.covar_module.has_output_factor:
        check_no_operator(operator)
    regression, weights = model.predictor.at_present(model)
    first = regression.distribution(x, weights, operator)
    further = [draw.posterior(x, operator) for draw in model.further_draws.of(model)]
    return mixture([first, *further]) if further else first


def point_predictor(model: WeightSpaceGP, dtype: torch.dtype | None) -> Points:
    """See :meth:`WeightSpaceGP.point_predictor`."""
    conditioned_of(model)
    default = reference_tensor(model.covar_module).dtype.to_real()
    if dtype not in (None, torch.float32, torch.float64):
        raise ValueError(f"expected torch.float32 or torch.float64 for dtype, got {dtype!r}; choose one of the two")
    draws = [draw.predictor.points(draw, dtype or default) for draw in (model, *model.further_draws.of(model))]
    points: list[Any] = [draw for draw in draws if draw is not None]
    if len(points) == len(draws):
        return points[0] if len(points) == 1 else PointMixture(points)
    if dtype not in (None, default):
        raise ValueError(
            f"expected {default}, the dtype of the model, got {dtype}: with improper complex targets or very "
            "many outputs there is no other; convert the model before the fit"
        )
    without_rows = copy.copy(model)
    without_rows.training_data = []
    return PosteriorPoints(without_rows)


def log_marginal_likelihood(model: WeightSpaceGP) -> Tensor:
    """See :meth:`WeightSpaceGP.log_marginal_likelihood`."""
    conditioned_of(model)
    if not model.noise.is_complex and model.features.is_complex:
        raise ValueError(
            "expected real features for the evidence of real labels, got complex ones, whose real part has none; "
            "use the :ctr form of the method"
        )
    sums = checked(model).sums
    statistics = sums.draws[0]
    if getattr(sums, "is_imputed", False):
        raise ValueError(
            "expected observed targets for the evidence, got missing ones of so many outputs that they were filled "
            "with posterior means; take fewer outputs or features, or learn parameters from complete rows"
        )
    evidence: Tensor = model.regression().log_marginal_likelihood(statistics, sums.training_rows)
    if torch.is_grad_enabled() and not statistics.cross.requires_grad:
        evidence = refusing(evidence, summed_parameters(model))
    further = [draw.log_marginal_likelihood() for draw in model.further_draws.of(model)]
    return torch.stack([evidence, *further]).mean() if further else evidence


def log_evidence(model: WeightSpaceGP, rows: CheckedRows) -> Tensor:
    """The log evidence of checked rows at the present parameters, (); the model stays conditioned on what it is.

    Rows of a model with blocks remember their blocks.
    """
    if model.block_size is None:
        sums: RowSums = feature_sums(model, rows)
    else:
        sums = block_rows(model, rows).summed(model)
        rows.local = sums.local
    draws = [model, *(model.further_draws.begin(model) if len(sums.draws) > 1 else [])]
    evidence = [
        regression_on(draw, sums.local, draw.covar_module, draw.mean_module).log_marginal_likelihood(
            statistics, sums.training_rows
        )
        for draw, statistics in zip(draws, sums.draws, strict=True)
    ]
    return evidence[0] if len(evidence) == 1 else torch.stack(evidence).mean()


def function_draws(model: WeightSpaceGP, count: int, prior: bool) -> FunctionDraws:
    """Functions drawn from the posterior or the prior; of several draws of the weights each has a random one."""
    further = model.further_draws.begin(model) if prior else model.further_draws.of(model)
    sources = [functools.partial(_draws_of_one, one, prior=prior) for one in (model, *further)]
    return functions_of_random_draws(sources, count) if further else sources[0](count)


def _draws_of_one(model: WeightSpaceGP, count: int, prior: bool) -> FunctionDraws:
    if not prior:
        known: tuple[Regression, GaussianPosterior] = model.predictor.at_present(model)
        return known[0].draws(drawn_weights(known[1], count, model.noise.is_complex))
    regression: Regression = model.predictor.prior_regression(model)
    batch = (model.noise.num_systems,) if model.noise.is_batched else ()
    factor = regression.factor()
    weight_prior = RootPosterior.prior((*batch, factor.num_columns), model.features.is_complex, factor.device)
    return regression.draws(drawn_weights(weight_prior, count, model.noise.is_complex))
