"""What one regression in weight space needs of the data: sums over rows, weighted by the precision of their noise."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Group(NamedTuple):
    r"""The Gram matrix of rows that share one precision :math:`S_g^{-1}` of their outputs.

    :param precision: :math:`S_g^{-1}`, (..., T, T).
    :param gram: :math:`\Psi_g^H \Psi_g`, (..., n, n), of scalar features.

    >>> import torch
    >>> Group(precision=torch.ones(1, 1), gram=torch.eye(4)).gram.shape
    torch.Size([4, 4])
    """

    precision: Tensor
    gram: Tensor


class WeightedSums(NamedTuple):
    r"""Weighted sums over the residuals r of T outputs, from which the posterior follows, in float64.

    :param groups: the rows by the precision of their outputs.
    :param cross: :math:`\sum_g \Psi_g^H R_g S_g^{-1}`, (..., n, T, S), for S right-hand sides.
    :param quadratic: :math:`r^H S^{-1} r`, for one right-hand side.
    :param log_noise: :math:`\log|S|`.

    >>> import torch
    >>> group = Group(torch.ones(1, 1), torch.eye(4))
    >>> WeightedSums([group], torch.zeros(4, 1), torch.tensor(3.0), torch.tensor(0.0)).quadratic
    tensor(3.)
    """

    groups: list[Group]
    cross: Tensor
    quadratic: Tensor
    log_noise: Tensor


class ClassSums(NamedTuple):
    r"""The weighted sums of every class, beside Gram matrices.

    :param outside: the precisions of the noise of rows of other classes, (C,).
    :param inside: those of the rows of the class, (C,).
    :param cross: :math:`\Phi^H S_c^{-1} r_c`, (C, D).
    :param quadratic: :math:`r_c^H S_c^{-1} r_c`, (C,).
    :param log_noise: :math:`\log|S_c|`, (C,).
    """

    outside: Tensor
    inside: Tensor
    cross: Tensor
    quadratic: Tensor
    log_noise: Tensor
