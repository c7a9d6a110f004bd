"""The torch module of a weight-space model: its parts, and what copies, moves, pickles and states of it hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import gpytorch
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean, ZeroMean
from torch import Tensor

from ..._support import states
from ..._support.gpytorch_names import forget_load_hooks
from ...approximation import with_features
from ...approximation.map_holder import maps_kept_on_error
from ...approximation.reference_tensor import reference_tensor
from ...data.batches import Batch
from ...inference import NoiseModel, OutputFactor, noise_model
from ...inference.local import LocalSystems, systems_of
from ...inference.noise.raised import raised
from ...inference.posterior.complex_regression import PlaneFeatures
from ...inference.sums.mean_basis import check_mean, check_output_mean
from ...inference.sums.plain_features import PlainFeatures
from ...inference.sums.training_residual import RESIDUALS, TrainingResidual
from ...linalg.frequency_grid import FrequencyGrid
from ..model_lock import ModelLock, alone
from ..record import WeightsCode
from .conditioned import Conditioned
from .further_draws import FurtherDraws
from .predictor import Predictor
from .state import SavedState


class WeightSpaceModule(gpytorch.Module):
    """Kernel, likelihood, mean and sums over rows: ``state_dict``, copies and pickles have all of them."""

    further_draws: FurtherDraws
    residual: str
    num_draws: int
    block_size: int | None
    has_grid: bool = False
    """Whether sums over rows are those of plain cosines and sines, without amplitudes."""

    def __init__(self, kernel: Kernel, likelihood: Likelihood, mean: Mean | None) -> None:
        super().__init__()
        forget_load_hooks(self)
        self.lock = ModelLock()
        self.covar_module = with_features(kernel)
        self.likelihood = likelihood
        self.mean_module = check_mean(ZeroMean() if mean is None else mean)
        self._noise = None if self.covar_module.has_output_factor else noise_model(likelihood)
        self._raised: NoiseModel | None = None
        self.has_grid = self.covar_module.summed_amplitudes is not None
        self.predictor = Predictor()
        self.conditioned: Conditioned | None = None
        """The sums that the model is conditioned on, stale or not."""
        self.training_data: list[Batch] = []
        self.weights_code = WeightsCode()

    @property
    def measured_noise(self) -> NoiseModel:
        """The noise model of the likelihood, made at the first inputs for several outputs."""
        if self._noise is None:
            noise = noise_model(self.likelihood, self.num_outputs)
            check_output_mean(self.mean_module, noise.num_outputs)
            self._noise = noise
        return self._noise

    @property
    def noise(self) -> NoiseModel:
        """The noise of training rows: that of the likelihood, and what a grid cuts off, the same for all rows."""
        measured = self.measured_noise
        if not self.raises_noise:
            return measured
        if self._raised is None:
            self._raised = raised(measured, self._cut_off, self._all_parameters)
        return self._raised

    @property
    def raises_noise(self) -> bool:
        """Whether what a grid cuts off is noise in training: for every likelihood, with weights and without."""
        return self.has_grid and self.residual != "vfe" and self.covar_module.frequency_grid is not None

    def _cut_off(self) -> Tensor:
        """What a grid cuts off of the covariance of the outputs of a row, (..., T, T), in float64."""
        middle = self.covar_module.frequency_grid.middle.to(reference_tensor(self.covar_module).device)
        return self.features.residual_covariance(middle).double().dense().squeeze(-3)

    def _all_parameters(self) -> dict[str, Tensor]:
        kernel = self.covar_module.named_parameters()
        return dict(kernel) | {f"likelihood.{name}": value for name, value in self.likelihood.named_parameters()}

    @property
    def summed_grid(self) -> FrequencyGrid | PlainFeatures:
        """What sums over rows are taken of in place of the features of a grid."""
        grid: FrequencyGrid | None = self.covar_module.frequency_grid
        return PlainFeatures(self.covar_module) if grid is None else grid

    @property
    def summed_residual(self) -> TrainingResidual | None:
        """What sums over rows contain of the variance that the features lack, but for that of a grid."""
        return None if self.raises_noise else RESIDUALS[self.residual]

    @property
    def noise_if_known(self) -> NoiseModel | None:
        """The noise model, or None where a kernel of several outputs waits for its first inputs."""
        return self._noise

    def share_noise(self, other: WeightSpaceModule) -> None:
        """Have the noise model of another model of the same outputs."""
        self._noise, self._raised = other.noise_if_known, other._raised

    @property
    def features(self) -> Any:
        """The kernel as inference takes it: one of two real outputs where complex targets are taken by their parts."""
        return PlaneFeatures(self.covar_module) if self.noise.is_of_parts else self.covar_module

    def systems(self, has_cells: bool = False) -> LocalSystems:
        """The systems that rows in blocks make, at the present parameters; see :func:`systems_of`."""
        return systems_of(self.covar_module, self.mean_module, self.noise, has_cells)

    @property
    def num_outputs(self) -> int:
        """The number T of outputs: 1 for scalar kernels."""
        factor = self.covar_module.output_factor()
        return factor.num_outputs if isinstance(factor, OutputFactor) else 1

    @property
    def patterns(self) -> tuple[tuple[bool, ...], ...]:
        """Which outputs are observed in every group of rows, where their noises are correlated."""
        return () if self._noise is None else self.noise.patterns

    @property
    def is_whitened(self) -> bool:
        """Whether the statistics contain the noise and the residual of the features of all rows, as unit noise."""
        residual = self.summed_residual
        return self.block_size is not None or (residual is not None and residual.is_noise)

    @property
    def contains_noise(self) -> bool:
        """Whether the statistics depend on all parameters of the kernel and the noise."""
        return self.is_whitened or (self.raises_noise and self._noise is not None and bool(self.noise.parameters()))

    @property
    def sums_hold(self) -> bool:
        """Whether the sums over rows are the same for all parameters."""
        return self.has_grid and self.summed_residual is None and not self.noise.parameters()

    def forward(self, x: Tensor) -> Any:
        """:meth:`posterior`, as GPyTorch's models give it in evaluation mode."""
        return self.posterior(x)

    @property
    def num_rows_kept(self) -> int:
        """The number of rows that are kept: those of blocks, or those whose features hold small classes."""
        if self.conditioned is None:
            return 0
        sums = self.conditioned.sums
        return sums.draws[0].num_rows_held if sums.local is None else len(sums.local.x)

    @contextmanager
    def nothing_lost_on_error(self) -> Iterator[None]:
        """Where anything is raised, forget the maps, the noise model and the patterns that were made on the way.

        What is made outlives :class:`torch.inference_mode`, whose tensors later changes could not touch.
        """
        noise, of_rows, patterns = self._noise, self._raised, self.patterns
        tracks = torch.is_grad_enabled()
        try:
            with (
                maps_kept_on_error(self.covar_module),
                self.further_draws.kept_on_error(),
                torch.inference_mode(False),
                torch.set_grad_enabled(tracks),
            ):
                yield
        except BaseException:
            self._noise, self._raised = noise, of_rows
            if noise is not None:
                self.noise.patterns = patterns
            raise

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: all but the rows that belong to the graph of gradients."""
        before = self.conditioned
        return {**self.__dict__, "conditioned": None if before is None else before.without_graph()}

    @alone
    def saved_attributes(self, with_rows: bool) -> dict[str, Any]:
        """What :func:`rfgp.save` writes, perhaps with the rows of blocks and the features that hold small classes."""
        kept = self.conditioned
        if kept is not None:
            kept = kept._replace(sums=kept.sums.saved(with_rows))
        return {**self.__getstate__(), "conditioned": kept, "predictor": type(self.predictor)(), "training_data": []}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn)
        if self.conditioned is not None:
            device = reference_tensor(self.covar_module, self.conditioned.sums.draws[0].count).device
            self.conditioned = self.conditioned.to(device)
            self.predictor.clear()
        for draw in self.further_draws.of(self):
            draw._apply(fn)
        return self

    def prepare_for(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Make the maps of the further draws that a state has, or raise a ValueError where it has more or fewer."""
        if self.num_draws > 1 and f"{prefix}covar_module._extra_state" in state:
            states.check(self.covar_module, state, f"{prefix}covar_module.")
            self.further_draws.prepare(self.covar_module, state, f"{prefix}further_draws.")

    @alone
    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a state as torch modules do; the state of another model raises a ValueError and changes nothing."""
        with self.nothing_lost_on_error():
            saved, rest = SavedState.split(state_dict)
            if saved is not None:
                saved.check(self)
            elif strict:
                raise ValueError("expected the state of a WeightSpaceGP, got another one; pass its state_dict()")
            states.check(self, rest, strict=strict)
            return super().load_state_dict(state_dict, strict, assign)

    @alone
    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.update(SavedState.of(self).named(prefix))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        saved, rest = SavedState.split(state_dict, prefix)
        with self.nothing_lost_on_error():
            if saved is not None:
                saved.check(self)
            states.check(self, rest, prefix)
            super()._load_from_state_dict(rest, prefix, *args)
            if saved is not None:
                saved.restore(self)
