"""Latent functions of weights, and sums over rows for Laplace's approximation: log density, gradient and Hessian."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from gpytorch.means import Mean, MultitaskMean
from torch import Tensor

from ... import linalg
from ..._support import checks
from ...likelihoods import MultitaskMultivariateNormal, MultivariateNormal
from ...linalg import joined, largest_square, product_dtype, row_chunks
from ..local.cells import CellKernel, cells_of, parts_of
from ..posterior.covariance import ResidualCovariance, WeightSpaceCovariance
from ..posterior.factor import KroneckerFactor
from ..posterior.posterior import GaussianPosterior
from ..posterior.products import feature_product
from ..sums.recomputation import recomputed_by_chunk
from .latent_terms import LatentLikelihood, TaskFunctions

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel

Batches = Iterable[tuple[Tensor, Tensor, Tensor]]
"""Checked inputs (N, d), targets (N,) or (N, T), and exposures (N, 1) or (N, T), which can be gone through again and
again. The exposures of counts are in float64, those of other targets are ones."""


class LaplaceSums(NamedTuple):
    r"""Additive sums over rows at some weights, in float64: l (), h (D, Q), and G (P, D, D) for P pairs of functions.

    .. math:: \ell = \sum_i \log p(y_i \mid f_i), \qquad h_q = \sum_i \psi_i \frac{\partial \log p}{\partial f_{iq}},
        \qquad G_{qq'} = -\sum_i \frac{\partial^2 \log p}{\partial f_{iq} \partial f_{iq'}} \psi_i \psi_i^\top

    :param concave: what rows whose curvature is not positive take from G, (P, D, D), where there are any.
    """

    log_density: Tensor
    slope: Tensor
    gram: Tensor
    concave: Tensor | None = None

    def merge(self, other: LaplaceSums) -> LaplaceSums:
        """The sums over both sets of rows."""
        concave = [part for part in (self.concave, other.concave) if part is not None]
        return LaplaceSums(
            self.log_density + other.log_density,
            self.slope + other.slope,
            self.gram + other.gram,
            functools.reduce(torch.add, concave) if concave else None,
        )

    def detach(self) -> LaplaceSums:
        """The sums without their graph."""
        return LaplaceSums(self.log_density.detach(), self.slope.detach(), self.gram.detach(), self.concave)


class LatentFunctions:
    r"""Latent functions :math:`f_q(x) = m_q(x) + \psi(x)^\top v_q` and the likelihood of rows given them.

    The weights :math:`v = w A^\top` mix independent ones, w (D, R), one for every function or for the rank of tasks.

    :param dtype: the dtype of Gram products; None for float64, or float32 for chunks of small curvature.
    """

    def __init__(
        self, kernel: FeatureKernel, mean: Mean, likelihood: LatentLikelihood, dtype: torch.dtype | None = None
    ) -> None:
        self.kernel, self.mean, self.likelihood, self.dtype = kernel, mean, likelihood, dtype

    @functools.cached_property
    def exact(self) -> LatentFunctions:
        """The same, with the second derivatives of the likelihood as its curvature."""
        exact = self.likelihood.exact
        return self if exact is self.likelihood else type(self)(self.kernel, self.mean, exact, self.dtype)

    @property
    def mixing(self) -> Tensor:
        """A, (Q, R), in float64: the roots of output scales on its diagonal, or a root of the covariance of tasks."""
        factor: Any = self.kernel.output_factor()
        count = self.likelihood.num_functions
        if isinstance(factor, Tensor):
            return torch.diag_embed(factor.double().reshape(-1).expand(count))
        root: Tensor = factor.covariance_root
        return root.double()

    def of_weights(self, weights: Tensor) -> Tensor:
        r"""The weights :math:`v_q` of the functions, (D, Q), for independent weights w, (D, R)."""
        return weights @ self.mixing.mT

    def to_weights(self, slope: Tensor) -> Tensor:
        """The gradient in independent weights, (D, R), from that in the weights of the functions, (D, Q)."""
        return slope @ self.mixing

    @property
    def num_features(self) -> int:
        """The number D of real features."""
        return int(self.kernel.num_scalar_features) * (2 if self.kernel.is_complex else 1)

    def features(self, x: Tensor) -> Tensor:
        """Real features without the output scale, (..., N, D)."""
        features: Tensor = self.kernel.scalar_features(x)
        return torch.cat([features.real, features.imag], dim=-1) if features.is_complex() else features

    def mean_at(self, x: Tensor) -> Tensor:
        """The mean functions at x (..., N, d), (..., N, Q), in float64."""
        values: Tensor = self.mean(x)
        if isinstance(self.mean, MultitaskMean):
            return values.double()
        is_batch = values.dim() == x.dim()
        columns = values.movedim(0, -1) if is_batch else values.unsqueeze(-1)
        return columns.double().expand(*columns.shape[:-1], self.likelihood.num_functions)

    def at(self, x: Tensor, exposure: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Features (N, D), and values (N, Q) of the functions of weights (D, Q) at x (N, d), with log exposures."""
        features = self.features(x)
        return features, self.mean_at(x) + exposure.log() + features.double() @ weights

    def distribution(self, x: Tensor, posterior: GaussianPosterior) -> MultivariateNormal:
        """The (multitask) normal distribution of one function at x (..., N, d), or of several at x (N, d); lazy."""
        factor = KroneckerFactor(self.mixing, self.num_features)
        tracks = torch.is_grad_enabled()

        def features(x: Tensor) -> Tensor:
            with torch.set_grad_enabled(tracks and torch.is_grad_enabled()):
                return self.features(x)

        weights = factor.scalar_weights(posterior.mean).squeeze(-1)
        chunks = row_chunks(x.shape[-2], self.num_features)
        parts = (feature_product(features(x[..., rows, :]), weights) for rows in chunks)
        values = checks.no_overflow(joined(parts, x.shape[-2]), x) + self.mean_at(x)
        covariance = WeightSpaceCovariance(x.clone(), posterior, factor, features)
        residual: ResidualCovariance | None = self.kernel.residual_covariance(x)
        if residual is not None and not self.kernel.has_output_factor:
            variance = residual.variance()
            by_function = variance.mT if variance.dim() == x.dim() else variance.unsqueeze(-1)
            count = self.likelihood.num_functions
            units = torch.diag_embed(torch.eye(count, dtype=x.dtype, device=x.device))
            residual = ResidualCovariance(by_function.expand(*x.shape[:-1], count), units)
        total = covariance if residual is None else residual.added_to(covariance)
        if self.likelihood.num_functions == 1 and not self.kernel.has_output_factor:
            return MultivariateNormal(values.squeeze(-1).to(x.dtype), total)
        return MultitaskMultivariateNormal(values.to(x.dtype), total)

    def sums(self, batches: Batches, weights: Tensor) -> LaplaceSums:
        """The sums over the rows of batches at weights (D, Q), differentiable once, at the memory of a chunk."""
        total: LaplaceSums | None = None
        for rows in batches:
            parts = row_chunks(len(rows[0]), self.num_features)
            with torch.no_grad():
                sums = self._summed(rows, weights, parts)
            graph = functools.partial(self._graph, self.dtype or torch.float64)
            found = recomputed_by_chunk(sums[:3], graph, parts, rows, (weights,), self._parameters())
            log_density, slope, gram = found
            of_batch = LaplaceSums(log_density, slope, gram, sums.concave)
            total = of_batch if total is None else total.merge(of_batch)
        if total is None:
            raise ValueError("expected at least one batch from the loader, got none; check that it is not used up")
        return total

    def _parameters(self) -> list[Tensor]:
        """The leaves that the sums depend on beside rows and weights."""
        modules = [self.mean.parameters(), self.likelihood.likelihood.parameters()]
        tensors = [*self.kernel.feature_parameters(), *(p for part in modules for p in part)]
        return list({id(tensor): tensor for tensor in tensors}.values())

    def _summed(self, rows: tuple[Tensor, Tensor, Tensor], weights: Tensor, parts: Sequence[slice]) -> LaplaceSums:
        """The sums over chunks of rows, without gradients."""
        slope, concave = torch.zeros_like(weights), None
        log_density, gram = slope.new_zeros(()), slope.new_zeros(len(self.likelihood.pairs), *[self.num_features] * 2)
        for part in parts:
            x, y, exposure = (tensor[part] for tensor in rows)
            features, values = self.at(x, exposure, weights)
            terms = self.likelihood.terms(values, y)
            log_density += terms.log_density.sum()
            slope += features.mT.double() @ terms.slope
            dtype = self._product_dtype(features, terms.curvature)
            for pair, curvature in enumerate(terms.curvature.unbind(-1)):
                _add_gram(gram[pair], features, curvature, dtype)
            by_pair = self.likelihood.concave(terms.curvature)
            if by_pair is not None:
                concave = torch.zeros_like(gram) if concave is None else concave
                for pair, lacking in enumerate(by_pair.unbind(-1)):
                    is_any = lacking != 0
                    _add_gram(concave[pair], features[is_any], lacking[is_any], dtype)
        for matrix in (*gram, *(() if concave is None else concave)):
            linalg.mirror_(matrix)
        return LaplaceSums(log_density, slope, gram, concave)

    def _graph(self, dtype: torch.dtype, x: Tensor, y: Tensor, exposure: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        """The sums over a chunk, with their graph; the values of Gram matrices do not matter."""
        features, values = self.at(x, exposure, weights)
        terms = self.likelihood.terms(values, y)
        none = terms.slope.new_zeros(len(x), 0)
        products = linalg.products_by_group(
            features, none, terms.curvature, num_groups=terms.curvature.shape[-1], product_dtype=dtype, has_values=False
        )
        return terms.log_density.sum(), features.mT.double() @ terms.slope, products.gram

    def _product_dtype(self, features: Tensor, curvature: Tensor) -> torch.dtype:
        if self.dtype is not None:
            return self.dtype
        largest = float(curvature.abs().max())
        scale = float(self.mixing.detach().square().sum(-1).max())
        noise = 1.0 / largest if largest > 0.0 else float("inf")
        return product_dtype(features.dtype, noise, lambda: scale * largest_square(features))

    def hessian_product(self, batches: Batches, weights: Tensor, direction: Tensor) -> Tensor:
        r"""The product :math:`\sum_i \psi_i (W_i \psi_i^\top d)` of the full Hessian for classes with d, (D, Q)."""
        total = torch.zeros_like(weights)
        for x, _, exposure in _chunks(batches, self.num_features):
            features, values = self.at(x, exposure, weights)
            exact = features.double()
            total += exact.mT @ self.likelihood.product(values, exact @ direction)
        return total

    def pull_back(self, batches: Batches, weights: Tensor, gram: Tensor) -> Tensor:
        """The gradient in the weights alone, (D, Q), from that of the Gram matrices, (P, D, D)."""
        total, leaf = torch.zeros_like(weights), weights.detach().requires_grad_()
        for rows in _chunks(batches, self.num_features):
            with torch.enable_grad():
                of_gram = self._graph(self.dtype or torch.float64, *rows, leaf)[2]
            if of_gram.requires_grad:
                (gradient,) = torch.autograd.grad(of_gram, leaf, gram, allow_unused=True, materialize_grads=True)
                total += gradient
        return total


class KnownFeatures(LatentFunctions):
    """The same functions of rows whose features are known: batches hold these, targets, and offsets of the values."""

    @classmethod
    @torch.no_grad()
    def of(cls, functions: LatentFunctions, batches: Batches) -> tuple[LatentFunctions, Batches]:
        """The functions, and batches of features (N, D), targets, and mean functions with log exposures, (N, Q)."""
        known = []
        for x, y, exposure in batches:
            chunks = row_chunks(len(x), functions.num_features)
            features = joined((functions.features(x[rows]) for rows in chunks), len(x))
            known.append((features, y, functions.mean_at(x) + exposure.log()))
        return cls(functions.kernel, functions.mean, functions.likelihood, functions.dtype), known

    def at(self, x: Tensor, exposure: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Features (N, D) as they are, and values (N, Q) of the functions of weights (D, Q), with their offsets."""
        return x, exposure + x.double() @ weights


def _chunks(batches: Batches, width: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    for x, y, exposure in batches:
        for rows in row_chunks(len(x), width):
            yield x[rows], y[rows], exposure[rows]


def _add_gram(gram: Tensor, features: Tensor, weights: Tensor, dtype: torch.dtype) -> None:
    none = features.new_zeros(len(features), 0)
    linalg.add_gram_(gram, gram.new_zeros(len(gram), 0), features, none, weights, dtype)


def observed_cells(x: Tensor, y: Tensor, exposure: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of one latent function as they are, else the observed cells of tables (N, T) of tasks, one by one."""
    if y.dim() == 1:
        return x, y.double(), exposure.squeeze(-1)
    is_there = ~torch.isnan(y.flatten())
    of_cells = exposure.expand(y.shape).flatten()
    return cells_of(x, y.shape[-1])[is_there], y.flatten()[is_there].double(), of_cells[is_there]


def functions_of_cells(functions: LatentFunctions) -> LatentFunctions:
    """The function of (input, task) for functions of tasks; that of a scalar kernel as it is."""
    latent = functions.likelihood
    if not isinstance(latent, TaskFunctions):
        return functions
    kernel = cast("FeatureKernel", CellKernel(functions.kernel))  # with the features and covariances of one
    return LatentFunctions(kernel, CellMean(functions.mean, latent.num_functions), latent.cell, functions.dtype)


class CellMean(Mean):
    """The mean function of tasks at cells (..., N, d + T)."""

    def __init__(self, mean: Mean, num_tasks: int) -> None:
        super().__init__()
        self.mean, self.num_tasks = mean, num_tasks

    def forward(self, x: Tensor) -> Tensor:
        inputs, tasks = parts_of(x, self.num_tasks)
        values: Tensor = self.mean(inputs)
        return (values * tasks).sum(-1) if isinstance(self.mean, MultitaskMean) else values
