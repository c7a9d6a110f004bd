"""Likelihoods of the cells of a table: one latent function for every task, and cells that may be missing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..._support import checks
from .latent_terms import LatentLikelihood, OneFunction, Terms, possible_targets


class TaskFunctions(LatentLikelihood):
    r"""A likelihood of one function for every observed cell :math:`y_{it}` of N rows of T tasks.

    .. math:: \log p(y_i \mid f_i) = \sum_{t \text{ observed}} \log p(y_{it} \mid f_{it})
    """

    def __init__(self, cell: OneFunction, num_tasks: int) -> None:
        super().__init__(cell.likelihood)
        self.cell, self.num_functions = cell, num_tasks

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(task, task) for task in range(self.num_functions)]

    def terms(self, f: Tensor, y: Tensor) -> Terms:
        is_there = ~torch.isnan(y)
        cells = self.cell.terms(f[is_there].unsqueeze(-1), y[is_there])

        def table(values: Tensor) -> Tensor:
            return torch.zeros_like(f).index_put((is_there,), values.reshape(-1))

        return Terms(table(cells.log_density).sum(-1), table(cells.slope), table(cells.curvature))

    def targets(self, y: Any, x: Tensor) -> Tensor:
        values = checks.tensor(y, "y")
        if values.shape != (len(x), self.num_functions) or values.is_complex():
            raise ValueError(
                f"expected real targets y of shape {(len(x), self.num_functions)}, with NaN for missing ones, got "
                f"{values.dtype} of shape {tuple(values.shape)}; give a column for every task"
            )
        if values.device != x.device:
            raise ValueError(f"expected y on {x.device}, where x is, got {values.device}; move it")
        constant = (values.clone() if values.is_inference() else values.detach()).double()
        if bool(torch.isinf(constant).any()):
            raise ValueError("expected finite targets y, or NaN for missing ones, got infinite ones; correct them")
        possible_targets(self.likelihood, constant)
        return constant
