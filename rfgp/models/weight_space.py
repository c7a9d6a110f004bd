"""Gaussian-process regression and classification in weight space, from sufficient statistics."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean, LinearMean, Mean, MultitaskMean, ZeroMean
from linear_operator.operators import RootLinearOperator
from torch import Tensor

from .. import _checks
from ..distributions import ComplexNormal
from ..kernels import LinearlyObservedKernel
from ..kernels.approximate import with_features
from ..kernels.feature_kernel import all_or_nothing, no_operator
from ..kernels.feature_operator import FLOAT32_PRODUCT_NOISE
from ..kronecker import KroneckerPosterior
from ..linalg import log_determinant_and_quadratic, row_chunks
from ..operators import Operator
from ..output_factor import OutputFactor
from ..posterior import WeightPosterior, WeightSpaceCovariance, feature_product, precision_matrix
from ..statistics import GramStatistics
from .accumulate import accumulate, merged
from .mean_basis import basis, batch_shape, check_mean, check_output_mean, coefficients
from .observations import Observations, Rows, System, observations
from .output_observations import OutputObservations, output_observations
from .output_regression import OutputRegression, check_size, scalar_features

_WEIGHTS = "set of random weights"


class WeightSpaceGP(torch.nn.Module):
    r"""A Gaussian process with random features, trained and evaluated from sums over the data at O(N D^2).

    .. math:: B = I + \Phi^H S^{-1} \Phi, \qquad E f_* = \Phi_* B^{-1} \Phi^H S^{-1} y, \qquad
        \mathrm{Cov} f_* = \Phi_* B^{-1} \Phi_*^H

    It takes the same kernel and likelihood objects as GPyTorch's ExactGP. The statistics are additive: ``update`` adds
    rows, and the result equals a fit to all of them. For real labels and complex features the posterior is the real
    part of the complex one, which has no evidence; complex targets take a ComplexGaussianLikelihood.

    :param kernel: a kernel made by :func:`rfgp.approximate`, or a GPyTorch ScaleKernel around one.
    :param likelihood: a Gaussian, fixed-noise, complex Gaussian or Dirichlet classification likelihood; for a kernel of
        several outputs a multitask Gaussian or multitask fixed-noise one.
    :param mean: ZeroMean (where it is None), ConstantMean or LinearMean, with a batch shape (C,) for classes if wanted;
        for several outputs a MultitaskMean of these too.
    :param product_dtype: the dtype of Gram products; where it is None, float64, or float32 for float32 features where
        the smallest noise exceeds 1e-2. Sums are in float64.
    :raises ValueError: for a kernel without features, or another likelihood or mean.

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
    ) -> None:
        super().__init__()
        self.covar_module = with_features(kernel)
        self.likelihood = likelihood
        self.mean_module = check_mean(ZeroMean() if mean is None else mean)
        self.product_dtype = product_dtype
        self._patterns: list[tuple[bool, ...]] = []
        self._known_observations = None if self.covar_module.has_output_factor else observations(likelihood)
        self._check_batch_shapes()
        self._statistics: GramStatistics | None = None
        self._fitted_with: dict[str, Tensor] = {}
        self._posterior: tuple[dict[str, Tensor], WeightPosterior | KroneckerPosterior] | None = None
        self.training_data: list[tuple[Tensor, Tensor, Tensor | None]] = []
        self._draws_since_fit: int | None = None
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
                sums = self._sums(x, y, noise, is_all=True)
            self._set(sums, [(x, y, noise)])
            return self
        if y is not None or noise is not None:
            raise ValueError(
                f"expected a torch.Tensor for x beside y, got {type(x).__name__}; use torch.as_tensor, or give batches "
                "(x, y) or (x, y, noise) from a loader alone"
            )
        if not isinstance(x, Iterable):
            raise ValueError(f"expected inputs x, or batches from a loader, got {type(x).__name__}; call fit(x, y)")
        total = None
        with self._all_or_nothing():
            for batch in x:
                total = self._sums(*_unpack(batch), is_all=False, sums=total)
        if total is None:
            raise ValueError("expected at least one batch from the loader, got none; check that it is not used up")
        self._set(total, [])
        return self

    def update(self, x: Tensor, y: Tensor, noise: Tensor | None = None) -> Self:
        """Add rows to the statistics; the result equals a fit to all rows.

        :param x: inputs (N, d).
        :param y: targets (N,), integer labels, or (N, T) with NaN for missing outputs.
        :param noise: noise variances of the shape of y, for a fixed-noise likelihood.
        :returns: the model.
        :raises ValueError: for bad data, or stale statistics; the model stays as it was.
        """
        if self._statistics is None:
            with self._all_or_nothing():
                sums = self._sums(x, y, noise, is_all=False)
            self._set(sums, [(x, y, noise)])
            return self
        known = self.statistics
        with self._all_or_nothing():
            both = merged(self._observations, known, self._sums(x, y, noise, is_all=False))
        data = [*self.training_data, (x, y, noise)] if self.training_data else []
        self._set(both, data)
        return self

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Where rows are refused, forget the map, the outputs and the patterns that were made on the way."""
        observed, patterns = self._known_observations, list(self._patterns)
        try:
            with all_or_nothing(self.covar_module):
                yield
        except ValueError:
            self._known_observations, self._patterns[:] = observed, patterns
            raise

    def _set(self, sums: GramStatistics, data: list[tuple[Tensor, Tensor, Tensor | None]]) -> None:
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
        self.training_data = data

    @staticmethod
    def _num_features(sums: GramStatistics) -> int:
        return sums.cross.shape[-2]

    def _sums(
        self, x: Tensor, y: Tensor, noise: Tensor | None, is_all: bool, sums: GramStatistics | None = None
    ) -> GramStatistics:
        _checks.finite(_checks.inputs(x).detach())
        if x.dim() != 2:
            raise ValueError(f"expected training inputs of shape (N, d), got {tuple(x.shape)}; fit one model per batch")
        _checks.same_kind(x, next(self.covar_module.parameters()), "x", "the kernel")
        if self.covar_module.has_output_factor:
            with torch.no_grad():
                self.covar_module.scalar_features(x[:1])
        rows = self._observations.rows(x, y, noise, basis(self.mean_module, x), is_all)
        if self.covar_module.has_output_factor:
            check_size(self.covar_module.output_factor(), rows.num_groups)
        return accumulate(self.covar_module, self._observations, x, rows, self._product_dtype(x, rows), sums)

    def _product_dtype(self, x: Tensor, rows: Rows) -> torch.dtype:
        if self.product_dtype is not None:
            return self.product_dtype
        if x.dtype != torch.float32:
            return torch.float64
        smallest = self._observations.smallest_noise(rows)
        return torch.float32 if smallest > FLOAT32_PRODUCT_NOISE else torch.float64

    def _feature_state(self) -> dict[str, Tensor]:
        """What the statistics depend on, by name."""
        names = {id(parameter): name for name, parameter in self.covar_module.named_parameters()}
        state = {names[id(p)]: p.detach() for p in self.covar_module.feature_parameters()}
        state |= {name: value.detach() for name, value in self._observations.parameters().items()}
        state[_WEIGHTS] = torch.tensor(self.covar_module.draws)
        return state

    def _outputs(self) -> OutputRegression | None:
        """The regression of several outputs; None for scalar kernels."""
        observed = self._observations
        if not isinstance(observed, OutputObservations):
            return None
        return OutputRegression(self.covar_module, self.mean_module, observed)

    def _systems(self) -> Iterator[System]:
        """Systems with the output scale applied."""
        factor = self.covar_module.output_factor().double()[..., 0, 0]
        mean = coefficients(self.mean_module, factor.device)
        for c, system in enumerate(self._observations.systems(self.statistics, mean)):
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
        with torch.set_grad_enabled(tracks):
            posterior = self._new_posterior(tracks)
        if not tracks:
            self._posterior = ({name: value.clone() for name, value in state.items()}, posterior)
        return posterior

    def _new_posterior(self, tracks: bool) -> WeightPosterior | KroneckerPosterior:
        outputs = self._outputs()
        if outputs is not None:
            return outputs.posterior(self.statistics, tracks)
        pairs = ((system.grams, system.cross) for system in self._systems())
        if self._observations.is_batched:
            return WeightPosterior.stacked(pairs, self._observations.num_systems)
        return WeightPosterior(*next(pairs))

    def posterior(self, x: Tensor, operator: Operator | None = None) -> MultivariateNormal | ComplexNormal:
        """The posterior of the function at inputs, without noise: ``likelihood(model.posterior(x))`` adds it.

        Means and variances are computed in chunks of rows; the N x N covariance is formed only where it is asked for.

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
        _checks.same_kind(x, next(self.covar_module.parameters()), "x", "the kernel")
        if operator is not None and not isinstance(operator, Operator):
            raise ValueError(f"expected an operator of rfgp.operators, got {operator!r}; such as Divergence()")
        if self._observations.is_batched and x.dim() != 2:
            raise ValueError(
                f"expected inputs of shape (N, d) for class labels, got {tuple(x.shape)}; flatten the batch"
            )
        posterior: Any = self.weight_posterior()
        outputs = self._outputs()
        if outputs is not None:
            return outputs.distribution(x, posterior, operator)
        no_operator(operator)
        mean = self._function(x, posterior.mean)
        if self._observations.is_complex:
            return ComplexNormal(mean, covariance_root=posterior.covariance_root(self._scaled_features(x)))
        if self.covar_module.is_complex:
            root = posterior.covariance_root(self._scaled_features(x))
            return MultivariateNormal(mean, RootLinearOperator(torch.cat([root.real, root.imag], dim=-1).to(x.dtype)))
        factor = self.covar_module.output_factor().double()
        features = functools.partial(scalar_features, self.covar_module, torch.is_grad_enabled())
        return MultivariateNormal(mean, WeightSpaceCovariance(x, posterior.factor, factor, features))

    def _scaled_features(self, x: Tensor) -> Tensor:
        return self.covar_module.scalar_features(x) * self.covar_module.output_factor()

    def _function(self, x: Tensor, weights: Tensor) -> Tensor:
        """The function of weights (..., D, 1) at x (..., N, d): values (..., N) or (..., N, T), of the dtype of x."""
        _checks.finite(_checks.inputs(x).detach())
        outputs = self._outputs()
        if outputs is not None:
            return outputs.function(x, weights)
        scaled = weights * self.covar_module.output_factor().double()
        chunks = row_chunks(x.shape[-2], scaled.shape[-2])
        parts = [feature_product(self.covar_module.scalar_features(x[..., part, :]), scaled) for part in chunks]
        values = torch.cat(parts, dim=-2).squeeze(-1)
        if self._observations.is_complex:
            values = values.to(torch.complex128)
            dtype = torch.complex64 if x.dtype == torch.float32 else torch.complex128
        else:
            values, dtype = values.real if values.is_complex() else values, x.dtype
        return (values + self.mean_module(x)).to(dtype)

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
            return outputs.log_marginal_likelihood(self.statistics)
        constant = self._observations.constant
        factor = 1.0 if self._observations.is_complex else 0.5
        total = torch.zeros((), dtype=torch.float64, device=self.statistics.count.device)
        for system in self._systems():
            log_det, explained = log_determinant_and_quadratic(precision_matrix(system.grams), system.cross)
            rows = self.statistics.num_rows * constant
            total = total - factor * (system.quadratic - explained + log_det + system.log_noise + rows)
        return total

    def sample_functions(self, num_functions: int) -> list[Callable[[Tensor], Tensor]]:
        """Draws of functions from the posterior, each of which can be evaluated anywhere.

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
        draws = posterior.mean + deviations
        return [functools.partial(self._function, weights=draws[..., i : i + 1]) for i in range(count)]

    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new random weights; the statistics are then stale.

        :param generator: a CPU generator; PyTorch's default one where it is None.
        """
        self.covar_module.resample(generator)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn)
        if self._statistics is not None:
            device = next(self.covar_module.parameters()).device
            self._statistics.to(device)
            self._fitted_with = {name: value.to(device) for name, value in self._fitted_with.items()}
            self._posterior = None
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """The statistics, what they were computed with, and the classes, for ``state_dict``."""
        return {
            "statistics": None if self._statistics is None else self._statistics.state_dict(),
            "fitted_with": {name: value.clone() for name, value in self._fitted_with.items()},
            "draws": self.covar_module.draws,
            "num_classes": getattr(self.likelihood, "num_classes", None),
            "alpha_epsilon": getattr(self.likelihood, "alpha_epsilon", None),
            "patterns": list(self._patterns),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` gave.

        :raises ValueError: where the number of classes differs.
        """
        classes = getattr(self.likelihood, "num_classes", None)
        if state["num_classes"] != classes:
            raise ValueError(f"expected the state of a model with {classes} classes, got {state['num_classes']}")
        if hasattr(self.likelihood, "set_alpha_epsilon"):
            self.likelihood.set_alpha_epsilon(state["alpha_epsilon"])
        elif state["alpha_epsilon"] is not None:
            self.likelihood.alpha_epsilon = state["alpha_epsilon"]
        saved = state["statistics"]
        self._statistics = None if saved is None else GramStatistics.from_state_dict(saved)
        self._fitted_with = dict(state["fitted_with"])
        self._patterns[:] = state["patterns"]
        if saved is not None:
            self._draws_since_fit = state["draws"] - int(self._fitted_with[_WEIGHTS])
        self._posterior = None
        self.training_data = []


def _after_loading(model: WeightSpaceGP, _: Any) -> None:
    """Weights that were loaded with their statistics count as the draw that the statistics were computed with."""
    if model._draws_since_fit is not None:
        model._fitted_with[_WEIGHTS] = torch.tensor(model.covar_module.draws - model._draws_since_fit)
        model._draws_since_fit = None


def _same(a: Tensor, b: Tensor | None) -> bool:
    return b is not None and a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b.to(a.device))


def _unpack(batch: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    if not isinstance(batch, list | tuple) or len(batch) not in (2, 3):
        raise ValueError(
            f"expected batches (x, y) or (x, y, noise) from the loader, got {type(batch).__name__}; yield pairs"
        )
    x, y, *noise = batch
    return x, y, noise[0] if noise else None
