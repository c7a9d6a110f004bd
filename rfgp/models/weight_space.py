"""Gaussian-process regression and classification in weight space, from sufficient statistics."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import gpytorch
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean, LinearMean, Mean, MultitaskMean, ZeroMean
from linear_operator.operators import LinearOperator, RootLinearOperator
from torch import Tensor

from .. import _checks, _state
from ..distributions import ComplexNormal
from ..kernels import LinearlyObservedKernel
from ..kernels.approximate import with_features
from ..kernels.feature_kernel import all_or_nothing, no_operator, reference
from ..kronecker import KroneckerPosterior
from ..linalg import (
    accurate_dtype,
    dense_evidence,
    is_ill_conditioned,
    largest_square,
    log_determinant_and_quadratic,
    product_dtype,
    row_chunks,
    sample_rows,
)
from ..normal import MultivariateNormal
from ..operators import Operator
from ..output_factor import OutputFactor
from ..posterior import WeightPosterior, WeightSpaceCovariance, feature_product, plus_residual, precision_matrix
from ..statistics import GramStatistics
from .accumulate import accumulate, merged
from .impropriety import SomeRows, warn_of_impropriety
from .mean_basis import basis, batch_shape, check_mean, check_output_mean, coefficients, num_columns
from .observations import Observations, Rows, System, observations
from .output_observations import OutputObservations, output_observations
from .output_regression import OutputRegression, check_size, scalar_features
from .residual_pass import ResidualPass, TrainingRows
from .snapshot import FrozenFunction, Snapshot, Snapshots

_WEIGHTS = "set of random weights"
_SUMS, _FITTED = "statistics.", "fitted_with."
_ALWAYS = ("draws", "num_classes", "alpha_epsilon", "patterns")

_Batch = tuple[Tensor, Tensor, Tensor | None]


class WeightSpaceGP(torch.nn.Module):
    r"""A Gaussian process with random features, trained and evaluated from sums over the data at O(N D^2).

    .. math:: B = I + \Phi^H S^{-1} \Phi, \qquad E f_* = \Phi_* B^{-1} \Phi^H S^{-1} y, \qquad
        \mathrm{Cov} f_* = \Phi_* B^{-1} \Phi_*^H

    It takes the same kernel and likelihood objects as GPyTorch's ExactGP. The statistics are additive: ``update`` adds
    rows, and the result equals a fit to all of them. For real labels and complex features the posterior is the real
    part of the complex one, which has no evidence; complex targets take a ComplexGaussianLikelihood. Its noise is
    circular: where the residuals of a fit are significantly not, the first prediction after it warns.

    :param kernel: a kernel made by :func:`rfgp.approximate`, or a GPyTorch ScaleKernel around one.
    :param likelihood: a Gaussian, fixed-noise, complex Gaussian or Dirichlet classification likelihood; for a kernel of
        several outputs a multitask Gaussian or multitask fixed-noise one.
    :param mean: ZeroMean (where it is None), ConstantMean or LinearMean, with a batch shape (C,) for classes if wanted;
        for several outputs a MultitaskMean of these too.
    :param product_dtype: the dtype of Gram products; where it is None, float64, or float32 for float32 features where
        the smallest noise exceeds 1 % of the largest prior variance. Sums are in float64.
    :param keep_data: whether ``training_data`` keeps the rows of ``fit`` and ``update``, for comparisons with the exact
        posterior. Neither predictions nor training need them. They are not part of the state.
    :raises ValueError: for a kernel without features, or another likelihood, mean or product_dtype.

    Source: T Eq. B.13 to B.20.

    >>> import gpytorch, rfgp
    >>> x, y = torch.rand(100, 2), torch.rand(100)
    >>> kernel = rfgp.approximate(gpytorch.kernels.PolynomialKernel(power=2), num_features=16, input_dim=2)
    >>> model = WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).fit(x, y)
    >>> model.posterior(x[:3]).variance.shape
    torch.Size([3])
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        mean: Mean | None = None,
        *,
        product_dtype: torch.dtype | None = None,
        keep_data: bool = False,
    ) -> None:
        super().__init__()
        self.covar_module = with_features(kernel)
        self.likelihood = likelihood
        self.mean_module = check_mean(ZeroMean() if mean is None else mean)
        self.product_dtype = None if product_dtype is None else _checks.product_dtype(product_dtype)
        self.keep_data = bool(keep_data)
        self._patterns: list[tuple[bool, ...]] = []
        self._known_observations = None if self.covar_module.has_output_factor else observations(likelihood)
        self._check_batch_shapes()
        self._statistics: GramStatistics | None = None
        self._fitted_with: dict[str, Tensor] = {}
        self._posterior: tuple[dict[str, Tensor], WeightPosterior | KroneckerPosterior] | None = None
        self._snapshots = Snapshots()
        self._some_rows: SomeRows | None = None
        self.training_data: list[_Batch] = []
        self._draws_since_fit: int | None = None
        self._rows: TrainingRows | None = None
        self.register_load_state_dict_post_hook(_after_loading)

    @property
    def _observations(self) -> Observations:
        """What the likelihood makes of rows; for several outputs it has to know how many, from the first inputs on."""
        if self._known_observations is None:
            found = output_observations(self.likelihood, self.num_outputs, self._patterns)
            check_output_mean(self.mean_module, found.num_outputs)
            self._known_observations = found
        return self._known_observations

    @property
    def num_outputs(self) -> int:
        """The number T of outputs: 1 for scalar kernels.

        :raises ValueError: where the map of an operator-valued kernel waits for its first inputs.
        """
        factor = self.covar_module.output_factor()
        return factor.num_outputs if isinstance(factor, OutputFactor) else 1

    def _check_batch_shapes(self) -> None:
        if self.covar_module.has_output_factor:
            if self.covar_module.batch_shape:
                raise ValueError(
                    "expected a kernel of several outputs without batch dimensions, got "
                    f"{tuple(self.covar_module.batch_shape)}; make a model for each"
                )
            parts = [part for part in self.covar_module.modules() if isinstance(part, LinearlyObservedKernel)]
            is_for_all = isinstance(self.mean_module, ConstantMean | LinearMean)
            if is_for_all and any(len(part.operators) > 1 for part in parts):
                raise ValueError(
                    f"expected a mean for every observed quantity, got one {type(self.mean_module).__name__} for all; "
                    "use a MultitaskMean, for instance of a ConstantMean for values and ZeroMeans for derivatives"
                )
            return
        if isinstance(self.mean_module, MultitaskMean):
            raise ValueError(
                "expected a ZeroMean, ConstantMean or LinearMean for a scalar kernel, got a MultitaskMean; use a "
                "kernel of several outputs, such as a MultitaskKernel"
            )
        classes = self._observations.num_systems
        allowed = [torch.Size(), torch.Size([classes])] if self._observations.is_batched else [torch.Size()]
        found = [torch.Size(self.covar_module.output_factor().shape[:-2]), batch_shape(self.mean_module)]
        features = self._inner_batch()
        if features or any(shape not in allowed for shape in found):
            shape = features or next(shape for shape in found if shape not in allowed)
            raise ValueError(
                f"expected batch shapes () or (C,) of output scale and mean, and () inside the features, got "
                f"{tuple(shape)}; batch only the ScaleKernel and the mean, over classes"
            )

    def _inner_batch(self) -> torch.Size:
        kernel = self.covar_module
        while isinstance(kernel, gpytorch.kernels.ScaleKernel):
            kernel = kernel.base_kernel
        return kernel.batch_shape

    @property
    def statistics(self) -> GramStatistics:
        """The sums over the training data.

        :raises ValueError: before the first fit, or where parameters or weights have changed since.
        """
        known = self._fitted()
        now = self._feature_state()
        changed = [name for name, value in self._fitted_with.items() if not _same(value, now.get(name))]
        if changed:
            raise ValueError(
                f"expected the parameters that the statistics were computed with, got a new {', '.join(changed)}; "
                "call fit(x, y) again"
            )
        return known

    def _fitted(self) -> GramStatistics:
        """The sums over the training data, stale or not."""
        if self._statistics is None:
            raise ValueError("expected a fitted model, got one without data; call fit(x, y) first")
        return self._statistics

    def fit(
        self, x: Tensor | Iterable[tuple[Tensor, ...]], y: Tensor | None = None, noise: Tensor | None = None
    ) -> Self:
        """Compute the statistics of the data, and forget earlier data.

        With gradients enabled the statistics carry those of the kernel's parameters, at constant memory.

        :param x: inputs (N, d), or an iterable of batches (x, y) or (x, y, noise).
        :param y: targets (N,), integer labels for a Dirichlet likelihood, or (N, T) for several outputs, with NaN for
            missing ones (of a batch at least one is observed).
        :param noise: noise variances of the shape of y, for a fixed-noise likelihood.
        :returns: the model.
        :raises ValueError: for bad data; the model stays as it was.
        """
        if isinstance(x, Tensor):
            if y is None:
                raise ValueError("expected targets y beside the inputs, got none; call fit(x, y)")
            with self._all_or_nothing():
                sums, rows = self._sums_and_rows(x, y, noise, is_all=True)
                self._set(sums, [(x, y, noise)])
                self._some_rows = self._and_some_of(None, x, y)
                self._rows = TrainingRows(x, y, rows) if torch.is_grad_enabled() else None
            return self
        if y is not None or noise is not None:
            raise ValueError(
                f"expected a torch.Tensor for x beside y, got {type(x).__name__}; use torch.as_tensor, or give batches "
                "(x, y) or (x, y, noise) from a loader alone"
            )
        if not isinstance(x, Iterable):
            raise ValueError(f"expected inputs x, or batches from a loader, got {type(x).__name__}; call fit(x, y)")
        total: GramStatistics | None = None
        data: list[_Batch] = []
        some: SomeRows | None = None
        with self._all_or_nothing():
            for batch in map(_unpack, x):
                total = self._sums(*batch, is_all=False, sums=total)
                some = self._and_some_of(some, *batch[:2])
                if self.keep_data:
                    data.append(batch)
            if total is None:
                raise ValueError("expected at least one batch from the loader, got none; check that it is not used up")
            self._set(total, data)
            self._some_rows = some
        return self

    def update(self, x: Tensor, y: Tensor, noise: Tensor | None = None) -> Self:
        """Add rows to the statistics; the result equals a fit to all rows.

        :param x: inputs (N, d).
        :param y: targets (N,), integer labels, or (N, T) with NaN for missing outputs.
        :param noise: noise variances of the shape of y, for a fixed-noise likelihood.
        :returns: the model.
        :raises ValueError: for bad data, or stale statistics; the model stays as it was.
        """
        known = None if self._statistics is None else self.statistics
        data = [*self.training_data, (x, y, noise)] if known is None or self.training_data else []
        with self._all_or_nothing():
            fresh = self._sums(x, y, noise, is_all=False)
            self._set(merged(self._observations, known, fresh), data)
            self._some_rows = self._and_some_of(None if known is None else self._some_rows, x, y)
        return self

    def load_statistics(self, statistics: GramStatistics) -> Self:
        """Take statistics from elsewhere, such as merged ones of several shards, in place of a fit.

        They count as computed with the present parameters of the kernel and, for fixed noise, of the likelihood, and
        with the present random weights: equal seeds and parameters are up to the caller, and so is the center of the
        inputs that :func:`rfgp.fit` stores in the kernel. Loading the ``state_dict`` of one model into the others makes
        all of these equal; do it before these are fitted to their shards.

        :param statistics: those of models with the same kernel, likelihood and mean; they are copied.
        :returns: the model.
        :raises ValueError: where the kernel waits for its first inputs, or where numbers of groups, features or
            target columns or the dtypes are not those of this model; the model stays as it was.

        >>> import gpytorch, rfgp
        >>> def model_of_a_shard():
        ...     exact = gpytorch.kernels.PolynomialKernel(power=2)
        ...     kernel = rfgp.approximate(exact, num_features=16, input_dim=2, seed=0)
        ...     return WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
        >>> x, y = torch.rand(200, 2), torch.rand(200)
        >>> shards = [model_of_a_shard().fit(x[rows], y[rows]) for rows in (slice(0, 100), slice(100, 200))]
        >>> both = shards[0].statistics.merge(shards[1].statistics)
        >>> model_of_a_shard().load_statistics(both).posterior(x[:3]).variance.shape
        torch.Size([3])
        """
        if not isinstance(statistics, GramStatistics):
            raise ValueError(f"expected GramStatistics, got {type(statistics).__name__}; take model.statistics")
        with self._all_or_nothing():
            self._check_statistics(statistics)
            copied = GramStatistics.from_state_dict(statistics.state_dict())
            self._set(copied.to(next(self.covar_module.parameters()).device), [])
        return self

    def _check_statistics(self, statistics: GramStatistics) -> None:
        """Raise a ValueError where statistics cannot be those of this model."""
        observed = self._observations
        columns = num_columns(self.mean_module) + (self.num_outputs if isinstance(observed, OutputObservations) else 1)
        width, is_complex = self.covar_module.num_scalar_features, self.covar_module.is_complex
        observed.check_groups(statistics)
        gram, outer = statistics.num_features, len(statistics.shift)
        if (gram, outer) != (width, columns):
            raise ValueError(
                f"expected statistics of {width} features and {columns} target columns (the targets and the mean's "
                f"basis), got {gram} and {outer}; make them with this kernel and mean"
            )
        found = statistics.gram.is_complex() or statistics.shift.is_complex(), statistics.shift.is_complex()
        if found != (is_complex or observed.is_complex, observed.is_complex):
            raise ValueError(
                f"expected {'complex' if is_complex else 'real'} features and "
                f"{'complex' if observed.is_complex else 'real'} targets in the statistics, got others; make them with "
                "this kernel and likelihood"
            )

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Where anything is raised, forget the map, the outputs and the patterns that were made on the way."""
        observed, patterns = self._known_observations, list(self._patterns)
        try:
            with all_or_nothing(self.covar_module):
                yield
        except BaseException:
            self._known_observations, self._patterns[:] = observed, patterns
            raise

    def _set(self, sums: GramStatistics, data: list[_Batch]) -> None:
        factor = self.covar_module.output_factor()
        width = factor.num_columns if isinstance(factor, OutputFactor) else self._num_features(sums)
        values = self._observations.num_values(sums)
        if width > values:
            warnings.warn(
                f"{width} features exceed the {int(values)} training rows: the exact kernel costs less",
                stacklevel=3,
            )
        self._statistics = sums
        self._fitted_with = {name: value.detach().clone() for name, value in self._feature_state().items()}
        self._posterior = None
        self._rows = None
        self.training_data = data if self.keep_data else []

    @staticmethod
    def _num_features(sums: GramStatistics) -> int:
        return sums.num_features

    def _sums(
        self, x: Tensor, y: Tensor, noise: Tensor | None, is_all: bool, sums: GramStatistics | None = None
    ) -> GramStatistics:
        return self._sums_and_rows(x, y, noise, is_all, sums)[0]

    def _sums_and_rows(
        self, x: Tensor, y: Tensor, noise: Tensor | None, is_all: bool, sums: GramStatistics | None = None
    ) -> tuple[GramStatistics, Rows]:
        _checks.finite(_checks.inputs(x).detach())
        if x.dim() != 2:
            raise ValueError(f"expected training inputs of shape (N, d), got {tuple(x.shape)}; fit one model per batch")
        _checks.same_kind(x, reference(self.covar_module, x), "x", "the kernel")
        if self.covar_module.has_output_factor:
            with torch.no_grad():
                self.covar_module.scalar_features(x[:1])
        rows = self._observations.rows(x, y, noise, basis(self.mean_module, x), is_all)
        if self.covar_module.has_output_factor:
            check_size(self.covar_module.output_factor(), rows.num_groups)
        dtype = self._product_dtype(x, rows)
        total = accumulate(self.covar_module, self._observations, x, rows, dtype, sums)
        if not total.is_finite:
            raise _checks.overflow(x)
        return total, rows

    def _product_dtype(self, x: Tensor, rows: Rows) -> torch.dtype:
        if self.product_dtype is not None:
            return self.product_dtype
        return product_dtype(x.dtype, self._observations.smallest_noise(rows), lambda: self._largest_variance(x))

    @torch.no_grad()
    def _largest_variance(self, x: Tensor) -> float:
        """The largest prior variance at some of the inputs: evenly spaced ones, and the one farthest from zero."""
        farthest = x[x.square().sum(-1).argmax()]
        features = self.covar_module.scalar_features(torch.cat([sample_rows(x), farthest.unsqueeze(0)]))
        factor = self.covar_module.output_factor()
        if isinstance(factor, OutputFactor):
            return factor.largest_square(features)
        return largest_square(features) * float(factor.square().max())

    def _feature_state(self) -> dict[str, Tensor]:
        """What the statistics depend on, by name."""
        names = {id(parameter): name for name, parameter in self.covar_module.named_parameters()}
        state = {names[id(p)]: p.detach() for p in self.covar_module.feature_parameters()}
        state |= {name: value.detach() for name, value in self._observations.parameters().items()}
        state |= {name: b for name, b in self.covar_module.named_buffers() if name.rpartition(".")[2] == "center"}
        state[_WEIGHTS] = torch.tensor(self.covar_module.version)
        return state

    def _outputs(self, snapshot: Snapshot | None = None) -> OutputRegression | None:
        """The regression of several outputs, with what predicts from a snapshot if wanted; None for scalar kernels."""
        observed = self._observations
        if not isinstance(observed, OutputObservations):
            return None
        kernel, mean = (self.covar_module, self.mean_module) if snapshot is None else snapshot
        return OutputRegression(kernel, mean, observed)

    def _systems(self, statistics: GramStatistics) -> Iterator[System]:
        """Systems with the output scale applied."""
        factor = self.covar_module.output_factor().double()[..., 0, 0]
        mean = coefficients(self.mean_module, factor.device)
        for c, system in enumerate(self._observations.systems(statistics, mean)):
            scale = factor if factor.dim() == 0 else factor[c]
            grams = [(scale.square() * coefficient, matrix) for coefficient, matrix in system.grams]
            yield system._replace(grams=grams, cross=scale * system.cross)

    def weight_posterior(self) -> WeightPosterior | KroneckerPosterior:
        """The posterior of the weights; a batch of C of them for a Dirichlet likelihood.

        For separable kernels with complete rows of one noise it is found from two small spectra.

        It is cached, without gradients in the parameters unless ``gpytorch.settings.detach_test_caches`` is off.

        :raises ValueError: where the model is not fitted, or stale.
        """
        self._fitted()
        tracks = gpytorch.settings.detach_test_caches.off() and torch.is_grad_enabled()
        state = {name: p.detach() for name, p in self.named_parameters()} | self._feature_state()
        state |= {name: b for name, b in self.covar_module.named_buffers() if "task_covar_module" in name}
        if self._observations.is_batched:
            state["alpha_epsilon"] = torch.tensor(self.likelihood.alpha_epsilon)
        if not tracks and self._posterior is not None:
            known = self._posterior[0]
            if known.keys() == state.keys() and all(_same(known[name], state[name]) for name in state):
                return self._posterior[1]
        with torch.inference_mode(False), torch.set_grad_enabled(tracks):
            posterior = self._new_posterior(tracks)
        if not tracks:
            self._posterior = ({name: value.clone() for name, value in state.items()}, posterior)
            if self._some_rows is not None:
                self._check_residuals(self._some_rows, posterior)
        return posterior

    def _and_some_of(self, known: SomeRows | None, x: Tensor, y: Tensor) -> SomeRows | None:
        """Rows of complex targets on which the residuals will be looked at."""
        if not self._observations.is_complex:
            return None
        return SomeRows.of(x, y) if known is None else known.and_some_of(x, y)

    def _check_residuals(self, rows: SomeRows, posterior: Any) -> None:
        """Warn where the noise of complex targets does not look circular."""
        x, y = (values.to(posterior.mean.device) for values in rows)
        snapshot = self._snapshots.take(self.covar_module, self.mean_module)
        noise = float(self.likelihood.noise.detach())
        with torch.no_grad():
            residuals = y - _values(snapshot, True, posterior.mean, x)
            root = posterior.covariance_root(_scaled_features(snapshot.kernel, x))
        warn_of_impropriety(residuals, root.abs().square().sum(-1) / noise, noise, stacklevel=4)

    def _new_posterior(self, tracks: bool) -> WeightPosterior | KroneckerPosterior:
        outputs = self._outputs()
        if outputs is not None:
            return outputs.posterior(self.statistics, tracks)
        pairs = ((system.grams, system.cross) for system in self._systems(self.statistics))
        if self._observations.is_batched:
            return WeightPosterior.stacked(pairs, self._observations.num_systems)
        return WeightPosterior(*next(pairs))

    def posterior(self, x: Tensor, operator: Operator | None = None) -> MultivariateNormal | ComplexNormal:
        """The posterior of the function at inputs, without noise: ``likelihood(model.posterior(x))`` adds it.

        Means and variances are computed in chunks of rows; the N x N covariance is formed only where it is asked for.
        Variances are the true diagonal of the covariance, without GPyTorch's smallest one. Where the features are those
        of a truncated series, the diagonal includes the prior variance that they lack
        (:meth:`rfgp.kernels.FeatureKernel.residual_variance`), independently between points and outputs. The
        distribution keeps its values, whatever happens to the model or to ``x`` later.

        :param x: inputs (..., N, d); (N, d) for a Dirichlet likelihood or several outputs.
        :param operator: a linear operator of :mod:`rfgp.operators` on the field of an operator-valued kernel, whose
            result is predicted in place of the field: its divergence, vorticity, potential, gradients and so on. The
            likelihood knows the noise of the outputs, and not that of these.
        :returns: a GPyTorch distribution, with batch shape (C,) for a Dirichlet likelihood, and a
            MultitaskMultivariateNormal for several outputs; a ComplexNormal for complex targets. It has the dtype of x.
        :raises ValueError: for bad inputs, or where the model is not fitted, or stale.
        """
        self._fitted()
        _checks.finite(_checks.inputs(x).detach())
        _checks.same_kind(x, reference(self.covar_module, x), "x", "the kernel")
        if operator is not None and not isinstance(operator, Operator):
            raise ValueError(f"expected an operator of rfgp.operators, got {operator!r}; such as Divergence()")
        if self._observations.is_batched and x.dim() != 2:
            raise ValueError(
                f"expected inputs of shape (N, d) for class labels, got {tuple(x.shape)}; flatten the batch"
            )
        posterior: Any = self.weight_posterior()
        snapshot = self._snapshots.take(self.covar_module, self.mean_module)
        outputs = self._outputs(snapshot)
        if outputs is not None:
            return outputs.distribution(x, posterior, operator)
        no_operator(operator)
        kernel = snapshot.kernel
        mean = _values(snapshot, self._observations.is_complex, posterior.mean, x)
        residual = kernel.residual_variance(x)
        if self._observations.is_complex:
            root = posterior.covariance_root(_scaled_features(kernel, x))
            return ComplexNormal(mean, covariance_root=root, diagonal=residual)
        if kernel.is_complex:
            root = posterior.covariance_root(_scaled_features(kernel, x))
            covariance: LinearOperator = RootLinearOperator(torch.cat([root.real, root.imag], dim=-1).to(x.dtype))
        else:
            factor = kernel.output_factor().double()
            features = functools.partial(scalar_features, kernel, torch.is_grad_enabled())
            covariance = WeightSpaceCovariance(x.clone(), posterior.factor, factor, features)
        return MultivariateNormal(mean, plus_residual(covariance, residual))

    def log_marginal_likelihood(self) -> Tensor:
        r"""The log evidence of the training data, summed over classes; differentiable in all parameters.

        .. math:: \log p(y) = -\tfrac12 \big(r^\top S^{-1} r - h^\top B^{-1} h + \log|B| + \log|S| + N \log 2 \pi\big),
            \qquad h = \Phi^\top S^{-1} r

        and twice that with pi in place of 2 pi for complex targets. With gradients enabled, fit and evaluate anew for
        every step; those of the kernel's parameters run back to the fit.

        :returns: a float64 scalar, not divided by N.
        :raises ValueError: for real labels with complex features, where there is no evidence; where the model is not
            fitted, or stale.

        Source: T B.3; identity 1 of the errata for class labels.
        """
        self._fitted()
        if self.covar_module.is_complex and not self._observations.is_complex:
            raise ValueError(
                "expected real features for the evidence of real labels, got complex ones, whose real part has none; "
                "use the :ctr form of the method"
            )
        outputs = self._outputs()
        if outputs is not None:
            return outputs.log_marginal_likelihood(self.statistics, self._rows)
        statistics, data = self.statistics, None if self._observations.is_batched else self._rows
        factor = 1.0 if self._observations.is_complex else 0.5
        constant = statistics.num_rows * self._observations.constant
        if data is not None and len(data.x) <= self._num_features(statistics):
            return -factor * (self._dense_terms(data) + constant)
        total = torch.zeros((), dtype=torch.float64, device=statistics.count.device)
        for system in self._systems(statistics):
            matrix = precision_matrix(system.grams)
            log_det, explained = log_determinant_and_quadratic(matrix, system.cross)
            quadratic = system.quadratic - explained
            if data is not None and is_ill_conditioned(matrix.diagonal()):
                quadratic = self._quadratic_from_residuals(statistics, data, system)
            total = total - factor * (quadratic + log_det + system.log_noise + constant)
        return total

    def _mean(self, x: Tensor) -> Tensor:
        """The mean function of one output at (N, d), (N, 1), in float64."""
        return (basis(self.mean_module, x).double() @ coefficients(self.mean_module, x.device)).unsqueeze(-1)

    def _dense_terms(self, data: TrainingRows) -> Tensor:
        """Quadratic form and log determinant of rows that are no more than the features, from their covariance."""
        features = _scaled_features(self.covar_module, data.x)
        residual = data.y.to(accurate_dtype(data.y.dtype)).unsqueeze(-1) - self._mean(data.x)
        exact = features.to(accurate_dtype(features.dtype))
        quadratic, log_det = dense_evidence(exact, self._observations.noise(data.rows), residual)
        return quadratic.sum() + log_det

    def _quadratic_from_residuals(self, statistics: GramStatistics, data: TrainingRows, system: System) -> Tensor:
        """The quadratic form from one more pass over the rows."""
        scale = self.covar_module.output_factor().double()
        with torch.no_grad():
            posterior = WeightPosterior(system.grams, system.cross)
        return ResidualPass(self.covar_module, data, self._mean).quadratic(
            statistics,
            posterior,
            lambda weights: scale * weights,
            lambda sums: next(self._systems(sums)).cross,
            lambda sums: next(self._systems(sums)).quadratic,
        )

    def sample_functions(self, num_functions: int) -> list[Callable[[Tensor], Tensor]]:
        """Draws of functions from the posterior, each of which can be evaluated anywhere.

        They keep their values, whatever happens to the model later. They are functions of the features: they do not
        carry the variance that :meth:`posterior` adds where features of a truncated series lack some.

        :param num_functions: the number of draws.
        :returns: callables from (..., N, d) to (..., N), or to (..., N, T) for several outputs, or from (N, d) to
            (C, N) for a Dirichlet likelihood.
        :raises ValueError: where the model is not fitted, or stale.
        """
        count = _checks.positive_integer("num_functions", num_functions)
        posterior = self.weight_posterior()
        deviations = posterior.deviations(count)
        if self._observations.is_complex and not deviations.is_complex():
            deviations = torch.complex(deviations, posterior.deviations(count)) * 0.5**0.5
        elif self.covar_module.is_complex and not self._observations.is_complex:
            deviations = deviations * 2.0**0.5
        snapshot = self._snapshots.take(self.covar_module, self.mean_module)
        outputs = self._outputs(snapshot)
        is_complex = self._observations.is_complex
        values = functools.partial(_values, snapshot, is_complex) if outputs is None else outputs.function
        draws = (posterior.mean + deviations).split(1, dim=-1)
        return [FrozenFunction(functools.partial(values, weights.clone())) for weights in draws]

    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new random weights; the statistics are then stale.

        :param generator: a CPU generator; PyTorch's default one where it is None.
        """
        self.covar_module.resample(generator)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: all but the rows, which belong to the graph of the gradients."""
        return {**self.__dict__, "_rows": None}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn)
        if self._statistics is not None:
            device = reference(self.covar_module, self._statistics.count).device
            self._statistics.to(device)
            self._fitted_with = {name: value.to(device) for name, value in self._fitted_with.items()}
            self._posterior = None
        self._rows = None
        return self

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As for every module, but all or nothing.

        :raises ValueError: for the state of another model; this one stays as it was.
        """
        with self._all_or_nothing():
            own, rest = _split(state_dict, "")
            if strict and not own:
                raise ValueError("expected the state of a WeightSpaceGP, got another one; pass its state_dict()")
            self._check_classes(own)
            _state.check(self, rest, strict=strict)
            return super().load_state_dict(state_dict, strict, assign)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        alpha = getattr(self.likelihood, "alpha_epsilon", None)
        own = {
            "draws": torch.tensor(self.covar_module.version),
            "num_classes": torch.tensor(getattr(self.likelihood, "num_classes", 0)),
            "alpha_epsilon": torch.tensor(math.nan if alpha is None else float(alpha), dtype=torch.float64),
            "patterns": torch.tensor(self._patterns, dtype=torch.bool),
        }
        sums = {} if self._statistics is None else self._statistics.state_dict()
        own |= {_SUMS + name: value for name, value in sums.items()}
        own |= {_FITTED + name: value.clone() for name, value in self._fitted_with.items()}
        destination.update({prefix + name: value for name, value in own.items()})

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        own, rest = _split(state_dict, prefix)
        with self._all_or_nothing():
            self._check_classes(own)
            _state.check(self, rest, prefix)
            super()._load_from_state_dict(rest, prefix, *args)
            if own:
                self._set_own_state(own)

    def _check_classes(self, own: dict[str, Tensor]) -> None:
        classes = getattr(self.likelihood, "num_classes", 0)
        if own and int(own["num_classes"]) != classes:
            raise ValueError(f"expected the state of a model with {classes} classes, got {int(own['num_classes'])}")

    def _set_own_state(self, own: dict[str, Tensor]) -> None:
        """Take over the part of a state that belongs to no part of the model, or raise before anything changes."""
        saved = {name.removeprefix(_SUMS): value for name, value in own.items() if name.startswith(_SUMS)}
        self._patterns[:] = [tuple(pattern) for pattern in own["patterns"].tolist()]
        statistics = GramStatistics.from_state_dict(saved) if saved else None
        if statistics is not None:
            self._check_statistics(statistics)
            statistics.to(next(self.covar_module.parameters()).device)
        alpha = float(own["alpha_epsilon"])
        if hasattr(self.likelihood, "set_alpha_epsilon"):
            self.likelihood.set_alpha_epsilon(alpha)
        elif not math.isnan(alpha):
            self.likelihood.alpha_epsilon = alpha
        self._statistics = statistics
        self._fitted_with = {n.removeprefix(_FITTED): v.clone() for n, v in own.items() if n.startswith(_FITTED)}
        if statistics is not None:
            self._draws_since_fit = int(own["draws"]) - int(self._fitted_with[_WEIGHTS])
        self._posterior = None
        self._some_rows = None
        self._rows = None
        self.training_data = []


def _split(state: Mapping[str, Any], prefix: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What belongs to no part of the model in a state, without the prefix, and all else.

    :raises ValueError: where only some of them are there, or one is no tensor.
    """
    names = [prefix + name for name in _ALWAYS]
    own = {k: v for k, v in state.items() if k in names or k.startswith((prefix + _SUMS, prefix + _FITTED))}
    missing = [name for name in names if name not in own]
    if own and (missing or not all(isinstance(value, Tensor) for value in own.values())):
        raise ValueError(
            f"expected tensors for {', '.join(names)} beside the statistics, got a state without some; save it again"
        )
    return {k.removeprefix(prefix): v for k, v in own.items()}, {k: v for k, v in state.items() if k not in own}


def _after_loading(model: WeightSpaceGP, _: Any) -> None:
    """Weights that were loaded with their statistics count as the draw that the statistics were computed with."""
    if model._draws_since_fit is not None:
        model._fitted_with[_WEIGHTS] = torch.tensor(model.covar_module.version - model._draws_since_fit)
        model._draws_since_fit = None


def _scaled_features(kernel: Any, x: Tensor) -> Tensor:
    features: Tensor = kernel.scalar_features(x) * kernel.output_factor()
    return features


def _values(snapshot: Snapshot, is_complex: bool, weights: Tensor, x: Tensor) -> Tensor:
    """The function of weights (..., D, 1) at x (..., N, d): (..., N), of the dtype of x, or complex."""
    _checks.finite(_checks.inputs(x).detach())
    kernel, mean = snapshot
    scaled = weights * kernel.output_factor().double()
    chunks = row_chunks(x.shape[-2], scaled.shape[-2])
    parts = [feature_product(kernel.scalar_features(x[..., part, :]), scaled) for part in chunks]
    values = _checks.no_overflow(torch.cat(parts, dim=-2).squeeze(-1), x)
    if is_complex:
        values = values.to(torch.complex128)
        dtype = torch.complex64 if x.dtype == torch.float32 else torch.complex128
    else:
        values, dtype = values.real if values.is_complex() else values, x.dtype
    result: Tensor = (values + mean(x)).to(dtype)
    return result


def _same(a: Tensor, b: Tensor | None) -> bool:
    return b is not None and a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b.to(a.device))


def _unpack(batch: Any) -> _Batch:
    if not isinstance(batch, list | tuple) or len(batch) not in (2, 3):
        raise ValueError(
            f"expected batches (x, y) or (x, y, noise) from the loader, got {type(batch).__name__}; yield pairs"
        )
    x, y, *noise = batch
    return x, y, noise[0] if noise else None
