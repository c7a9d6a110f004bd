"""The residual variance of the features in training: left out, a trace in the evidence, or noise of each row."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from .rows import Rows

if TYPE_CHECKING:
    from .accumulation import SummedKernel


class TrainingResidual(abc.ABC):
    r"""What the rows gain by the variance :math:`r(x) = k(x, x) - \|\phi(x)\|^2` that their features leave over."""

    is_noise: ClassVar[bool] = False
    """Whether the rows contain their noise and the variance, so that statistics depend on all parameters."""

    @abc.abstractmethod
    def prepared(self, rows: Rows, variances: Tensor) -> Rows:
        """Rows of noise variances (N,) with room for what is added chunk by chunk."""

    @abc.abstractmethod
    def added(self, kernel: SummedKernel, x: Tensor, rows: Rows) -> Rows:
        """A chunk of prepared rows with what the variance adds."""


class TraceResidual(TrainingResidual):
    r"""The trace of the variational bound (Titsias, 2009): a column of the roots of r, whose weighted square is summed.

    .. math:: \log p(y) \ge \log N(y \mid 0, \Phi \Phi^\top + S) - \tfrac12 \sum_i r(x_i) / s_i
    """

    def prepared(self, rows: Rows, variances: Tensor) -> Rows:
        return rows._replace(targets=torch.nn.functional.pad(rows.targets, (0, 1)))

    def added(self, kernel: SummedKernel, x: Tensor, rows: Rows) -> Rows:
        root = (_residual_variance(kernel, x) / kernel.total_outputscale).sqrt()
        return rows._replace(targets=torch.cat([rows.targets[:, :-1], root.unsqueeze(-1).to(rows.targets)], dim=-1))


class NoiseResidual(TrainingResidual):
    """The variance as independent noise of each row: FITC (Snelson and Ghahramani, 2006)."""

    is_noise = True

    def prepared(self, rows: Rows, variances: Tensor) -> Rows:
        return rows._replace(weights=1.0 / variances)

    def added(self, kernel: SummedKernel, x: Tensor, rows: Rows) -> Rows:
        weights = rows.all_weights().squeeze(-1)
        variances = 1.0 / weights + _residual_variance(kernel, x).double()
        return rows._replace(weights=1.0 / variances, log_noise=variances.log())


def _residual_variance(kernel: SummedKernel, x: Tensor) -> Tensor:
    variance: Tensor | None = kernel.residual_variance(x)
    if variance is None:
        raise ValueError(
            "expected features that leave variance over for residual, such as landmarks or a truncated series, got "
            'others, which estimate the whole kernel; use residual="none"'
        )
    return variance


RESIDUALS: dict[str, TrainingResidual | None] = {"none": None, "vfe": TraceResidual(), "fitc": NoiseResidual()}
"""What training makes of the residual variance of the features, by name."""
