"""Draws of the functions of a model, as one callable."""

from __future__ import annotations

import copy
from typing import Any

import torch
from botorch.models.model import Model
from torch import Tensor

from .._support import checks
from .functions import Functions


class ModelSamples:
    """Draws of the functions of a model, which keep their values; made by :meth:`WeightSpaceModel.sample_functions`.

    >>> import rfgp, torch
    >>> x = torch.rand(20, 2, dtype=torch.float64)
    >>> functions = rfgp.botorch.WeightSpaceModel(x, x.sum(-1, keepdim=True)).sample_functions(3)
    >>> isinstance(functions, ModelSamples), functions(x[:5]).shape
    (True, torch.Size([3, 5, 1]))
    """

    def __init__(self, functions: Functions, num_functions: int, model: Model) -> None:
        self._functions, self._weights = functions, functions.sample(num_functions)
        transforms = (getattr(model, name, None) for name in ("input_transform", "outcome_transform"))
        self._input_transform, self._outcome_transform = map(_values_of, transforms)

    def __call__(self, X: Tensor) -> Tensor:
        """The functions at X (..., q, d), as (S, ..., q, m)."""
        return self._untransformed(self._functions.values(self._weights, self._transformed(X)), X)

    def paths(self, X: Tensor, sample_shape: torch.Size) -> Tensor:
        """The functions, of this shape, at X (..., q, d), whose last batch dimensions are theirs: (..., q, m)."""
        weights = self._weights.unflatten(0, sample_shape) if sample_shape else self._weights.squeeze(0)
        return self._untransformed(self._functions.paths(weights, self._transformed(X)), X)

    def _transformed(self, X: Tensor) -> Tensor:
        checks.finite(checks.inputs(X, name="X").detach(), "X")
        return X if self._input_transform is None else self._input_transform(X)

    def _untransformed(self, values: Tensor, X: Tensor) -> Tensor:
        if self._outcome_transform is None:
            return values
        result: Tensor = self._outcome_transform.untransform(values, X=X)[0]
        return result


def _values_of(transform: Any) -> Any:
    """A copy of a transform, also of one that is computed from tensors with gradients."""
    buffers = [] if transform is None else list(transform.buffers())
    return copy.deepcopy(transform, {id(buffer): buffer.detach().clone() for buffer in buffers})
