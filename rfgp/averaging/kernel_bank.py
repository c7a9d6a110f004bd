"""A bank of kernels of which each is decomposed once, so that all targets and noise ratios cost products with it."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from .functions import ConditionedKernel, DrawnFunctions, MaternPart, PriorFunctions, decay
from .input_scale import InputScale
from .member import MemberRows

RATIOS = torch.tensor([*torch.logspace(-6.0, math.log10(30.0), 20, dtype=torch.float64).tolist(), 1000.0]).double()
"""The noise variances, over the scale of the kernel."""
_SHAPE, _RATE = 1.0, 0.5
"""The inverse gamma prior of the scale of the kernel, in variances of the target."""


class Part(NamedTuple):
    """A Matern kernel of all inputs together, or the mean of those of single inputs, with one lengthscale."""

    smoothness: float
    length: float
    is_additive: bool = False


class Shape(NamedTuple):
    r"""A kernel without free parameters, of standardized inputs.

    .. math:: k(x, z) = 1 + s_L \frac{x^\top z}{d} + \sum_l s_l k_l(x, z)

    Distances of all inputs together are divided by :math:`\sqrt d`.

    :param linear: :math:`s_L`.
    :param parts: Matern parts and their weights.
    """

    linear: float
    parts: tuple[tuple[Part, float], ...] = ()


_JOINT = [Part(smoothness, length) for smoothness in (0.5, 2.5) for length in (0.25, 0.5, 1.0, 2.0, 4.0)]
_ADDITIVE = [Part(0.5, 1.0, is_additive=True), Part(2.5, 0.5, is_additive=True)]
SHAPES = (
    Shape(1.0),
    *(Shape(0.0, ((part, 1.0),)) for part in _JOINT + _ADDITIVE),
    *(Shape(0.5, ((part, 0.5),)) for part in _JOINT + _ADDITIVE),
    *(Shape(0.9, ((part, 0.1),)) for part in _JOINT),
    *(Shape(0.2, ((additive, 0.4), (joint, 0.4))) for additive in _ADDITIVE for joint in _JOINT),
)
"""Linear, of all inputs together, additive, and mixtures."""


class KernelSpectrum(NamedTuple):
    """Eigenvalues (N,) and eigenvectors (N, N) of the kernel matrix of the rows."""

    values: Tensor
    vectors: Tensor


class KernelCross(NamedTuple):
    """A kernel between the rows and M new inputs.

    :param projected: eigenvectors times the kernel, (N, M).
    :param variance: variances of functions at the new inputs for each noise ratio, (R, M).
    """

    projected: Tensor
    variance: Tensor


class KernelBank(MemberRows):
    """Shapes of kernels at training inputs on one scale, each with its eigenvectors.

    :param scale: the scale of the inputs.
    :param x: training inputs (N, d).
    :param shapes: the shapes.
    """

    def __init__(self, scale: InputScale, x: Tensor, shapes: Sequence[Shape]) -> None:
        self.scale, self.x, self.shapes = scale, scale(x), tuple(shapes)
        matrices = enumerate(kernels(self.x, self.x, self.shapes))
        self._spectra = {shape: KernelSpectrum(*torch.linalg.eigh(matrix)) for shape, matrix in matrices}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_spectra": {}}  # which follow from the inputs, and are larger than all the rest

    def some(self, shapes: Sequence[int]) -> KernelBank:
        """A bank of some of the shapes, by their numbers."""
        twin = copy.copy(self)
        twin.shapes = tuple(self.shapes[shape] for shape in shapes)
        twin._spectra = {number: self.spectrum(shape) for number, shape in enumerate(shapes)}
        return twin

    def spectrum(self, shape: int) -> KernelSpectrum:
        """The decomposition of one of the shapes, by its number."""
        if shape not in self._spectra:
            self._spectra[shape] = KernelSpectrum(
                *torch.linalg.eigh(next(kernels(self.x, self.x, [self.shapes[shape]])))
            )
        return self._spectra[shape]

    def with_inputs(self, x: Tensor) -> KernelBank:
        return KernelBank(self.scale, x, self.shapes)

    def precisions(self, shape: int) -> Tensor:
        """The inverse eigenvalues (R, N) of the covariance of the targets, for each noise ratio."""
        return 1.0 / (self.spectrum(shape).values.clamp_min(0.0) + RATIOS.unsqueeze(-1))

    def crosses(self, new: Tensor, shapes: Sequence[int]) -> dict[int, KernelCross]:
        """Some of the shapes, by their numbers, between the rows and new inputs (M, d) on their scale."""
        found = {}
        for shape, matrix in zip(shapes, kernels(self.x, new, [self.shapes[k] for k in shapes]), strict=True):
            projected = self.spectrum(shape).vectors.mT @ matrix
            variance = variances(new, self.shapes[shape]) - self.precisions(shape) @ projected.square()
            found[shape] = KernelCross(projected, variance.clamp_min_(0.0))
        return found

    def drawn(
        self, shape: int, ratio: int, y: Tensor, num_functions: int, generator: Generator | None
    ) -> DrawnFunctions:
        """Functions of targets (N, T) drawn from the posterior of one kernel and noise ratio."""
        precision, vectors = self.precisions(shape)[ratio], self.spectrum(shape).vectors
        wanted, dim = self.shapes[shape], self.x.shape[1]

        def solve(columns: Tensor) -> Tensor:
            return vectors @ (precision.unsqueeze(-1) * (vectors.mT @ columns))

        def cross(new: Tensor) -> Tensor:
            return next(kernels(new, self.x, [wanted]))

        parts = []
        for part, weight in wanted.parts:
            length = part.length if part.is_additive else part.length * math.sqrt(dim)
            inverse = torch.full((dim,), 1.0 / length, dtype=torch.float64)
            weights = torch.full((dim,), weight / dim) if part.is_additive else torch.tensor([weight])
            parts.append(MaternPart(weights.double(), part.smoothness, inverse, part.is_additive))
        scale = scales(precision, vectors.mT @ y)
        prior = PriorFunctions(dim, wanted.linear, parts, num_functions * y.shape[1], generator)
        return DrawnFunctions(prior, ConditionedKernel(self.x, y, float(RATIOS[ratio]), solve, cross, scale), generator)


def log_evidences(precisions: Tensor, projected: Tensor) -> Tensor:
    r"""The log densities (R, T) of targets for each noise ratio, with the scale of the kernel integrated out.

    :param precisions: inverse eigenvalues (R, N).
    :param projected: targets times eigenvectors, (N, T).
    """
    size = precisions.shape[1]
    shape = 0.5 * size + _SHAPE
    constant = math.lgamma(shape) - math.lgamma(_SHAPE) + _SHAPE * math.log(_RATE) - 0.5 * size * math.log(2 * math.pi)
    roots = 0.5 * precisions.log().sum(-1, keepdim=True)
    return constant + roots - shape * (_RATE + 0.5 * precisions @ projected.square()).log()


def scales(precision: Tensor, projected: Tensor) -> Tensor:
    """The most probable scales (T,) of the kernel, for inverse eigenvalues (N,)."""
    return (precision @ projected.square() + 2.0 * _RATE) / (len(precision) + 2.0 * _SHAPE)


def kernels(x: Tensor, z: Tensor, shapes: Sequence[Shape]) -> Iterator[Tensor]:
    """The matrices (N, M) of the shapes at scaled inputs (N, d) and (M, d)."""
    dim = max(x.shape[1], 1)
    squares = torch.addmm(x.square().sum(-1, keepdim=True) + z.square().sum(-1), x, z.mT, alpha=-2.0)
    distance = squares.clamp_(min=0.0).div_(dim).sqrt_()
    made: dict[Part, Tensor] = {}
    for shape in shapes:
        total = torch.addmm(x.new_ones(()), x, z.mT, alpha=shape.linear / dim)
        for part, weight in shape.parts:
            if part not in made:
                made[part] = _additive(x, z, part) if part.is_additive else _matern(distance, part)
            total.add_(made[part], alpha=weight)
        yield total


def variances(x: Tensor, shape: Shape) -> Tensor:
    """The kernel of scaled inputs (M, d) with themselves, (M,)."""
    constant = 1.0 + sum(weight for _, weight in shape.parts)
    return constant + shape.linear * x.square().sum(-1) / max(x.shape[1], 1)


def _additive(x: Tensor, z: Tensor, part: Part) -> Tensor:
    total, rate = x.new_zeros(len(x), len(z)), (1.0 if part.smoothness == 0.5 else math.sqrt(5.0)) / part.length
    for column, other in zip(x.mT * rate, z.mT * rate, strict=True):
        found = decay(column, other)
        if part.smoothness != 0.5:
            found.mul_(_polynomial((column.unsqueeze(-1) - other).abs_()))
        total += found
    return total.div_(max(x.shape[1], 1)) if x.shape[1] else total.add_(1.0)


def _matern(distance: Tensor, part: Part) -> Tensor:
    if part.smoothness == 0.5:
        return torch.exp(distance / -part.length)
    scaled = distance * (math.sqrt(5.0) / part.length)
    return _polynomial(scaled).mul_(torch.exp(-scaled))


def _polynomial(distance: Tensor) -> Tensor:
    """1 + r + r^2 / 3 of distances r."""
    return (distance / 3.0).add_(1.0).mul_(distance).add_(1.0)
