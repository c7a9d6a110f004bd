"""The systems that the rows of a model make in blocks."""

from __future__ import annotations

from typing import Any

from gpytorch.means import Mean

from ..noise import NoiseModel
from ..noise.class_labels import ClassLabels
from .class_systems import ClassSystems
from .one_output import OneOutput
from .output_systems import OutputSystems
from .systems import LocalSystems


def systems_of(kernel: Any, mean: Mean, noise: NoiseModel) -> LocalSystems:
    """The systems of one output, of classes, or of the outputs of a separable kernel, at the present parameters."""
    if isinstance(noise, ClassLabels):
        return ClassSystems(kernel, mean, noise)
    if not noise.targets.has_columns:
        return OneOutput(kernel, mean, noise)
    separated = kernel.separated()
    if separated is None:
        raise ValueError(
            "expected a MultitaskKernel for block_size with several outputs, got "
            f"{type(kernel.exact_kernel).__name__}; use one, or leave block_size out"
        )
    scalar, covariance = separated
    return OutputSystems(scalar, covariance, mean, noise)
