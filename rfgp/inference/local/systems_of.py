"""The systems that the rows of a model make in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpytorch.means import Mean

from ..noise import NoiseModel
from ..noise.class_labels import ClassLabels
from ..noise.known import KnownNoise
from ..sums.rows import Rows
from .cells import CellRegression, CellSystem
from .class_systems import ClassSystems
from .noise import WhitenedNoise
from .one_output import OneOutput
from .output_regression import OutputRegression
from .output_systems import OutputSystems
from .regression import LocalRegression
from .rows import LocalRows
from .system_regression import SystemRegression
from .systems import LocalSystems

if TYPE_CHECKING:
    from ...approximation.random_feature_kernel import RandomFeatureKernel


def systems_of(kernel: RandomFeatureKernel, mean: Mean, noise: NoiseModel, has_cells: bool = False) -> LocalSystems:
    """The systems of one output, of classes, or of several outputs, at the present parameters.

    :param has_cells: whether every observed cell of several outputs is a row.
    """
    if isinstance(noise, ClassLabels):
        return ClassSystems(kernel, mean, noise)
    if not noise.targets.has_columns:
        return OneOutput(kernel, mean, noise)
    separated = None if has_cells else kernel.separated()
    if separated is None:
        return CellSystem(kernel, mean, noise)
    scalar, covariance = separated
    return OutputSystems(scalar, covariance, mean, noise)


def needs_cells(kernel: RandomFeatureKernel, noise: NoiseModel, rows: Rows) -> bool:
    """Whether rows of several outputs are not complete, or their covariance is not one product."""
    if not noise.targets.has_columns or noise.is_batched:
        return False
    is_incomplete = rows.num_groups > 1 or (rows.weights is not None and rows.is_in_all_groups)
    return is_incomplete or isinstance(noise, KnownNoise) or kernel.separated() is None


def regression_of(
    kernel: RandomFeatureKernel, mean: Mean, noise: NoiseModel, rows: LocalRows, num_neighbors: int | None
) -> LocalRegression | SystemRegression:
    """The regression on rows in blocks."""
    systems = systems_of(kernel, mean, noise, rows.has_cells)
    if isinstance(systems, CellSystem):
        return CellRegression(systems, mean, noise, rows, num_neighbors)
    if isinstance(systems, OutputSystems):
        return OutputRegression(systems, mean, noise, rows, num_neighbors)
    if isinstance(systems, ClassSystems):
        return SystemRegression(systems, mean, noise, rows, num_neighbors)
    return LocalRegression(kernel, mean, WhitenedNoise(noise), rows, num_neighbors)
