"""The posterior of the weights in square-root form, which further observations update by a few columns."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from ...linalg.cholesky_factor import factor_of
from .factor import OutputFactor
from .posterior import GaussianPosterior

_ROWS = 512
"""So many rows at a time are conditioned on; their number may exceed that of the weights."""


class SquareRootPosterior(GaussianPosterior):
    r"""Functions :math:`f_t(x) = \psi(x)^\top w_t` whose weights have a mean and a root of their covariance.

    .. math:: w_t = \bar w_t + V_t P_1 P_2 \cdots \epsilon, \qquad \epsilon \sim N(0, I), \qquad
        P_i = I - U_i A_i U_i^\top

    There are M systems of T outputs each: (M, T) = (1, 1) for one output, (T, 1) for independent outputs, and (1, T)
    for
    correlated ones. q observations with noise covariance S and residual r update, at O(D^2 q), with
    :math:`U = R^\top S^{-1/2}` of their root R and the Cholesky factor L of :math:`I + U^\top U`,

    .. math:: P = I - U L^{-\top} (L + I)^{-1} U^\top, \qquad
        \bar w' = \bar w + V U (L L^\top)^{-1} S^{-1/2} r

    As a posterior of weights it has the factor ``OutputFactor.kronecker(torch.eye(M * T), n)``. Differentiable.

    :param mean_weights: the mean of the weights, (..., M, T, n), in float64.
    :param root: V, (M, T, n, K), in float64, shared by batches.
    :param updates: pairs of columns U, (..., M, K, r), and cores A, (..., M, r, r).

    Source: A. Andrews, A square root formulation of the Kalman covariance equations, AIAA Journal 6 (1968).
    """

    def __init__(self, mean_weights: Tensor, root: Tensor, updates: Sequence[tuple[Tensor, Tensor]] = ()) -> None:
        self.mean_weights, self.root, self.updates = mean_weights, root, tuple(updates)
        self.mean = mean_weights.movedim(-1, -3).flatten(-3).unsqueeze(-1)

    @classmethod
    def of(cls, posterior: GaussianPosterior, factor: OutputFactor) -> Self:
        """The same posterior with a root, as one system; refused for a batch of posteriors."""
        if posterior.batch_shape:
            raise ValueError(
                f"expected one posterior, got a batch of {tuple(posterior.batch_shape)}; take a model without classes"
            )
        identity = torch.eye(factor.num_scalar, dtype=posterior.mean.dtype, device=posterior.mean.device)
        rows = posterior.function_root(identity, factor)
        root = rows.unflatten(0, (factor.num_scalar, factor.num_outputs)).movedim(1, 0)
        return cls(factor.scalar_weights(posterior.mean).squeeze(-1).mT.unsqueeze(0), root.unsqueeze(0).contiguous())

    @classmethod
    def stacked(cls, parts: Sequence[SquareRootPosterior]) -> Self:
        """Several posteriors without updates side by side, as independent systems."""
        return cls(torch.cat([part.mean_weights for part in parts], -3), torch.cat([part.root for part in parts]))

    @property
    def num_systems(self) -> int:
        """The number M of systems."""
        return self.root.shape[0]

    @property
    def num_outputs(self) -> int:
        """The number T of outputs of one system."""
        return self.root.shape[1]

    def mean_at(self, features: Tensor) -> Tensor:
        """The mean (..., M, q, T) of the functions, for scalar features (..., q, n) in float64."""
        return torch.einsum("...qn,...mtn->...mqt", features, self.mean_weights)

    def root_at(self, features: Tensor) -> Tensor:
        """A root (..., M, q T, K) of the covariance of the functions, rows interleaved, at features (..., q, n)."""
        rows = torch.einsum("...qn,mtnk->...mqtk", features, self.root).flatten(-3, -2)
        for columns, core in self.updates:
            rows = rows - (rows @ columns) @ core @ columns.mT
        return rows

    def select(self, outputs: Sequence[int]) -> SquareRootPosterior:
        """The posterior of some of the outputs."""
        index = torch.tensor(list(outputs), device=self.root.device)
        if self.num_outputs > 1:
            return SquareRootPosterior(self.mean_weights.index_select(-2, index), self.root[:, index], self.updates)
        parts = [tuple(part.index_select(-3, index) for part in update) for update in self.updates]
        return SquareRootPosterior(
            self.mean_weights.index_select(-3, index), self.root[index], [(columns, core) for columns, core in parts]
        )

    def conditioned(self, features: Tensor, residual: Tensor, noise: Tensor) -> SquareRootPosterior:
        """The posterior given observations at further inputs.

        :param features: scalar features of the inputs, (..., q, n), in float64.
        :param residual: the observations minus their prior mean, (..., M, q, T), with further batch dimensions or not.
        :param noise: the noise covariance of the outputs at every input, (..., M, q, T, T).
        :raises ValueError: where a noise covariance is not positive definite.
        """
        result = self
        for start in range(0, features.shape[-2], _ROWS):
            rows = slice(start, start + _ROWS)
            result = result._conditioned(features[..., rows, :], residual[..., rows, :], noise[..., rows, :, :])
        return result

    def _conditioned(self, features: Tensor, residual: Tensor, noise: Tensor) -> SquareRootPosterior:
        """:meth:`conditioned` on not too many observations."""
        shape = (features.shape[-2], self.num_outputs)
        factor = factor_of(noise)
        rows = torch.linalg.solve_triangular(factor, self.root_at(features).unflatten(-2, shape), upper=False)
        surprise = (residual - self.mean_at(features)).unsqueeze(-1)
        surprise = torch.linalg.solve_triangular(factor, surprise, upper=False).flatten(-3, -2)
        columns = rows.flatten(-3, -2).mT
        identity = torch.eye(columns.shape[-1], dtype=columns.dtype, device=columns.device)
        lower = factor_of(identity + columns.mT @ columns)
        inverse = torch.linalg.solve_triangular(lower + identity, identity.expand_as(lower), upper=False)
        core = torch.linalg.solve_triangular(lower.mT, inverse, upper=True)
        gain = columns @ torch.cholesky_solve(surprise, lower)
        for update, core_of_update in self.updates[::-1]:
            gain = gain - update @ (core_of_update @ (update.mT @ gain))
        mean = self.mean_weights + torch.einsum("mtnk,...mk->...mtn", self.root, gain.squeeze(-1))
        if columns.dim() > 3:
            return SquareRootPosterior(mean, self.root, [*self.updates, (columns, core)])
        flat = self.root.flatten(1, 2)
        root = torch.baddbmm(flat, flat @ columns @ core, columns.mT, alpha=-1.0)
        return SquareRootPosterior(mean, root.view_as(self.root))

    def draws(self, num_samples: int) -> Tensor:
        """Draws of the weights, (S, ..., M, T, n), where ... are the batch dimensions of the updates."""
        batch = torch.broadcast_shapes(*[columns.shape[:-3] for columns, _ in self.updates])
        shape = (num_samples, *batch, self.num_systems, self.root.shape[-1])
        noise = torch.randn(shape, dtype=self.root.dtype, device=self.root.device).unsqueeze(-1)
        for columns, core in self.updates[::-1]:
            noise = noise - columns @ (core @ (columns.mT @ noise))
        return self.mean_weights + torch.einsum("mtnk,...mk->...mtn", self.root, noise.squeeze(-1))

    @functools.cached_property
    def _covariance_root(self) -> Tensor:
        """A root (..., n M T, M K) of the covariance of all weights."""
        rows = self.root.flatten(1, 2)
        for columns, core in self.updates:
            rows = rows - (rows @ columns) @ core @ columns.mT
        by_system = rows.unflatten(-2, self.root.shape[1:3]).movedim(-2, -4)
        return torch.diag_embed(by_system.movedim(-3, -1), dim1=-4, dim2=-2).flatten(-2).flatten(-4, -2)

    def solve(self, rhs: Tensor) -> Tensor:
        return self._covariance_root @ (self._covariance_root.mT @ rhs)

    def function_root(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        return outputs.features(scalar.double()) @ self._covariance_root

    def deviations(self, num_samples: int) -> Tensor:
        root = self._covariance_root
        return root @ root.new_empty(*root.shape[:-2], root.shape[-1], num_samples).normal_()
