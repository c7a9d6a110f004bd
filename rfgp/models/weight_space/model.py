"""Gaussian-process regression and classification in weight space, from sums over the rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, cast

import gpytorch
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean, ZeroMean
from torch import Tensor

from ..._support import checks, states
from ..._support.gpytorch_names import forget_load_hooks
from ...approximation import with_features
from ...approximation.maps import maps_kept_on_error
from ...approximation.reference_tensor import reference_tensor
from ...data.batches import Batch
from ...data.row_noise import weighted
from ...features.random_weights import weights_kept_on_error
from ...functionals import Operator
from ...inference import GaussianPosterior, LeaveGroupOut, LeaveOneOut, NoiseModel, OutputFactor, noise_model
from ...inference.local import LocalSystems, systems_of
from ...inference.noise.raised import raised
from ...inference.posterior.complex_regression import PlaneFeatures
from ...inference.posterior.regression import Regression
from ...inference.sums.grid_statistics import PlainFeatures, grid_of
from ...inference.sums.mean_basis import check_mean, check_output_mean
from ...inference.sums.sufficient_statistics import SufficientStatistics
from ...inference.sums.training_residual import RESIDUALS, TrainingResidual
from ...likelihoods import ComplexNormal, MultitaskMultivariateNormal, MultivariateNormal
from ...linalg.frequency_grid import FrequencyGrid
from ..function_samples import FunctionSamples
from ..model_lock import ModelLock, alone, together
from ..record import WeightsCode
from . import changes, components, conditioned, leave_out, predictor
from .checks import check_parts
from .conditioned import Conditioned
from .conditioning import statistics_given, sums_of_data
from .further_draws import FurtherDraws
from .predictor import Predictor
from .row_sums import RowSums
from .state import SavedState

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel
    from ...inference.posterior.covariance import ResidualCovariance
    from ...inference.sums.accumulation import SummedKernel


class WeightSpaceGP(gpytorch.Module):
    r"""A Gaussian process with random features, conditioned and evaluated from sums over the rows at O(N D^2).

    .. math:: B = I + \Phi^H S^{-1} \Phi, \qquad E f_* = \Phi_* B^{-1} \Phi^H S^{-1} y, \qquad
        \mathrm{Cov} f_* = \Phi_* B^{-1} \Phi_*^H

    ``condition`` sums rows at the present parameters; :func:`rfgp.fit` learns the parameters. ``update``, ``downdate``
    and ``merge`` equal conditioning on the rows that there are then. Several threads may read a model while one changes
    its rows. On an error every method leaves the model as it was.

    :param kernel: a kernel made by :func:`rfgp.approximate`, or a GPyTorch ScaleKernel around one.
    :param likelihood: a Gaussian, fixed-noise, complex Gaussian, complex fixed-noise or Dirichlet classification
        likelihood; a multitask Gaussian or multitask fixed-noise one for a kernel of several outputs.
    :param mean: ZeroMean, ConstantMean or LinearMean, with a batch shape (C,) for classes if wanted; a MultitaskMean of
        these for several outputs; default: ZeroMean.
    :param block_size: model the residual of the features inside blocks of at most so many near rows (PIC), at
        O(N (B^2 + B D)) more, for landmarks and real targets or labels. The model keeps its rows. Default: no blocks.
    :param num_neighbors: with blocks, predictions use the residual of so many nearest training rows; None for those of
        the block that a point lies in; default: 64.
    :param residual: what training makes of the residual variance r(x) of the features: "none"; "vfe", the variational
        bound; "fitc", noise of each row, as "none" does too for a Fourier grid; default: "none". Predictions add r(x).
    :param num_draws: the number of independent draws of the random weights; predictions have the moments of their
        mixture, whose intervals are too narrow where functions are rough: take landmarks or a grid then; default: 1.
    :param product_dtype: the dtype of Gram products; default: float64, or float32 for float32 features where the
        smallest noise exceeds 1 % of the largest prior variance.
    :param keep_data: whether ``training_data`` keeps the rows, for comparisons with the exact posterior.
    :raises ValueError: for a kernel without features, or another likelihood, mean or product_dtype.

    Source: T Eq. B.13 to B.20.

    >>> import gpytorch, rfgp
    >>> x, y = torch.rand(100, 2), torch.rand(100)
    >>> kernel = rfgp.approximate(gpytorch.kernels.PolynomialKernel(power=2), num_features=16, input_dim=2)
    >>> model = WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
    >>> model.posterior(x[:3]).variance.shape
    torch.Size([3])
    """

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
        self.lock = ModelLock()
        self.covar_module = with_features(kernel)
        self.likelihood = likelihood
        self.mean_module = check_mean(ZeroMean() if mean is None else mean)
        self._noise = None if self.covar_module.has_output_factor else noise_model(likelihood)
        self._raised: NoiseModel | None = None
        self.has_grid = self.covar_module.summed_amplitudes is not None
        """Whether sums over rows are those of plain cosines and sines, without amplitudes."""
        self.predictor = Predictor()
        self.conditioned: Conditioned | None = None
        """The sums that the model is conditioned on, stale or not."""
        self.training_data: list[Batch] = []
        self.weights_code = WeightsCode()
        self.block_size = None if block_size is None else checks.positive_integer("block_size", block_size)
        self.num_neighbors = None if num_neighbors is None else checks.positive_integer("num_neighbors", num_neighbors)
        self.residual = checks.choice("residual", residual, tuple(RESIDUALS))
        self.num_draws = checks.positive_integer("num_draws", num_draws)
        self.product_dtype = None if product_dtype is None else checks.product_dtype(product_dtype)
        self.keep_data = checks.flag("keep_data", keep_data)
        check_parts(self)
        self.further_draws = FurtherDraws(self.num_draws - 1)

    # Its sums over rows

    @property
    @alone
    def sums(self) -> RowSums:
        """The sums for all draws of the weights; a ValueError where parameters or weights have changed since."""
        return conditioned.valid_sums(self)

    @property
    @alone
    def statistics(self) -> SufficientStatistics:
        """The statistics of the rows, for the first draw of the weights; raises as ``sums`` does."""
        return conditioned.checked(self).sums.draws[0]

    @property
    def draw_statistics(self) -> list[SufficientStatistics]:
        """The statistics of the rows for every draw of the weights, as :meth:`load_statistics` takes them."""
        return list(self.sums.draws)

    @alone
    def condition(
        self,
        x: Tensor | Iterable[Any],
        y: Tensor | None = None,
        noise: Tensor | None = None,
        *,
        weights: Tensor | None = None,
        executor: Executor | None = None,
        progress: bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 1_000_000,
    ) -> Self:
        """Sum rows at the present parameters, and forget earlier rows. :func:`rfgp.fit` learns parameters.

        With gradients enabled, batches are read once here, and once more when a gradient runs back.

        :param x: inputs (N, d), or an iterable of batches (x, y) or (x, y, noise), such as a source of
            :mod:`rfgp.data` or a DataLoader; beside ``executor`` a list of partitions, each such an iterable.
        :param y: targets (N,), integer labels for a Dirichlet likelihood, or (N, T), with NaN for missing ones. Those
            of very many outputs are filled with their posterior means, and variances count them as observed.
        :param noise: noise variances of the shape of y, for a fixed-noise likelihood.
        :param weights: weights of the rows, (N,), which divide the noise of every likelihood; default: ones.
        :param executor: an executor of ``concurrent.futures``, also Dask's and MPI's, whose workers sum the rows, with
            the same bits whatever their number; default: all in this process.
        :param progress: whether a bar shows the rows of batches; default: on terminals.
        :param checkpoint: a file that sums of batches are saved to, from which the same call goes on; default: none.
        :param checkpoint_every: the number of rows after which it is saved, at the end of a batch.
        :raises ValueError: for bad data, or a checkpoint of something else.
        """
        x = checks.columns(x)
        noise = noise if weights is None else weighted(noise, weights, x)
        with self.nothing_lost_on_error():
            conditioned.take(self, *sums_of_data(self, x, y, noise, executor, progress, checkpoint, checkpoint_every))
        return self

    @alone
    def load_statistics(self, statistics: SufficientStatistics | Sequence[SufficientStatistics]) -> Self:
        """Condition on statistics of the same parameters and weights from elsewhere, such as merged ones of shards.

        :param statistics: those of a model with the same parts; for several draws of the weights a list.
        :raises ValueError: for those of other parts, or of rows with weights or missing outputs that it has not seen.
        """
        with self.nothing_lost_on_error():
            conditioned.take(self, statistics_given(self, statistics), [])
        return self

    def update(self, x: Tensor, y: Tensor, noise: Tensor | None = None, *, weights: Tensor | None = None) -> Self:
        """Add rows; the result equals conditioning on all rows, without gradients of the sums."""
        x = checks.columns(x)
        self.slide((x, y, weighted(noise, weights, x)))
        return self

    @alone
    def downdate(
        self, x: Tensor, y: Tensor, noise: Tensor | None = None, *, weights: Tensor | None = None, weight: float = 1.0
    ) -> Self:
        """Take rows away; the result equals conditioning on the others, up to a rounding error.

        :param weight: the weight that :meth:`forget` has left them; default: 1.
        :raises ValueError: for rows that were never there, as far as the model can tell.
        """
        x = checks.columns(x)
        changes.downdate(self, (x, y, weighted(noise, weights, x)), checks.positive("weight", weight))
        return self

    @alone
    def forget(self, factor: float) -> Self:
        r"""Let all rows count less: the density of every row has the power :math:`\gamma` from now on.

        .. math:: p(w \mid y) \propto p(w) \prod_i p(y_i \mid w)^\gamma, \qquad
            \log p(y) = \log \int p(w) \prod_i p(y_i \mid w)^\gamma \, dw

        The posterior is that of rows with noise variances :math:`s_i / \gamma`. The evidence is not: a row that fades
        tells less about the noise, where ``weights`` say that its noise is smaller or larger. The prior is not
        forgotten. Rows of ``keep_data`` are dropped.

        :param factor: the factor, above 0 and at most 1.
        """
        changes.forget(self, factor)
        return self

    def merge(self, *others: WeightSpaceGP) -> Self:
        """Add the rows of models with the same features; the result equals conditioning on the rows of all.

        :raises ValueError: for models without rows, or with other features, with what differs.
        """
        for other in others:
            checks.instance("every model to merge", other, WeightSpaceGP, "a fitted WeightSpaceGP", "pass models")
        with together((self, *others)):
            changes.merge(self, others)
        return self

    @alone
    def slide(self, added: Batch, removed: Batch | None = None, factor: float = 1.0) -> RowSums:
        """Add rows, after the weights of others were multiplied, and take some away unchecked: a step of a stream.

        :returns: the sums over the rows that were added.
        """
        return changes.slide(self, added, removed, factor)

    @alone
    def refit_error(
        self, x: Tensor | Iterable[tuple[Tensor, ...]], y: Tensor | None = None, noise: Tensor | None = None
    ) -> changes.RefitError:
        """How far the model is, after changes, from a copy conditioned on the rows that it should have."""
        x = checks.columns(x)
        return changes.refit_error(self, x, y, noise)

    @alone
    def take(self, sums: RowSums, data: list[Batch] | None = None, is_same: bool = False) -> Self:
        """Let these be the sums of the model.

        :param data: the rows, for a model that keeps them; default: those that it has.
        :param is_same: whether parameters and weights are those of the sums before.
        """
        conditioned.take(self, sums, self.training_data if data is None else data, is_same)
        return self

    @property
    def num_rows_kept(self) -> int:
        """The number of rows that are kept: those of blocks, or those whose features hold small classes."""
        if self.conditioned is None:
            return 0
        sums = self.conditioned.sums
        return sums.draws[0].num_rows_held if sums.local is None else len(sums.local.x)

    @alone
    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new random weights, by a CPU generator or PyTorch's; the statistics are stale then."""
        with weights_kept_on_error(self):
            self.covar_module.resample(generator)
            self.further_draws.resample(generator)
        return self

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

    # Its posterior

    def regression(self, is_frozen: bool = False) -> Regression:
        """How statistics become posteriors; frozen: of a snapshot that later changes of parameters do not reach."""
        return self.predictor.regression(self, is_frozen)

    @alone
    def weight_posterior(self) -> GaussianPosterior:
        """The posterior of the weights of the first draw; a batch of C of them for a Dirichlet likelihood.

        It is cached, without gradients unless ``gpytorch.settings.detach_test_caches`` is off.
        """
        return self.predictor.weight_posterior(self)

    @alone
    def posterior(self, x: Tensor, operator: Operator | None = None) -> MultivariateNormal | ComplexNormal:
        """The posterior of the function at inputs, without noise: ``likelihood(model.posterior(x))`` adds it.

        The N x N covariance is formed only where it is asked for. The distribution keeps its values, whatever happens
        to the model later. Variances include the residual variance of the features.

        :param x: inputs (..., N, d); (N, d) for a Dirichlet likelihood or several outputs.
        :param operator: a linear operator of :mod:`rfgp.functionals` on the field of an operator-valued kernel, whose
            result is predicted in place of the field.
        :returns: a GPyTorch distribution, with batch shape (C,) for a Dirichlet likelihood, multitask for several
            outputs; a ComplexNormal for complex targets.
        """
        x = checks.columns(x)
        return predictor.posterior(self, x, operator)

    @alone
    def component_posterior(self, x: Tensor) -> MultitaskMultivariateNormal:
        r"""The joint posterior of the terms of a sum of kernels, such as trend and season, at inputs.

        .. math:: f = m + \sum_i f_i, \qquad E f_i = \Phi_i B^{-1}_{i \cdot} \Phi^\top S^{-1} r, \qquad
            \mathrm{Cov}(f_i, f_j) = \Phi_i (B^{-1})_{ij} \Phi_j^\top

        The means add up to that of :meth:`posterior` less the mean function m, and the covariances of all terms to its
        covariance. What truncated features leave of the variance of a term is added to that term.

        :param x: inputs (N, d).
        :returns: a multitask distribution of the terms of the AdditiveKernel in their order, as K outputs.
        :raises ValueError: for a kernel that is no sum, or whose features do not belong to its terms, as landmarks and
            grids of a whole sum; for several outputs, complex features or targets, classes, blocks and several draws.

        Source: D. Duvenaud, Automatic model construction with Gaussian processes, 2014, Section 2.4.5.

        >>> import gpytorch, rfgp
        >>> trend, season = gpytorch.kernels.RBFKernel(), gpytorch.kernels.PeriodicKernel()
        >>> kernel = rfgp.approximate(trend + season, num_features=64, input_dim=1, seed=0)
        >>> x = torch.rand(100, 1)
        >>> model = WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, x[:, 0])
        >>> model.component_posterior(x[:5]).variance.shape
        torch.Size([5, 2])
        """
        return components.component_posterior(self, checks.columns(x))

    def forward(self, x: Tensor) -> MultivariateNormal | ComplexNormal:
        """:meth:`posterior`, as GPyTorch's models give it in evaluation mode."""
        return self.posterior(x)

    @alone
    def point_predictor(self, dtype: torch.dtype | None = None) -> predictor.Points:
        """A callable from points (N, d) to ``(mean, variance)``, (N, T) each, without covariances and gradients.

        It can be pickled, and has no training rows. :func:`rfgp.predict_map` makes it for you.

        :param dtype: of features, products and results: torch.float32 or torch.float64; default: the kernel's.
        """
        return predictor.point_predictor(self, dtype)

    @alone
    def log_marginal_likelihood(self) -> Tensor:
        r"""The log evidence of the rows, summed over classes; differentiable in all parameters.

        .. math:: \log p(y) = -\tfrac12 \big(r^\top S^{-1} r - h^\top B^{-1} h + \log|B| + \log|S| + N \log 2 \pi\big),
            \qquad h = \Phi^\top S^{-1} r

        It is not divided by N. Its gradient raises where sums have none: condition with gradients enabled.

        Source: T B.3; identity 1 of the errata for class labels.
        """
        return predictor.log_marginal_likelihood(self)

    @alone
    def sample_functions(self, num_functions: int, prior: bool = False) -> FunctionSamples:
        """Draws of functions from the posterior or the prior, as one callable that can be evaluated anywhere.

        With blocks those of the posterior have its means and covariances; others, and those of the prior, leave the
        variance out that landmarks or a grid lack.

        :param num_functions: the number S of draws.
        :param prior: whether they are drawn from the prior.
        :returns: a callable from (..., q, d) to (S, ..., q), (S, ..., q, T) or, for classes, (S, ..., C, q).
        """
        count = checks.positive_integer("num_functions", num_functions)
        return FunctionSamples(predictor.function_draws(self, count, checks.flag("prior", prior)), count)

    @alone
    def leave_one_out(
        self, x: Tensor, y: Tensor, noise: Tensor | None = None, *, weights: Tensor | None = None
    ) -> LeaveOneOut:
        r"""The prediction of every row from all others with the same parameters, at O(N D^2) in all.

        .. math:: y_i - \mu_{-i} = \frac{y_i - \phi_i^\top m}{1 - H_{ii}}, \qquad
            \sigma^2_{-i} = \frac{s_i}{1 - H_{ii}}, \qquad H_{ii} = \phi_i^\top B^{-1} \bar\phi_i / s_i

        :returns: ``(mean, variance, log_prob, latent_variance)``: with noise, but for ``latent_variance``; (N,), (N, T)
            or (C, N), and ``log_prob`` (N,).
        :raises ValueError: for rows other than those of the model, which may come in any order.

        Source: errata, identity 4 of the last section.
        """
        x = checks.columns(x)
        return leave_out.leave_one_out(self, x, y, weighted(noise, weights, x))

    @alone
    def leave_group_out(
        self,
        x: Tensor,
        y: Tensor,
        groups: Tensor | int,
        noise: Tensor | None = None,
        *,
        weights: Tensor | None = None,
        seed: int = 0,
    ) -> LeaveGroupOut:
        """The prediction of every group of rows from all others, as :meth:`leave_one_out` of stations or folds.

        :param groups: the label of the group of every row, (N,), integers; or the number K of random folds.
        :param seed: the seed of random folds; default: 0.
        :returns: that of :meth:`leave_one_out` by row, with ``labels`` in ascending order and ``group_log_prob`` (G,).
        """
        x = checks.columns(x)
        return leave_out.leave_group_out(self, x, y, groups, weighted(noise, weights, x), seed)

    @alone
    def leave_out_functions(
        self, x: Tensor, y: Tensor, groups: Tensor | int | None = None, noise: Tensor | None = None, *, seed: int = 0
    ) -> leave_out.LeaveOutFunctions:
        """The means at any inputs (n, d) without each row, or each group: a callable to (G, n, T), of real targets."""
        x = checks.columns(x)
        return leave_out.functions(self, x, y, groups, noise, seed)

    # What sums and posterior ask of its parts

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
        measured = self.measured_noise if self._noise is None else self._noise
        if not self.has_grid or not self.raises_noise:
            return measured
        if self._raised is None:
            self._raised = raised(measured, self._cut_off, self._all_parameters)
        return self._raised

    @property
    def noise_if_known(self) -> NoiseModel | None:
        """The noise model, or None where a kernel of several outputs waits for its first inputs."""
        return self._noise

    @property
    def raises_noise(self) -> bool:
        """Whether what a grid cuts off is noise in training: for every likelihood, with weights and without."""
        return self.has_grid and self.residual != "vfe" and self.covar_module.frequency_grid is not None

    def _cut_off(self) -> Tensor:
        """What a grid cuts off of the covariance of the outputs of a row, (..., T, T), in float64."""
        grid, _ = grid_of(self.covar_module)
        middle = grid.middle.to(reference_tensor(self.covar_module).device)
        cut_off = cast("ResidualCovariance", self.features.residual_covariance(middle))
        return cut_off.double().dense().squeeze(-3)

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
        """What sums over rows contain of the residual variance of the features, but for that of a grid."""
        return None if self.raises_noise else RESIDUALS[self.residual]

    @property
    def features(self) -> SummedKernel:
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

    # Copies, devices, pickles and states

    def unconditioned(self, kernel: FeatureKernel | None = None) -> WeightSpaceGP:
        """A model without rows, with the parts and settings of this one.

        :param kernel: another kernel, for one draw of the weights; default: that of the model, with all draws.
        """
        settings: dict[str, Any] = {"residual": self.residual, "product_dtype": self.product_dtype}
        if kernel is None:
            settings |= {"num_draws": self.num_draws, "block_size": self.block_size}
        kernel_or_own = self.covar_module if kernel is None else kernel
        settings["num_neighbors"] = self.num_neighbors
        model = WeightSpaceGP(kernel_or_own, self.likelihood, self.mean_module, **settings)
        if kernel is None:
            model.further_draws.maps = self.further_draws.maps
        else:
            model.share_noise(self)
        return model

    def share_noise(self, other: WeightSpaceGP) -> None:
        """Have the noise model of another model of the same outputs."""
        self._noise, self._raised = other.noise_if_known, other._raised

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
