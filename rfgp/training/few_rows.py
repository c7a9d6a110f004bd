"""Evidence of some rows, in place of that of all."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .objectives import Objective

_TRIAL_ROWS, _SHARE_OF_ERROR = 250, 0.1


class FewRows(Objective):
    """Laplace's evidence of a model on some rows x (n, d), and what other rows lose by it."""

    centers_inputs: ClassVar[bool] = False
    model: Any
    is_part: bool
    """Whether these are not all rows."""
    inputs: Tensor
    """The rows as the model has them, where ``x`` has their cells."""
    mode: Tensor | None = None

    @property
    def tolerance(self) -> float:
        """A tenth of the standard error of the gradient, where the rows are some of all."""
        return max(super().tolerance, _SHARE_OF_ERROR * len(self.x) ** -0.5 if self.is_part else 0.0)

    @property
    def outputs(self) -> Tensor:
        """Targets on the scale of the latent functions are not known."""
        return self.inputs.new_full((len(self.inputs), 1), torch.nan)

    def first_rows(self, size: int) -> None:
        return None

    def some_rows(self) -> Tensor | None:
        return torch.arange(_TRIAL_ROWS, device=self.x.device) if len(self.x) > _TRIAL_ROWS else None

    def finish(self) -> Tensor:
        return self.evidence()

    def kernel_and_inputs(self) -> tuple[Kernel, Tensor]:
        return self.model.covar_module.exact_kernel, self.inputs

    @abc.abstractmethod
    def loss(self, x: Tensor, y: Tensor) -> float:
        """The mean negative log density of other targets, given these rows; infinite where there is none."""
