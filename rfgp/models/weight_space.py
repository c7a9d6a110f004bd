"""Gaussian-process regression and classification in weight space, from sufficient statistics."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean, LinearMean, Mean, ZeroMean
from linear_operator.operators import RootLinearOperator
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .. import _checks
from ..distributions import ComplexNormal
from ..kernels.approximate import with_features
from ..kernels.feature_operator import FLOAT32_PRODUCT_NOISE
from ..linalg import row_chunks
from ..posterior import WeightPosterior, WeightSpaceCovariance, feature_product
from ..statistics import GramStatistics
from .observations import Rows, System, observations


class WeightSpaceGP(gpytorch.Module):
    r"""A Gaussian process with random features, trained and evaluated from sums over the data at O(N D^2).

    .. math:: B = I + \Phi^H S^{-1} \Phi, \qquad E f_* = \Phi_* B^{-1} \Phi^H S^{-1} y, \qquad
        \mathrm{Cov} f_* = \Phi_* B^{-1} \Phi_*^H

    It takes the same kernel and likelihood objects as GPyTorch's ExactGP. The statistics are additive: ``update`` adds
    rows, and the result equals a fit to all of them. For real labels and complex features the posterior is the real
    part of the complex one, which has no evidence; complex targets take a ComplexGaussianLikelihood.

    :param kernel: a kernel made by :func:`rfgp.approximate`, or a GPyTorch ScaleKernel around one.
    :param likelihood: a Gaussian, fixed-noise, complex Gaussian or Dirichlet classification likelihood.
    :param mean: ZeroMean (where it is None), ConstantMean or LinearMean, with a batch shape (C,) for classes if wanted.
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
        self.mean_module = ZeroMean() if mean is None else mean
        self.product_dtype = product_dtype
        if not isinstance(self.mean_module, ZeroMean | ConstantMean | LinearMean):
            raise ValueError(
                f"expected a ZeroMean, ConstantMean or LinearMean, got {type(mean).__name__}; subtract others from y"
            )
        self._observations = observations(likelihood)
        self._check_batch_shapes()
        self._statistics: GramStatistics | None = None
        self._fitted_with: dict[str, Tensor] = {}
        self._posterior: tuple[dict[str, Tensor], WeightPosterior] | None = None
        self.training_data: list[tuple[Tensor, Tensor, Tensor | None]] = []

    def _check_batch_shapes(self) -> None:
        classes = self._observations.num_systems
        allowed = [torch.Size()] if self._is_single else [torch.Size(), torch.Size([classes])]
        found = [torch.Size(self.covar_module.output_factor().shape[:-2]), _mean_batch(self.mean_module)]
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
        if self._statistics is None:
            raise ValueError("expected a fitted model, got one without data; call fit(x, y) first")
        now = self._feature_state()
        changed = [name for name, value in self._fitted_with.items() if not _same(value, now.get(name))]
        if changed:
            raise ValueError(
                f"expected the parameters that the statistics were computed with, got a new {', '.join(changed)}; "
                "call fit(x, y) again"
            )
        return self._statistics

    def fit(
        self, x: Tensor | Iterable[tuple[Tensor, ...]], y: Tensor | None = None, noise: Tensor | None = None
    ) -> Self:
        """Compute the statistics of the data, and forget earlier data.

        With gradients enabled the statistics carry those of the kernel's parameters, at constant memory.

        :param x: inputs (N, d), or an iterable of batches (x, y) or (x, y, noise).
        :param y: targets (N,), or integer labels for a Dirichlet likelihood.
        :param noise: noise variances (N,), for a fixed-noise likelihood.
        :returns: the model.
        :raises ValueError: for bad data; the model stays as it was.
        """
        if isinstance(x, Tensor):
            if y is None:
                raise ValueError("expected targets y beside the inputs, got none; call fit(x, y)")
            self._set(self._sums(x, y, noise, is_all=True), [(x, y, noise)])
            return self
        if y is not None or noise is not None:
            raise ValueError("expected batches (x, y) or (x, y, noise) from a loader alone, got y or noise besides")
        sums = None
        for batch in x:
            sums = self._sums(*_unpack(batch), is_all=False, sums=sums)
        if sums is None:
            raise ValueError("expected at least one batch from the loader, got none; check that it is not used up")
        self._set(sums, [])
        return self

    def update(self, x: Tensor, y: Tensor, noise: Tensor | None = None) -> Self:
        """Add rows to the statistics; the result equals a fit to all rows.

        :param x: inputs (N, d).
        :param y: targets (N,), or integer labels.
        :param noise: noise variances (N,), for a fixed-noise likelihood.
        :returns: the model.
        :raises ValueError: for bad data, or stale statistics; the model stays as it was.
        """
        if self._statistics is None:
            sums = self._sums(x, y, noise, is_all=False)
            self._set(sums, [(x, y, noise)])
            return self
        known = self.statistics
        merged = known.merge(self._sums(x, y, noise, is_all=False))
        data = [*self.training_data, (x, y, noise)] if self.training_data else []
        self._set(merged, data)
        return self

    def _set(self, sums: GramStatistics, data: list[tuple[Tensor, Tensor, Tensor | None]]) -> None:
        width = self._num_features(sums)
        if width > sums.num_rows:
            warnings.warn(
                f"{width} features exceed the {int(sums.num_rows)} training rows: the exact kernel costs less",
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
        rows = self._observations.rows(x, y, noise, self._basis(x), is_all)
        product = self._product_dtype(x, rows)
        if rows.groups is not None:
            order = rows.groups.argsort(stable=True)
            x, rows = x[order], rows.take(order)
        kernel = self.covar_module
        tracks = torch.is_grad_enabled() and any(p.requires_grad for p in kernel.feature_parameters())
        width = kernel.scalar_features(x[:1].detach()).shape[-1]
        sums = self._empty(width, rows, x.device) if sums is None else sums
        for part in row_chunks(len(x), width, x.element_size() * (2 if kernel.is_complex else 1)):
            chunk, chunk_rows = x[part], rows.take(part)
            if tracks or (torch.is_grad_enabled() and x.requires_grad):
                added = checkpoint(self._chunk_sums, chunk, chunk_rows, product, use_reentrant=False)
                fresh = self._empty(added[0].shape[-1], rows, x.device)
                fresh._gram, fresh.cross, fresh.outer, fresh.count, fresh.log_noise = added
                sums = sums.merge(fresh)
            else:
                sums.update(kernel.scalar_features(chunk), *chunk_rows, product_dtype=product)
        return sums

    def _chunk_sums(self, x: Tensor, rows: Rows, product: torch.dtype) -> tuple[Tensor, ...]:
        features = self.covar_module.scalar_features(x)
        sums = self._empty(features.shape[-1], rows, x.device)
        sums.update(features, *rows, product_dtype=product)
        return sums.gram, sums.cross, sums.outer, sums.count, sums.log_noise

    def _empty(self, width: int, rows: Rows, device: torch.device) -> GramStatistics:
        groups, item = self._observations.num_groups, 16 if self.covar_module.is_complex else 8
        what = f"statistics and factors of {groups} x {width} x {width} numbers"
        _checks.fits_in_memory(2.0 * item * groups * width**2, what, "use fewer features")
        return GramStatistics(
            width,
            rows.targets.shape[-1],
            self._observations.num_groups,
            self.covar_module.is_complex,
            rows.targets.is_complex(),
            device,
        )

    def _product_dtype(self, x: Tensor, rows: Rows) -> torch.dtype:
        if self.product_dtype is not None:
            return self.product_dtype
        if x.dtype != torch.float32:
            return torch.float64
        smallest = 1.0 / float(rows.weights.detach().max()) if rows.weights is not None else self._smallest_noise()
        return torch.float32 if smallest > FLOAT32_PRODUCT_NOISE else torch.float64

    def _smallest_noise(self) -> float:
        if self._observations.num_groups > 1 or hasattr(self.likelihood, "alpha_epsilon"):
            return float("inf") if self.likelihood.alpha_epsilon < 1.0 else 0.0
        return float(self.likelihood.noise.detach().min())

    def _basis(self, x: Tensor) -> Tensor:
        """The columns (N, k) of which the mean function is a linear combination."""
        if isinstance(self.mean_module, ZeroMean):
            return x.new_zeros(len(x), 0)
        ones = x.new_ones(len(x), 1)
        if isinstance(self.mean_module, ConstantMean):
            return ones
        return torch.cat([x, ones], dim=-1) if self.mean_module.bias is not None else x

    def _coefficients(self) -> Tensor:
        """The coefficients (k,) or (C, k) of the mean function in its columns."""
        mean = self.mean_module
        device = next(self.covar_module.parameters()).device
        if isinstance(mean, ZeroMean):
            return torch.zeros(0, dtype=torch.float64, device=device)
        if isinstance(mean, ConstantMean):
            return mean.constant.double().unsqueeze(-1)
        weights = mean.weights.double().squeeze(-1)
        return weights if mean.bias is None else torch.cat([weights, mean.bias.double()], dim=-1)

    def _feature_state(self) -> dict[str, Tensor]:
        """What the statistics depend on, by name."""
        names = {id(parameter): name for name, parameter in self.covar_module.named_parameters()}
        state = {names[id(p)]: p.detach() for p in self.covar_module.feature_parameters()}
        state |= {name: value.detach() for name, value in self._observations.parameters().items()}
        state["set of random weights"] = torch.tensor(self.covar_module.draws)
        return state

    def _systems(self) -> Iterator[System]:
        """Systems with the output scale applied."""
        factor = self.covar_module.output_factor().double()[..., 0, 0]
        for c, system in enumerate(self._observations.systems(self.statistics, self._coefficients())):
            scale = factor if factor.dim() == 0 else factor[c]
            grams = [(scale.square() * coefficient, matrix) for coefficient, matrix in system.grams]
            yield system._replace(grams=grams, cross=scale * system.cross)

    def weight_posterior(self) -> WeightPosterior:
        """The posterior of the weights; a batch of C of them for a Dirichlet likelihood.

        :raises ValueError: where the model is not fitted, or stale.
        """
        tracks = torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters())
        state = {name: p.detach() for name, p in self.named_parameters()} | self._feature_state()
        if hasattr(self.likelihood, "alpha_epsilon"):
            state["alpha_epsilon"] = torch.tensor(self.likelihood.alpha_epsilon)
        if not tracks and self._posterior is not None:
            known = self._posterior[0]
            if known.keys() == state.keys() and all(_same(known[name], state[name]) for name in state):
                return self._posterior[1]
        count = self._observations.num_systems
        pairs = ((system.grams, system.cross) for system in self._systems())
        posterior = WeightPosterior(*next(pairs)) if self._is_single else WeightPosterior.stacked(pairs, count)
        if not tracks:
            self._posterior = ({name: value.clone() for name, value in state.items()}, posterior)
        return posterior

    @property
    def _is_single(self) -> bool:
        return not hasattr(self.likelihood, "alpha_epsilon")

    def posterior(self, x: Tensor) -> MultivariateNormal | ComplexNormal:
        """The posterior of the function at inputs, without noise: ``likelihood(model.posterior(x))`` adds it.

        Means and variances are computed in chunks of rows; the N x N covariance is formed only where it is asked for.

        :param x: inputs (..., N, d); (N, d) for a Dirichlet likelihood.
        :returns: a GPyTorch distribution, with batch shape (C,) for a Dirichlet likelihood; a ComplexNormal for complex
            targets. It has the dtype of x.
        :raises ValueError: for bad inputs, or where the model is not fitted, or stale.
        """
        _checks.finite(_checks.inputs(x).detach())
        _checks.same_kind(x, next(self.covar_module.parameters()), "x", "the kernel")
        if not self._is_single and x.dim() != 2:
            raise ValueError(
                f"expected inputs of shape (N, d) for class labels, got {tuple(x.shape)}; flatten the batch"
            )
        posterior = self.weight_posterior()
        mean = self._function(x, posterior.mean)
        if self._observations.is_complex:
            return ComplexNormal(mean, covariance_root=posterior.covariance_root(self._scaled_features(x)))
        if self.covar_module.is_complex:
            root = posterior.covariance_root(self._scaled_features(x))
            return MultivariateNormal(mean, RootLinearOperator(torch.cat([root.real, root.imag], dim=-1).to(x.dtype)))
        factor = self.covar_module.output_factor().double()
        features = functools.partial(_features, self.covar_module)
        return MultivariateNormal(mean, WeightSpaceCovariance(x, posterior.factor / factor, features))

    def _scaled_features(self, x: Tensor) -> Tensor:
        return self.covar_module.scalar_features(x) * self.covar_module.output_factor()

    def _function(self, x: Tensor, weights: Tensor) -> Tensor:
        """The function of weights (..., D, 1) at x (..., N, d): values (..., N), of the dtype of x."""
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
        if self.covar_module.is_complex and not self._observations.is_complex:
            raise ValueError(
                "expected real features for the evidence of real labels, got complex ones, whose real part has none; "
                "use the :ctr form of the method"
            )
        constant = self._observations.constant
        factor = 1.0 if self._observations.is_complex else 0.5
        total = torch.zeros((), dtype=torch.float64, device=self.statistics.count.device)
        for system in self._systems():
            posterior = WeightPosterior(system.grams, system.cross)
            explained = (system.cross.conj() * posterior.mean).sum()
            explained = explained.real if explained.is_complex() else explained
            rows = self.statistics.num_rows * constant
            total = total - factor * (
                system.quadratic - explained + posterior.log_determinant + system.log_noise + rows
            )
        return total

    def sample_functions(self, num_functions: int) -> list[Callable[[Tensor], Tensor]]:
        """Draws of functions from the posterior, each of which can be evaluated anywhere.

        :param num_functions: the number of draws.
        :returns: callables from (..., N, d) to (..., N), or from (N, d) to (C, N) for a Dirichlet likelihood.
        :raises ValueError: where the model is not fitted, or stale.
        """
        count = _checks.positive_integer("num_functions", num_functions)
        posterior = self.weight_posterior()
        deviations = posterior.deviations(count)
        if self.covar_module.is_complex and not self._observations.is_complex:
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
            "num_classes": getattr(self.likelihood, "num_classes", None),
            "alpha_epsilon": getattr(self.likelihood, "alpha_epsilon", None),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` gave.

        :raises ValueError: where the number of classes differs.
        """
        classes = getattr(self.likelihood, "num_classes", None)
        if state["num_classes"] != classes:
            raise ValueError(f"expected the state of a model with {classes} classes, got {state['num_classes']}")
        if state["alpha_epsilon"] is not None:
            self.likelihood.alpha_epsilon = state["alpha_epsilon"]
        saved = state["statistics"]
        self._statistics = None if saved is None else GramStatistics.from_state_dict(saved)
        self._fitted_with = state["fitted_with"]
        self._posterior = None
        self.training_data = []


def _features(kernel: Kernel, x: Tensor) -> Tensor:
    return kernel.scalar_features(x)


def _same(a: Tensor, b: Tensor | None) -> bool:
    return b is not None and a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b.to(a.device))


def _mean_batch(mean: Mean) -> torch.Size:
    if isinstance(mean, ConstantMean):
        return mean.constant.shape
    return mean.weights.shape[:-2] if isinstance(mean, LinearMean) else torch.Size()


def _unpack(batch: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    if not isinstance(batch, list | tuple) or len(batch) not in (2, 3):
        raise ValueError(f"expected batches (x, y) or (x, y, noise) from the loader, got {type(batch).__name__}")
    x, y, *noise = batch
    return x, y, noise[0] if noise else None
