"""The parts of a weight-space model, its sums over data, and when these are stale."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gpytorch
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean, ZeroMean
from torch import Tensor

from .. import _checks
from .._gpytorch import forget_load_hooks
from ..inference import (
    ComplexRegression,
    GaussianPosterior,
    NoiseModel,
    OutputFactor,
    PlaneFeatures,
    Regression,
    SufficientStatistics,
    TrainingRows,
    noise_model,
)
from ..inference.local import LocalRegression, LocalRows, WhitenedNoise
from ..inference.mean_basis import check_mean, check_output_mean
from ..inference.training_residual import RESIDUALS
from ..kernels import with_features
from ..kernels.map_holder import maps_kept_on_error
from ..kernels.observation import check_observed_mean
from ..kernels.width_warning import warn_of_width
from .batches import Batch
from .impropriety import SomeRows
from .mixture import FurtherDraws, check_draws
from .model_lock import ModelLock, alone
from .record import WEIGHTS, Record, WeightsCode
from .snapshot import Snapshots
from .weight_space_checks import check_local_kernel, check_output_kernel, check_residual, check_scalar_kernel
from .weight_space_state import Fitted


class WeightSpaceParts(gpytorch.Module):
    """Kernel, likelihood, mean and sums of a :class:`rfgp.models.WeightSpaceGP`, whose arguments it has."""

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        mean: Mean | None = None,
        *,
        block_size: int | None = None,
        num_neighbors: int | None = 64,
        residual: str = "none",
        num_draws: int = 1,
        product_dtype: torch.dtype | None = None,
        keep_data: bool = False,
    ) -> None:
        super().__init__()
        forget_load_hooks(self)
        self._lock = ModelLock()
        self.covar_module = with_features(kernel)
        self.likelihood = likelihood
        self.mean_module = check_mean(ZeroMean() if mean is None else mean)
        check_observed_mean(self.covar_module, self.mean_module)
        self.product_dtype = None if product_dtype is None else _checks.product_dtype(product_dtype)
        self.keep_data = _checks.flag("keep_data", keep_data)
        self._known_noise = None if self.covar_module.has_output_factor else noise_model(likelihood)
        if self._known_noise is None:
            check_output_kernel(self.covar_module, self.mean_module)
        else:
            check_scalar_kernel(self.covar_module, self.mean_module, self._known_noise)
        self.block_size = None if block_size is None else _checks.positive_integer("block_size", block_size)
        self.num_neighbors = None if num_neighbors is None else _checks.positive_integer("num_neighbors", num_neighbors)
        if self.block_size is not None:
            check_local_kernel(self.covar_module, self._known_noise)
        self.residual = _checks.choice("residual", residual, tuple(RESIDUALS))
        if self.residual != "none":
            check_residual(self.covar_module, self._known_noise, self.block_size is not None)
        self.num_draws = _checks.positive_integer("num_draws", num_draws)
        check_draws(self.covar_module, self.num_draws, self.block_size is not None)
        self.further_draws = FurtherDraws(self.num_draws - 1)
        self._fitted: Fitted | None = None
        self._posterior: tuple[Record, GaussianPosterior] | None = None
        self._weights_code = WeightsCode()
        self._snapshots = Snapshots()
        self._some_rows: SomeRows | None = None
        self._rows: TrainingRows | None = None
        self.training_data: list[Batch] = []

    @property
    def _noise(self) -> NoiseModel:
        """What the likelihood makes of rows; for several outputs it has to know how many, from the first inputs on."""
        if self._known_noise is None:
            found = noise_model(self.likelihood, self.num_outputs)
            check_output_mean(self.mean_module, found.num_outputs)
            self._known_noise = found
        return self._known_noise

    @property
    def _features(self) -> Any:
        """The kernel as inference takes it: that of two real outputs where complex targets are taken by their parts."""
        return PlaneFeatures(self.covar_module) if self._noise.is_of_parts else self.covar_module

    @property
    def _patterns(self) -> tuple[tuple[bool, ...], ...]:
        """Which outputs are observed in every group of rows, where their noises are correlated."""
        return () if self._known_noise is None else self._known_noise.patterns

    @property
    def num_outputs(self) -> int:
        """The number T of outputs: 1 for scalar kernels.

        :raises ValueError: where the map of an operator-valued kernel waits for its first inputs.
        """
        factor = self.covar_module.output_factor()
        return factor.num_outputs if isinstance(factor, OutputFactor) else 1

    @property
    @alone
    def statistics(self) -> SufficientStatistics:
        """The sums over the training data; those of the first draw where there are several.

        :raises ValueError: before the first fit, or where parameters or weights have changed since.
        """
        fitted = self._known()
        fitted.record.check(self._feature_state(), "the statistics were computed")
        return fitted.statistics

    @property
    @alone
    def draw_statistics(self) -> list[SufficientStatistics]:
        """The sums over the training data for every draw of the weights, as :meth:`load_statistics` takes them.

        :raises ValueError: as for ``statistics``.
        """
        return [self.statistics, *(draw.statistics for draw in self.further_draws.of(self))]

    def _known(self) -> Fitted:
        """What was fitted, stale or not."""
        if self._fitted is None:
            raise ValueError("expected a fitted model, got one without data; call condition(x, y) first")
        return self._fitted

    def _feature_state(self) -> dict[str, Tensor]:
        """What the statistics depend on, by name."""
        names = {id(parameter): name for name, parameter in self.covar_module.named_parameters()}
        has_all = self._contains_noise
        known = self.covar_module.parameters() if has_all else self.covar_module.feature_parameters()
        state = {names[id(p)]: p.detach() for p in known}
        if has_all:
            state |= {f"likelihood.{name}": p.detach() for name, p in self.likelihood.named_parameters()}
        state |= {name: value.detach() for name, value in self._noise.parameters().items()}
        fixed = self.covar_module.named_buffers()
        state |= {name: b for name, b in fixed if name.rpartition(".")[2] in ("center", "landmarks")}
        state[WEIGHTS] = self._weights_code.of(self.covar_module)
        return state

    def _summed_parameters(self) -> list[Tensor]:
        """The parameters that the statistics contain."""
        if not self._contains_noise:
            return [*self.covar_module.feature_parameters()]
        return [*self.covar_module.parameters(), *self.likelihood.parameters()]

    @property
    def _has_trace(self) -> bool:
        """Whether the evidence is the variational bound."""
        return self.residual == "vfe"

    @property
    def _contains_noise(self) -> bool:
        """Whether the statistics contain the noise and the residual of the features, as unit noise."""
        residual = RESIDUALS[self.residual]
        return self.block_size is not None or (residual is not None and residual.is_noise)

    def _regression(self, is_frozen: bool = False) -> Regression:
        """The regression of the model, or of a snapshot of it that later changes do not reach."""
        regression = self._prior_regression(is_frozen)
        if self._noise.is_of_parts:
            return regression
        parts = regression.kernel, regression.mean
        noise = WhitenedNoise(self._noise) if self._contains_noise else self._noise
        if self._fitted is None or self._fitted.local is None:
            return Regression(*parts, noise, has_trace=self._has_trace)
        return LocalRegression(*parts, noise, self._fitted.local, self.num_neighbors)

    def _prior_regression(self, is_frozen: bool) -> Regression:
        """How weights become functions, whatever the data are."""
        modules = (self.covar_module, self.mean_module)
        parts = self._snapshots.take(*modules) if is_frozen else modules
        return (ComplexRegression if self._noise.is_of_parts else Regression)(*parts, self._noise)

    def _set(
        self,
        statistics: SufficientStatistics,
        data: list[Batch],
        some: SomeRows | None,
        local: LocalRows | None = None,
        record: Record | None = None,
        input_bounds: Tensor | None = None,
    ) -> None:
        factor = self._features.output_factor()
        width = factor.num_columns if isinstance(factor, OutputFactor) else statistics.num_features
        values = self._noise.num_values(statistics)
        if width > values:
            warn_of_width(self.covar_module, f"{width} features exceed the {int(values)} training rows", stacklevel=3)
        record = Record(self._feature_state()) if record is None else record
        self._fitted = Fitted(statistics, record, local, input_bounds)
        self._posterior = None
        self._some_rows = some
        self._rows = None
        self.training_data = data if self.keep_data else []

    @contextmanager
    def _nothing_lost_on_error(self) -> Iterator[None]:
        """Where anything is raised, forget the map, the noise model and the patterns that were made on the way."""
        noise, patterns = self._known_noise, self._patterns
        try:
            with maps_kept_on_error(self.covar_module), self.further_draws.kept_on_error():
                yield
        except BaseException:
            self._known_noise = noise
            if noise is not None:
                noise.patterns = patterns
            raise
