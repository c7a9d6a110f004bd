"""Rows of training data as the noise model of a weight-space model sees them, checked."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _checks
from ..inference import Rows, SufficientStatistics
from ..inference.mean_basis import basis
from ..inference.regression import check_size
from ..kernels.reference_tensor import reference_tensor
from ..linalg import product_dtype, sample_rows
from .weight_space_parts import WeightSpaceParts


class TakesRows(WeightSpaceParts):
    """A weight-space model that checks rows, and chooses the dtype of their products."""

    def _checked_rows(self, x: Tensor, y: Tensor, noise: Tensor | None, is_all: bool) -> Rows:
        """Checked rows as the noise model sees them."""
        _checks.finite(_checks.inputs(x).detach())
        if x.dim() != 2:
            raise ValueError(f"expected training inputs of shape (N, d), got {tuple(x.shape)}; fit one model per batch")
        _checks.same_kind(x, reference_tensor(self.covar_module, x), "x", "the kernel")
        if self.covar_module.has_output_factor:
            with torch.no_grad():
                self.covar_module.scalar_features(x[:1])
        rows = self._noise.rows(x, y, noise, basis(self.mean_module, x), is_all)
        if self.covar_module.has_output_factor:
            check_size(self._features.output_factor(), rows.num_groups)
        return rows

    def _product_dtype(self, x: Tensor, rows: Rows) -> torch.dtype:
        if self.product_dtype is not None:
            return self.product_dtype
        if x.dtype != torch.float32:
            return torch.float64
        return product_dtype(x.dtype, self._noise.smallest(rows), lambda: self._largest_variance(x))

    @torch.no_grad()
    def _largest_variance(self, x: Tensor) -> float:
        """The largest prior variance at some of the inputs: evenly spaced ones, and the one farthest from zero."""
        farthest = x.square().sum(-1).argmax(0, keepdim=True)
        features = self._features.scalar_features(torch.cat([sample_rows(x), x.index_select(0, farthest)]))
        return self._regression().factor().largest_square(features)


def finite(statistics: SufficientStatistics, x: Tensor) -> SufficientStatistics:
    """The statistics, or a ValueError where some are not finite."""
    if not statistics.is_finite:
        raise _checks.overflow(x)
    return statistics
