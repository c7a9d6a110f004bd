"""Rows and groups of rows that are left out of a weight-space model, without refits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _checks
from ..inference import LeaveGroupOut, LeaveOneOut, Rows
from ..inference.leave_out import FunctionsWithoutRows, leave_group_out, leave_one_out
from ..inference.left_out_rows import LeftOutRows, check_rows, other_rows
from ..inference.local import LocalRegression
from ..inference.local.left_out_blocks import LeftOutBlocks
from ..inference.training_residual import RESIDUALS
from .folds import folds
from .model_lock import alone
from .weight_space_updates import Updates


class LeaveOutFunctions:
    """The means of fits without each row, or each group of rows.

    :param draw: the functions of all rows.
    :param errors: what they leave of the targets of the group, of their shape, NaN where these are missing.
    :param numbers: the number of the group of every row, (N,).
    """

    def __init__(self, draw: Any, errors: Tensor, numbers: Tensor) -> None:
        self._draw, self.errors, self.numbers = draw, errors, numbers

    def __call__(self, x: Tensor) -> Tensor:
        """The means (G, n, T) at inputs (n, d)."""
        errors = self.errors.double().nan_to_num(0.0).reshape(len(self.errors), -1)
        means: Tensor = self._draw.means_without(x, errors, self.numbers, int(self.numbers.max()) + 1)
        return means


class LeavesOut(Updates):
    """A weight-space model that predicts its rows from the others."""

    @alone
    @torch.no_grad()
    def leave_one_out(self, x: Tensor, y: Tensor, noise: Tensor | None = None) -> LeaveOneOut:
        r"""The prediction of every row by a fit to all others with the same parameters, at O(N D^2) in all.

        .. math:: y_i - \mu_{-i} = \frac{y_i - \phi_i^\top m}{1 - H_{ii}}, \qquad
            \sigma^2_{-i} = \frac{s_i}{1 - H_{ii}}, \qquad H_{ii} = \phi_i^\top B^{-1} \bar\phi_i / s_i

        It equals ``likelihood(posterior(x_i))`` of the other rows: ``mean`` and ``variance`` are those of the
        observation, with noise, and ``latent_variance`` is that of the function. All T outputs of a row are left out
        together. Of several draws of the weights they are the moments of the mixture, as in :meth:`posterior`. Where
        the noise is tiny, it keeps its digits by further passes over the rows. With ``block_size`` the other rows stay
        in the blocks that they are in: see :meth:`leave_group_out`. Without gradients.

        :param x: the inputs (N, d) that were fitted, in any order.
        :param y: their targets, as in :meth:`condition`.
        :param noise: their noise variances, for a fixed-noise likelihood.
        :returns: ``(mean, variance, log_prob, latent_variance)``: (N,), or (N, T) with NaN for missing targets, or
            (C, N) for a Dirichlet likelihood; ``log_prob`` is (N,), and summed over classes. Of complex targets, proper
            or not, means are complex and variances :math:`E |z|^2`, (N,).
        :raises ValueError: for rows other than those of the fit.

        Source: errata, identity 4 of the last section.

        >>> import gpytorch, rfgp
        >>> x, y = torch.rand(100, 2), torch.rand(100)
        >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2)
        >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
        >>> model.leave_one_out(x, y).log_prob.shape
        torch.Size([100])
        """
        x, rows, draws, residual = self._left_out(x, y, noise)
        return leave_one_out(x, rows, self._noise, draws, residual)

    @alone
    @torch.no_grad()
    def leave_group_out(
        self, x: Tensor, y: Tensor, groups: Tensor | int, noise: Tensor | None = None, *, seed: int = 0
    ) -> LeaveGroupOut:
        r"""The prediction of every group of rows by a fit to all others with the same parameters.

        .. math:: y_g - \mu_{-g} = (I - H_{gg})^{-1} (y_g - \Phi_g m), \qquad
            \Sigma_{-g} = (I - H_{gg})^{-1} S_g, \qquad H_{gg} = \Phi_g B^{-1} \Phi_g^H S_g^{-1}

        at O(N D^2) in all for groups of at most D values; groups of more are predicted from the sums over all others:
        two passes over the rows for up to 16 groups, and one more whenever their number doubles. It equals
        ``likelihood(posterior(x_g))`` of the other rows, as :meth:`leave_one_out` does, of which it is the form for
        stations, blocks of near rows, and folds.

        With ``block_size`` the other rows stay in the blocks that they are in, and predictions are given the nearest of
        them; with ``num_neighbors=None`` those of the same block, or none where the whole block is left out. It holds
        N (D + B) numbers.

        :param x: the inputs (N, d) that were fitted, in any order.
        :param y: their targets, as in :meth:`condition`.
        :param groups: the label of the group of every row, (N,), integers; or the number K of random folds. For a
            splitter of scikit-learn, ``labels[test] = k`` for the k-th of ``splitter.split(x)`` makes labels.
        :param noise: their noise variances, for a fixed-noise likelihood.
        :param seed: the seed of random folds; default: 0.
        :returns: ``(mean, variance, log_prob, latent_variance, labels, group_log_prob)``: the first four as in
            :meth:`leave_one_out`, with the log density of every row alone; the labels of the groups in ascending
            order, and the joint log density of each, (G,).
        :raises ValueError: for rows other than those of the fit, and for labels that are not (N,) integers of two
            groups or more.

        Source: errata, identities 4 and 7 of the last section.

        >>> import gpytorch, rfgp
        >>> x, y = torch.rand(100, 2), torch.rand(100)
        >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2)
        >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
        >>> station = torch.arange(100) // 10
        >>> model.leave_group_out(x, y, station).group_log_prob.shape
        torch.Size([10])
        >>> model.leave_group_out(x, y, 5).labels
        tensor([0, 1, 2, 3, 4])
        """
        known = group_labels(groups, x, seed)
        x, rows, draws, residual = self._left_out(x, y, noise)
        return leave_group_out(x, rows, self._noise, draws, residual, known)

    @alone
    @torch.no_grad()
    def leave_out_functions(
        self,
        x: Tensor,
        y: Tensor,
        groups: Tensor | int | None = None,
        noise: Tensor | None = None,
        *,
        seed: int = 0,
    ) -> LeaveOutFunctions:
        """The means at any inputs by fits to all rows but each row, or each group, without refits.

        :param x: the inputs (N, d) that were fitted.
        :param y: their targets, as in :meth:`condition`.
        :param groups: labels of groups, or their number, as in :meth:`leave_group_out`; default: every row alone.
        :param noise: their noise variances, for a fixed-noise likelihood.
        :param seed: the seed of random folds; default: 0.
        :returns: a callable from inputs (n, d) to means (G, n, T), in float64.
        :raises ValueError: for rows other than those of the fit, for class labels, complex values, models with blocks,
            and several draws of the weights.

        >>> import gpytorch, rfgp
        >>> x, y = torch.rand(100, 2), torch.rand(100)
        >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=2)
        >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
        >>> model.leave_out_functions(x, y)(x[:3]).shape
        torch.Size([100, 3, 1])
        """
        self._known()
        self._check_functions()
        _checks.inputs(x)
        _checks.seed(seed)
        known = torch.arange(len(x), device=x.device) if groups is None else group_labels(groups, x, seed)
        _, numbers = known.unique(return_inverse=True)
        x, rows, draws, residual = self._left_out(x, y, noise)
        found: LeaveOneOut | LeaveGroupOut
        if groups is None:
            found = leave_one_out(x, rows, self._noise, draws, residual)
        else:
            found = leave_group_out(x, rows, self._noise, draws, residual, known)
        return LeaveOutFunctions(draws[0], y - found.mean.reshape(y.shape), numbers)

    def _check_functions(self) -> None:
        """Raise a ValueError where a model has no functions without single rows or groups."""
        if self._noise.is_batched:
            raise ValueError(
                "expected a model of real targets, got one of class labels; take probabilities of rows that were not "
                "fitted to rfgp.conformal.ClassConditionalSets"
            )
        is_complex = self._noise.is_complex or self._noise.is_of_parts
        found = {
            "complex targets": is_complex,
            "complex features": self._features.is_complex and not is_complex,
            f"block_size={self.block_size}": self.block_size is not None,
            f"num_draws={self.num_draws}": self.num_draws > 1,
        }
        got = " and ".join(name for name, is_there in found.items() if is_there)
        if got:
            raise ValueError(
                "expected a model of real targets, with real features, without blocks and with one draw of the "
                f"weights, got one with {got}; "
                + (
                    "make one for the real and one for the imaginary part"
                    if is_complex
                    else "use rfgp.conformal.split_conformal with rows that were not fitted"
                )
            )

    def _left_out(
        self, x: Tensor, y: Tensor, noise: Tensor | None
    ) -> tuple[Tensor, Rows, list[FunctionsWithoutRows], Tensor | None]:
        """The rows, the functions without some of them for every draw of the weights, and what these lack."""
        statistics = self.statistics
        with self._nothing_lost_on_error():
            rows = self._checked_rows(x, y, noise, is_all=True)
            dtype = self._product_dtype(x, rows)
            regression = self._regression()
            if isinstance(regression, LocalRegression):
                numbers = self._numbers_of(x, *self._columns_and_variances(rows))
                if len(numbers.unique()) != len(self._known_rows().x):
                    raise other_rows()
                parts = regression, x, numbers.to(x.device), statistics
                return x, rows, [LeftOutBlocks(*parts, self.weight_posterior(), dtype)], None
            check_rows(statistics, rows)
            residual = RESIDUALS[self.residual]
            models = (self, *self.further_draws.of(self))
            draws: list[FunctionsWithoutRows] = [
                LeftOutRows(model._regression(), self._noise, x, rows, residual, model.weight_posterior(), dtype)
                for model in models
            ]
            return x, rows, draws, self.covar_module.residual_variance(x)


def group_labels(groups: Tensor | int, x: Tensor, seed: int = 0) -> Tensor:
    """The label of the group of every row, checked.

    :param groups: labels (N,), or the number of random folds.
    :param x: inputs, (N, d).
    :param seed: the seed of random folds.
    """
    _checks.seed(seed)
    if isinstance(groups, int):
        return folds(len(x), groups, seed).to(x.device)
    labels = _checks.integers(groups, "groups", "labels of groups")
    if labels.shape != (len(x),):
        raise ValueError(
            f"expected a label of its group for each of {len(x)} rows, got {tuple(labels.shape)}; "
            "pass as many, in one dimension"
        )
    if len(labels.unique()) < 2:
        raise ValueError("expected at least two groups, got one, without which no row is left; label the rows")
    return labels.to(x.device)
