"""Gaussian-process regression and classification in weight space, from sufficient statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import gpytorch
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean, ZeroMean
from torch import Tensor

from .. import _checks, _state
from ..distributions import ComplexNormal, MultivariateNormal
from ..features.random_weights import weights_kept_on_error
from ..inference import (
    GramStatistics,
    KroneckerPosterior,
    NoiseModel,
    OutputFactor,
    Regression,
    Rows,
    TrainingRows,
    WeightPosterior,
    accumulate,
    mixture,
    noise_model,
)
from ..inference.local import LocalRegression, LocalRows, WhitenedNoise
from ..inference.mean_basis import basis, check_mean, check_output_mean
from ..inference.regression import check_size
from ..inference.training_residual import RESIDUALS
from ..kernels import with_features
from ..kernels.input_units import input_units
from ..kernels.map_holder import maps_kept_on_error
from ..kernels.random_feature_kernel import check_no_operator
from ..kernels.reference_tensor import reference_tensor
from ..kernels.width_warning import warn_of_width
from ..linalg import product_dtype, sample_rows
from ..operators import Operator
from .batches import Batch, batches, joined
from .impropriety import SomeRows, warn_of_impropriety
from .mixture import FurtherDraws, Sums, check_draws, functions_of_random_draws
from .record import WEIGHTS, Record, WeightsCode
from .snapshot import FrozenFunction, Snapshots
from .weight_space_checks import (
    check_local_kernel,
    check_output_kernel,
    check_residual,
    check_scalar_kernel,
    check_statistics,
)
from .weight_space_state import Fitted, SavedState


class WeightSpaceGP(gpytorch.Module):
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
    :param mean: ZeroMean, ConstantMean or LinearMean, with a batch shape (C,) for classes if wanted; for several
        outputs a MultitaskMean of these too; default: ZeroMean.
    :param block_size: where it is given, what the features leave over is modeled too, inside blocks of at most so many
        near rows, at O(N (B^2 + B D)) more (PIC); for landmarks of one output with Gaussian or fixed noise. The model
        then keeps the training rows, for predictions and in its state. Default: no blocks.
    :param num_neighbors: with blocks, predictions are given the residual of so many of the nearest training rows;
        None for the block that a point lies in, which is the model of the evidence.
    :param residual: what training makes of the residual variance ``r(x)`` that features of one output lack: "none",
        the evidence of the features alone; "vfe", the variational bound, which subtracts the sum of r(x_i)/(2 s_i);
        "fitc", noise of each row. Predictions add r(x) in all of them.
    :param num_draws: the number J of independent draws of the random weights, each with D features and statistics of
        its own, at J N D^2 in all: error bars then show how much the draws differ. Predictions have the moments of the
        mixture: the mean of the means, and the mean of the covariances plus the covariance of the means. The seeds of
        the further draws follow from the weights of the kernel, which are the first. Default: 1.
    :param product_dtype: the dtype of Gram products; default: float64, or float32 for float32 features where the
        smallest noise exceeds 1 % of the largest prior variance. Sums are in float64.
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
        block_size: int | None = None,
        num_neighbors: int | None = 64,
        residual: str = "none",
        num_draws: int = 1,
        product_dtype: torch.dtype | None = None,
        keep_data: bool = False,
    ) -> None:
        super().__init__()
        self.covar_module = with_features(kernel)
        self.likelihood = likelihood
        self.mean_module = check_mean(ZeroMean() if mean is None else mean)
        self.product_dtype = None if product_dtype is None else _checks.product_dtype(product_dtype)
        self.keep_data = bool(keep_data)
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
        self._posterior: tuple[Record, WeightPosterior | KroneckerPosterior] | None = None
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
    def statistics(self) -> GramStatistics:
        """The sums over the training data; those of the first draw where there are several.

        :raises ValueError: before the first fit, or where parameters or weights have changed since.
        """
        fitted = self._known()
        fitted.record.check(self._feature_state(), "the statistics were computed")
        return fitted.statistics

    @property
    def draw_statistics(self) -> list[GramStatistics]:
        """The sums over the training data for every draw of the weights, as :meth:`load_statistics` takes them.

        :raises ValueError: as for ``statistics``.
        """
        return [self.statistics, *(draw.statistics for draw in self.further_draws.of(self))]

    def _single_draw(self, kernel: Any) -> WeightSpaceGP:
        """A model of one draw of the weights with the likelihood and the mean of this one, without data.

        :param kernel: a kernel with the parameters of this one, and with weights of its own.
        """
        options: dict[str, Any] = {"residual": self.residual, "product_dtype": self.product_dtype}
        model = WeightSpaceGP(kernel, self.likelihood, self.mean_module, **options)
        model._known_noise = self._known_noise
        return model

    def _known(self) -> Fitted:
        """What was fitted, stale or not."""
        if self._fitted is None:
            raise ValueError("expected a fitted model, got one without data; call fit(x, y) first")
        return self._fitted

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
        is_all = isinstance(x, Tensor)
        total: GramStatistics | None = None
        further: Sums = {}
        some: SomeRows | None = None
        data: list[Batch] = []
        if self.block_size is not None:
            return self._fit_blocks(list(batches(x, y, noise)), is_all)
        with self._nothing_lost_on_error():
            for batch in batches(x, y, noise):
                total, rows = self._add(total, *batch, is_all=is_all)
                further = self.further_draws.add(self, further, batch, is_all)
                some = self._and_some_of(some, *batch[:2])
                if self.keep_data:
                    data.append(batch)
            if total is None:
                raise ValueError("expected at least one batch from the loader, got none; check that it is not used up")
            keeps_rows = is_all and torch.is_grad_enabled() and not self._contains_noise
            training_rows = TrainingRows(*batch[:2], rows) if keeps_rows else None
            self.further_draws.set(further, training_rows)
            self._set(total, data, some)
            self._rows = training_rows
        return self

    def update(self, x: Tensor, y: Tensor, noise: Tensor | None = None) -> Self:
        """Add rows to the statistics; the result equals a fit to all rows.

        :param x: inputs (N, d).
        :param y: targets (N,), integer labels, or (N, T) with NaN for missing outputs.
        :param noise: noise variances of the shape of y, for a fixed-noise likelihood.
        :returns: the model.
        :raises ValueError: for bad data, or stale statistics; the model stays as it was.
        """
        is_new = self._fitted is None
        known: Sequence[GramStatistics | None] = [None] * self.num_draws if is_new else self.draw_statistics
        if self.block_size is not None:
            return self._fit_blocks([(x, y, noise)], False) if is_new else self._update_blocks(x, y, noise)
        data = [*self.training_data, (x, y, noise)] if is_new or self.training_data else []
        with self._nothing_lost_on_error():
            added, _ = self._add(None, x, y, noise, is_all=False)
            further = self.further_draws.add(self, {}, (x, y, noise), is_all=False)
            some = self._and_some_of(None if is_new else self._some_rows, x, y)
            total, *others = map(self._noise.merged, known, [added, *further.values()])
            self.further_draws.set(dict(zip(further, others, strict=True)))
            self._set(total, data, some)
        return self

    def _fit_blocks(self, parts: list[Batch], is_all: bool) -> Self:
        """:meth:`fit` to rows in blocks, which are all taken together first."""
        with self._nothing_lost_on_error():
            x, y, noise = joined(parts)
            rows = self._checked_rows(x, y, noise, is_all)
            known = None if self._fitted is None else self._fitted.local
            units, size = input_units(self.covar_module.exact_kernel, x), self.block_size or len(x)
            local = LocalRows.of(x, *self._columns_and_variances(rows), units, size, known)
            total = local.statistics(self.covar_module, self._product_dtype(x, rows), rows.center)
            self._set(_finite(total, x), parts, None, local.detached())
        return self

    def _update_blocks(self, x: Tensor, y: Tensor, noise: Tensor | None) -> Self:
        """:meth:`update` of rows in blocks: those that the new rows fall into are computed again."""
        statistics, local = self.statistics, self._known_rows()
        with self._nothing_lost_on_error():
            rows = self._checked_rows(x, y, noise, is_all=False)
            added = x, *self._columns_and_variances(rows)
            total, local = local.updated(self.covar_module, statistics, self._product_dtype(x, rows), added)
            self._set(_finite(total, x), [*self.training_data, (x, y, noise)], None, local.detached())
        return self

    def _known_rows(self) -> LocalRows:
        local = self._known().local
        if local is None:
            raise ValueError("expected a model fitted in blocks, got another; call fit(x, y)")
        return local

    def _columns_and_variances(self, rows: Rows) -> tuple[Tensor, Tensor]:
        return rows.targets.double(), self._noise.variances(rows)

    def load_statistics(self, statistics: GramStatistics | Sequence[GramStatistics]) -> Self:
        """Take statistics from elsewhere, such as merged ones of several shards, in place of a fit.

        They count as computed with the present parameters of the kernel and, for fixed noise, of the likelihood, and
        with the present random weights: equal seeds and parameters are up to the caller, and so is the center of the
        inputs that :func:`rfgp.fit` stores in the kernel. Loading the ``state_dict`` of one model into the others makes
        all of these equal; do it before these are fitted to their shards.

        :param statistics: those of models with the same kernel, likelihood and mean; for several draws of the weights
            those of every draw, in the order of ``draw_statistics``; they are copied.
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
        given: list[Any] = list(statistics) if isinstance(statistics, list | tuple) else [statistics]
        if len(given) != self.num_draws or not all(isinstance(sums, GramStatistics) for sums in given):
            got = ", ".join(type(sums).__name__ for sums in given)
            raise ValueError(
                f"expected GramStatistics for each of num_draws={self.num_draws}, got {got}; take model.draw_statistics"
            )
        if self.block_size is not None:
            raise ValueError(
                "expected a model without blocks for statistics from elsewhere, got one with them, which needs the "
                "rows; call fit(x, y), or make it without block_size"
            )
        with self._nothing_lost_on_error():
            for sums in given:
                check_statistics(sums, self.covar_module, self.mean_module, self._noise, self._has_trace)
            device = next(self.covar_module.parameters()).device
            total, *others = (GramStatistics.from_state_dict(sums.state_dict()).to(device) for sums in given)
            self.further_draws.set(dict(zip(self.further_draws.begin(self), others, strict=True)))
            self._set(total, [], None)
        return self

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

    def _set(
        self, statistics: GramStatistics, data: list[Batch], some: SomeRows | None, local: LocalRows | None = None
    ) -> None:
        factor = self.covar_module.output_factor()
        width = factor.num_columns if isinstance(factor, OutputFactor) else statistics.num_features
        values = self._noise.num_values(statistics)
        if width > values:
            warn_of_width(self.covar_module, f"{width} features exceed the {int(values)} training rows", stacklevel=3)
        self._fitted = Fitted(statistics, Record(self._feature_state()), local)
        self._posterior = None
        self._some_rows = some
        self._rows = None
        self.training_data = data if self.keep_data else []

    def _add(
        self, total: GramStatistics | None, x: Tensor, y: Tensor, noise: Tensor | None, is_all: bool
    ) -> tuple[GramStatistics, Rows]:
        """The statistics with more rows, and what these added."""
        rows = self._checked_rows(x, y, noise, is_all)
        residual = RESIDUALS[self.residual]
        if residual is not None and self.covar_module.residual_variance(x[:1].detach()) is None:
            raise ValueError(
                "expected features that leave variance over for residual, such as landmarks or a truncated series, got "
                'others, which estimate the whole kernel; use residual="none"'
            )
        known = rows if residual is None else residual.prepared(rows, self._noise.variances(rows))
        dtype = self._product_dtype(x, rows)
        total = accumulate(self.covar_module, self._noise, x, known, dtype, total, residual)
        return _finite(total, x), rows

    def _checked_rows(self, x: Tensor, y: Tensor, noise: Tensor | None, is_all: bool) -> Rows:
        """Checked rows as the noise model sees them."""
        _checks.finite(_checks.inputs(x).detach())
        if x.dim() != 2:
            raise ValueError(f"expected training inputs of shape (N, d), got {tuple(x.shape)}; fit one model per batch")
        _checks.same_kind(x, reference_tensor(self.covar_module, x), "x", "the kernel")
        if self.covar_module.has_output_factor:
            with torch.no_grad():
                self.covar_module.scalar_features(x[:1])
        rows = self._noise.rows(x, y, noise, basis(self.mean_module, x), is_all)
        if self.covar_module.has_output_factor:
            check_size(self.covar_module.output_factor(), rows.num_groups)
        return rows

    def _product_dtype(self, x: Tensor, rows: Rows) -> torch.dtype:
        if self.product_dtype is not None:
            return self.product_dtype
        return product_dtype(x.dtype, self._noise.smallest(rows), lambda: self._largest_variance(x))

    @torch.no_grad()
    def _largest_variance(self, x: Tensor) -> float:
        """The largest prior variance at some of the inputs: evenly spaced ones, and the one farthest from zero."""
        farthest = x[x.square().sum(-1).argmax()]
        features = self.covar_module.scalar_features(torch.cat([sample_rows(x), farthest.unsqueeze(0)]))
        return self._regression().factor().largest_square(features)

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
        modules = (self.covar_module, self.mean_module)
        parts = self._snapshots.take(*modules) if is_frozen else modules
        noise = WhitenedNoise(self._noise) if self._contains_noise else self._noise
        if self._fitted is None or self._fitted.local is None:
            return Regression(*parts, noise, has_trace=self._has_trace)
        return LocalRegression(*parts, noise, self._fitted.local, self.num_neighbors)

    def weight_posterior(self) -> WeightPosterior | KroneckerPosterior:
        """The posterior of the weights, of the first draw; a batch of C of them for a Dirichlet likelihood.

        For separable kernels with complete rows of one noise it is found from two small spectra.

        It is cached, without gradients in the parameters unless ``gpytorch.settings.detach_test_caches`` is off.

        :raises ValueError: where the model is not fitted, or stale.
        """
        self._known()
        tracks = gpytorch.settings.detach_test_caches.off() and torch.is_grad_enabled()
        state = {name: p.detach() for name, p in self.named_parameters()} | self._feature_state()
        state |= {name: b for name, b in self.covar_module.named_buffers() if "task_covar_module" in name}
        if self._noise.is_batched:
            state["alpha_epsilon"] = torch.tensor(self.likelihood.alpha_epsilon)
        if not tracks and self._posterior is not None and self._posterior[0].is_of(state):
            return self._posterior[1]
        with torch.inference_mode(False), torch.set_grad_enabled(tracks):
            posterior = self._regression().posterior(self.statistics, tracks)
        if not tracks:
            self._posterior = Record(state), posterior
            if self._some_rows is not None:
                self._check_residuals(self._some_rows, posterior)
        return posterior

    def _and_some_of(self, known: SomeRows | None, x: Tensor, y: Tensor) -> SomeRows | None:
        """Rows of complex targets on which the residuals will be looked at."""
        if not self._noise.is_complex:
            return None
        return SomeRows.of(x, y) if known is None else known.and_some_of(x, y)

    def _check_residuals(self, rows: SomeRows, posterior: Any) -> None:
        """Warn where the noise of complex targets does not look circular."""
        x, y = (values.to(posterior.mean.device) for values in rows)
        regression, noise = self._regression(is_frozen=True), float(self.likelihood.noise.detach())
        with torch.no_grad():
            residuals = y - regression.function(posterior.mean, x)
            leverages = regression.leverages(x, posterior) / noise
        warn_of_impropriety(residuals, leverages, noise, stacklevel=4)

    def posterior(self, x: Tensor, operator: Operator | None = None) -> MultivariateNormal | ComplexNormal:
        """The posterior of the function at inputs, without noise: ``likelihood(model.posterior(x))`` adds it.

        Means and variances are computed in chunks of rows; the N x N covariance is formed only where it is asked for.
        Variances are the true diagonal of the covariance, without GPyTorch's smallest one. Where the features are those
        of landmarks or of a truncated series, the diagonal includes the prior variance that they lack
        (:meth:`rfgp.kernels.RandomFeatureKernel.residual_variance`), independently between points and outputs. The
        distribution keeps its values, whatever happens to the model or to ``x`` later.

        :param x: inputs (..., N, d); (N, d) for a Dirichlet likelihood or several outputs.
        :param operator: a linear operator of :mod:`rfgp.operators` on the field of an operator-valued kernel, whose
            result is predicted in place of the field: its divergence, vorticity, potential, gradients and so on. The
            likelihood knows the noise of the outputs, and not that of these.
        :returns: a GPyTorch distribution, with batch shape (C,) for a Dirichlet likelihood, and a
            MultitaskMultivariateNormal for several outputs; a ComplexNormal for complex targets. It has the dtype of x.
        :raises ValueError: for bad inputs, or where the model is not fitted, or stale.
        """
        self._known()
        _checks.finite(_checks.inputs(x).detach())
        _checks.same_kind(x, reference_tensor(self.covar_module, x), "x", "the kernel")
        if operator is not None and not isinstance(operator, Operator):
            raise ValueError(f"expected an operator of rfgp.operators, got {operator!r}; such as Divergence()")
        if not self.covar_module.has_output_factor:
            check_no_operator(operator)
        own = self._regression(is_frozen=True).distribution(x, self.weight_posterior(), operator)
        further = [draw.posterior(x, operator) for draw in self.further_draws.of(self)]
        return mixture([own, *further]) if further else own

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
        self._known()
        if self.covar_module.is_complex and not self._noise.is_complex:
            raise ValueError(
                "expected real features for the evidence of real labels, got complex ones, whose real part has none; "
                "use the :ctr form of the method"
            )
        own = self._regression().log_marginal_likelihood(self.statistics, self._rows)
        further = [draw.log_marginal_likelihood() for draw in self.further_draws.of(self)]
        return torch.stack([own, *further]).mean() if further else own

    def sample_functions(self, num_functions: int) -> list[Callable[[Tensor], Tensor]]:
        """Draws of functions from the posterior, each of which can be evaluated anywhere.

        They keep their values, whatever happens to the model later. They are functions of the features: they do not
        carry the variance that :meth:`posterior` adds where features of landmarks or of a truncated series lack some.
        Of several draws of the weights each function has one that is chosen at random.

        :param num_functions: the number of draws.
        :returns: callables from (..., N, d) to (..., N), or to (..., N, T) for several outputs, or from (N, d) to
            (C, N) for a Dirichlet likelihood.
        :raises ValueError: where the model is not fitted, or stale.
        """
        count = _checks.positive_integer("num_functions", num_functions)
        further = self.further_draws.of(self)
        sources = [self._sample_own_functions, *(draw.sample_functions for draw in further)]
        return functions_of_random_draws(sources, count) if further else self._sample_own_functions(count)

    def _sample_own_functions(self, count: int) -> list[Callable[[Tensor], Tensor]]:
        """Draws of functions with the weights of the first draw."""
        posterior = self.weight_posterior()
        deviations = posterior.deviations(count)
        if self._noise.is_complex and not deviations.is_complex():
            deviations = torch.complex(deviations, posterior.deviations(count)) * 0.5**0.5
        elif self.covar_module.is_complex and not self._noise.is_complex:
            deviations = deviations * 2.0**0.5
        regression = self._regression(is_frozen=True)
        draws = (posterior.mean + deviations).split(1, dim=-1)
        return [FrozenFunction(regression.draw(weights.clone())) for weights in draws]

    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new random weights; the statistics are then stale.

        :param generator: a CPU generator; default: PyTorch's.
        """
        with weights_kept_on_error(self):
            self.covar_module.resample(generator)
            self.further_draws.resample(generator)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: all but the rows, which belong to the graph of the gradients."""
        return {**self.__dict__, "_rows": None}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn)
        if self._fitted is not None:
            device = reference_tensor(self.covar_module, self._fitted.statistics.count).device
            self._fitted = self._fitted.to(device)
            self._posterior = None
        self._rows = None
        for draw in self.further_draws.of(self):
            draw._apply(fn)
        return self

    def prepare_for(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Make the maps of the further draws that a state has, or raise a ValueError where it has more or fewer."""
        if self.num_draws > 1 and f"{prefix}covar_module._extra_state" in state:
            _state.check(self.covar_module, state, f"{prefix}covar_module.")
            self.further_draws.prepare(self.covar_module, state, f"{prefix}further_draws.")

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a state as torch modules do; on an error the model stays as it was.

        :raises ValueError: for the state of another model; this one stays as it was.
        """
        with self._nothing_lost_on_error():
            saved, rest = SavedState.split(state_dict)
            if saved is not None:
                saved.check(self.likelihood, self.num_draws)
            elif strict:
                raise ValueError("expected the state of a WeightSpaceGP, got another one; pass its state_dict()")
            _state.check(self, rest, strict=strict)
            return super().load_state_dict(state_dict, strict, assign)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.update(SavedState.of(self.likelihood, self._patterns, self._all_fitted()).named(prefix))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        saved, rest = SavedState.split(state_dict, prefix)
        with self._nothing_lost_on_error():
            if saved is not None:
                saved.check(self.likelihood, self.num_draws)
            _state.check(self, rest, prefix)
            super()._load_from_state_dict(rest, prefix, *args)
            if saved is not None:
                self._restore(saved)

    def _all_fitted(self) -> list[Fitted]:
        """What was fitted, for every draw of the weights."""
        models = (self, *self.further_draws.of(self))
        return [model._fitted for model in models if model._fitted is not None]

    def _restore(self, saved: SavedState) -> None:
        """Take over what was saved beside the parts of the model, or raise before anything changes."""
        if saved.fitted:
            self._noise.patterns = saved.patterns
            for fitted in saved.fitted:
                check_statistics(
                    fitted.statistics, self.covar_module, self.mean_module, self._noise, self.residual == "vfe"
                )
                fitted.to(next(self.covar_module.parameters()).device)
        elif self._known_noise is not None:
            self._known_noise.patterns = ()
        saved.set_alpha_epsilon(self.likelihood)
        self._fitted, self._posterior, self._some_rows, self._rows = next(iter(saved.fitted), None), None, None, None
        self.further_draws.restore(saved.fitted[1:])
        self.training_data = []


def _finite(statistics: GramStatistics, x: Tensor) -> GramStatistics:
    """The statistics, or a ValueError where some are not finite."""
    if not statistics.is_finite:
        raise _checks.overflow(x)
    return statistics
