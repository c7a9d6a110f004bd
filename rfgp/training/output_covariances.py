"""Covariances of outputs and of their noise, written into the parameters of GPyTorch's modules."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import IndexKernel
from torch import Tensor

from .._support.constrained import set_within

_LEAST = 1e-8


@torch.no_grad()
def write_covariance(tasks: IndexKernel, matrix: Tensor, root: Tensor | None = None) -> None:
    """Set the covariance of outputs to a matrix (T, T), as far as its rank allows.

    :param root: a factor (T, T) of it, where one is known.
    """
    rank = tasks.covar_factor.shape[-1]
    factor = root if root is not None and rank == len(root) else _factor(matrix, rank)
    tasks.covar_factor.copy_(factor)
    rest = (matrix - factor @ factor.mT).diagonal()
    set_within(tasks, "var", rest.clamp_min(_LEAST * (float(matrix.diagonal().max()) or 1.0)))


@torch.no_grad()
def write_noise(likelihood: Any, matrix: Tensor) -> None:
    """Set the covariance of the noise to a matrix (T, T), as far as its rank allows."""
    if not likelihood.has_task_noise:
        set_within(likelihood, "noise", matrix.diagonal().mean())
        return
    levels = matrix.diagonal() if likelihood.rank == 0 else torch.linalg.eigvalsh(matrix)
    level = torch.zeros_like(levels[0])
    if likelihood.has_global_noise:
        is_full = likelihood.rank in (0, len(matrix))
        level = 0.5 * levels.min() if is_full else levels[: len(matrix) - likelihood.rank].mean()
        set_within(likelihood, "noise", level)
        level = likelihood.noise.double().reshape(())
    if likelihood.rank == 0:
        set_within(likelihood, "task_noises", matrix.diagonal() - level)
    else:
        rest = matrix - torch.diag(level.expand(len(matrix)))
        likelihood.task_noise_covar_factor.copy_(_factor(rest, likelihood.rank))


def _factor(matrix: Tensor, rank: int) -> Tensor:
    """The factor (T, rank) of a covariance: Cholesky's where all of it is wanted, else by leading eigenvectors."""
    if rank == len(matrix):
        root, info = torch.linalg.cholesky_ex(matrix)
        if not bool(info):
            return root
    values, vectors = torch.linalg.eigh(matrix)
    return vectors[:, len(values) - rank :] * values[len(values) - rank :].clamp_min(0.0).sqrt()
