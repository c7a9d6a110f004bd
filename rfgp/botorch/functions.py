"""The functions of a fitted model: their joint distribution at inputs, draws of them, and further observations."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.means import Mean, MultitaskMean
from linear_operator.operators import (
    BlockDiagLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    LinearOperator,
    RootLinearOperator,
)
from torch import Tensor

from .._support.gpytorch_names import forget_priors
from ..inference import OutputFactor, WeightPosterior
from ..inference.noise.independent import IndependentNoise
from ..inference.noise.known import KnownNoise
from ..inference.posterior.covariance import ResidualCovariance
from ..inference.posterior.normal_equations import NormalEquations
from ..inference.posterior.regression import Regression
from ..inference.posterior.square_root import SquareRootPosterior
from ..models import WeightSpaceGP
from .observed import has_given_noise

_DENSE_ROWS = 2048
"""Up to so many rows a covariance is a dense matrix, and beyond them a root with a column per weight."""


class Functions(NamedTuple):
    r"""The posterior of m functions :math:`f(x) = \psi(x) W + m(x)`, which later changes of a model do not reach.

    :param outputs: the numbers of the functions among the outputs of kernel and mean.
    :param noise: the learned noise covariance of one observation, (m, m).
    """

    kernel: Any
    mean: Mean
    outputs: tuple[int, ...]
    weights: SquareRootPosterior
    noise: Tensor
    raises_noise: bool = False
    """Whether the residual variance is noise of observations, as on a Fourier grid."""

    @classmethod
    @torch.no_grad()
    def of(cls, gp: WeightSpaceGP) -> Functions:
        """The functions of a conditioned model of real outputs as they are now."""
        kernel, mean = copy.deepcopy((gp.covar_module, gp.mean_module))
        for module in (kernel, mean):
            module.requires_grad_(False)
            forget_priors(module)
        return cls(kernel, mean, tuple(range(gp.num_outputs)), _weights(gp), _noise(gp), gp.raises_noise)

    @property
    def _is_correlated(self) -> bool:
        return self.weights.num_outputs > 1

    def select(self, outputs: Sequence[int]) -> Functions:
        """Some of the functions."""
        chosen, index = tuple(self.outputs[index] for index in outputs), list(outputs)
        return self._replace(outputs=chosen, weights=self.weights.select(index), noise=self.noise[index][:, index])

    def conditioned(self, x: Tensor, y: Tensor, noise: Tensor) -> Functions:
        """The functions given observations (..., q, m) at x (..., q, d), with noise covariances (..., q, m, m)."""
        residual = self._by_system(y.double() - self._prior_mean(x))
        missing = self._residual(x) if self.raises_noise else None
        blocks = self._blocks_by_system(noise if missing is None else noise + missing)
        return self._replace(weights=self.weights.conditioned(self._features(x), residual, blocks))

    def distribution(
        self, x: Tensor, noise: Tensor | None = None, units: tuple[Tensor, Tensor] | None = None
    ) -> MultivariateNormal:
        """The joint distribution of the functions at x (..., q, d), plus noise (..., q, m, m) if given.

        :param units: the zero and the unit of every function, (1, m); default: 0 and 1.
        """
        features = self._features(x)
        mean = self.weights.mean_at(features) + self._by_system(self._prior_mean(x))
        rows = self.weights.root_at(features)
        added = [part for part in (self._residual(x), noise) if part is not None]
        blocks = self._blocks_by_system(sum(added[1:], added[0])) if added else None
        if units is not None:
            zero, unit = (self._by_system(part.double()) for part in units)
            mean = zero + unit * mean
            rows = (rows.unflatten(-2, (x.shape[-2], -1)) * unit.unsqueeze(-1)).flatten(-3, -2)
            blocks = None if blocks is None else blocks * unit.unsqueeze(-1) * unit.unsqueeze(-2)
        batch = torch.broadcast_shapes(mean.shape[:-2], () if blocks is None else blocks.shape[:-3])
        mean = mean.expand(*batch, *mean.shape[-2:]).to(x.dtype)
        covariance = _covariance(rows, blocks, x.dtype)
        covariance = covariance.expand(*batch, *covariance.shape[-2:])
        if self._is_correlated:
            return MultitaskMultivariateNormal(mean.squeeze(-3), covariance.squeeze(-3))
        if len(self.outputs) == 1:
            return MultivariateNormal(mean[..., 0, :, 0], covariance.squeeze(-3))
        return MultitaskMultivariateNormal(mean.squeeze(-1).mT, BlockDiagLinearOperator(covariance), interleaved=False)

    def noise_of_rows(self, num_rows: int, given: Tensor | None, is_added: bool) -> Tensor:
        """The noise covariance of rows, (..., q, m, m), in float64, by variances (..., q or 1, m) or as learned."""
        learned = self.noise.expand(num_rows, *self.noise.shape)
        if given is None:
            return learned
        variances = given.double().expand(*given.shape[:-2], num_rows, len(self.outputs))
        return torch.diag_embed(variances) + learned if is_added else torch.diag_embed(variances)

    def sample(self, num_functions: int) -> Tensor:
        """Draws of the weights, (S, ..., M, T, n), for :meth:`values`."""
        return self.weights.draws(num_functions)

    def values(self, weights: Tensor, x: Tensor) -> Tensor:
        """The functions of S draws of the weights (S, M, T, n) at x (..., q, d): (S, ..., q, m)."""
        values = torch.einsum("...qn,smtn->s...mqt", self._features(x), weights)
        values = values.squeeze(-3) if self._is_correlated else values.squeeze(-1).mT
        return (values + self._prior_mean(x)).to(x.dtype)

    def paths(self, weights: Tensor, x: Tensor) -> Tensor:
        """The functions of draws (S..., M, T, n) at x (..., q, d), whose batch dimensions are theirs: (..., q, m)."""
        values = self._features(x).unsqueeze(-3) @ weights.mT
        values = values.squeeze(-3) if self._is_correlated else values.squeeze(-1).mT
        return (values + self._prior_mean(x)).to(x.dtype)

    def _features(self, x: Tensor) -> Tensor:
        features: Tensor = self.kernel.scalar_features(x)
        return features.double()

    def _prior_mean(self, x: Tensor) -> Tensor:
        """The mean function, (..., q, m), in float64."""
        mean: Tensor = self.mean(x)
        if isinstance(self.mean, MultitaskMean):
            return mean[..., list(self.outputs)].double()
        return mean.double().unsqueeze(-1).expand(*mean.shape, len(self.outputs))

    def _residual(self, x: Tensor) -> Tensor | None:
        """The residual variance of the features, as a covariance of every row, (..., q, m, m)."""
        residual: ResidualCovariance | None = self.kernel.residual_covariance(x)
        if residual is None:
            return None
        blocks, outputs = residual.double().dense(), list(self.outputs)
        return blocks.expand(*x.shape[:-1], *blocks.shape[-2:])[..., outputs, :][..., outputs]

    def _by_system(self, values: Tensor) -> Tensor:
        """Values (..., q, m) as (..., M, q, T)."""
        return values.unsqueeze(-3) if self._is_correlated else values.mT.unsqueeze(-1)

    def _blocks_by_system(self, blocks: Tensor) -> Tensor:
        """Covariances of rows (..., q, m, m) as (..., M, q, T, T)."""
        if self._is_correlated:
            return blocks.unsqueeze(-4)
        return blocks.diagonal(dim1=-2, dim2=-1).mT[..., None, None]


def _covariance(rows: Tensor, blocks: Tensor | None, dtype: torch.dtype) -> LinearOperator:
    """The covariance of a root (..., q T, K) plus a block (..., q, T, T) for every point."""
    if rows.shape[-2] > _DENSE_ROWS:
        root = RootLinearOperator(rows.to(dtype))
        return root if blocks is None else root + BlockDiagLinearOperator(DenseLinearOperator(blocks.to(dtype)))
    matrix = rows @ rows.mT
    if blocks is not None:
        by_pair = torch.diag_embed(blocks.movedim(-3, -1)).movedim((-2, -4, -1, -3), (-4, -3, -2, -1))
        matrix = matrix + by_pair.flatten(-2).flatten(-3, -2)
    return DenseLinearOperator(matrix.to(dtype))


def _noise(gp: WeightSpaceGP) -> Tensor:
    """The noise covariance of one observation that a likelihood has learned, (m, m), in float64."""
    likelihood, count = gp.likelihood, gp.num_outputs
    zero = torch.zeros(count, dtype=torch.float64, device=next(gp.parameters()).device)
    if has_given_noise(likelihood):
        learned = likelihood.second_noise_covar
        return (zero if learned is None else learned.noise.double().expand(count)).diag()
    nothing = DiagLinearOperator(zero)
    if hasattr(likelihood, "num_tasks"):
        noise = likelihood(MultitaskMultivariateNormal(zero.unsqueeze(0), nothing))
    else:
        noise = likelihood(MultivariateNormal(zero, nothing))
    return noise.covariance_matrix


def _weights(gp: WeightSpaceGP) -> SquareRootPosterior:
    """The posterior of the weights of a model, with a system for every output where these are independent."""
    noise = gp.noise if gp.covar_module.has_output_factor else None
    if isinstance(noise, IndependentNoise | KnownNoise) and gp.num_outputs > 1:
        system: Any = Regression(gp.covar_module, gp.mean_module, noise, has_grid=gp.has_grid).equations(gp.statistics)
        root = system.factor.covariance_root
        if root is not None and root.shape[-1] == gp.num_outputs and torch.equal(root, root.diagonal().diag()):
            return SquareRootPosterior.stacked([_of_output(system, root, t) for t in range(gp.num_outputs)])
    posterior = gp.weight_posterior()
    factor = gp.covar_module.output_factor()
    if isinstance(factor, Tensor):
        factor = OutputFactor.kronecker(factor, gp.covar_module.num_scalar_features)
    return SquareRootPosterior.of(posterior, factor.double())


def _of_output(system: NormalEquations, root: Tensor, output: int) -> SquareRootPosterior:
    """The posterior of one of several independent outputs."""
    scale = root[output, output]
    groups = [(group.precision[output, output] * scale.square(), group.gram) for group in system.sums.groups]
    terms = [(precision, gram) for precision, gram in groups if float(precision)] or groups[:1]
    posterior = WeightPosterior(terms, scale * system.sums.cross[:, output])
    return SquareRootPosterior.of(posterior, OutputFactor.kronecker(scale.reshape(1, 1), system.factor.num_scalar))
