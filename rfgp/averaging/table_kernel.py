"""The kernel of a small table: a constant, linear and additive parts, and a Matern kernel that shrinks to isotropy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from .functions import MaternPart, PriorFunctions, decay
from .target_kernel import Floats, TargetKernel

LENGTHS = (1.0, 0.3)
"""The lengthscales of the additive parts."""
_WIDTH, _DEGREES = 0.5, 3.0
"""Scale and degrees of freedom of the prior of deviations of log lengthscales."""
_SMALLEST = 1e-6
"""The smallest noise variance."""
_FIXED = 1 + len(LENGTHS)


def fixed_matrices(x: Tensor, z: Tensor) -> Tensor:
    """The parts without parameters but a scale, (F, N, M): linear, and mean Matern kernels of single inputs."""
    dim = max(x.shape[1], 1)
    parts = x.new_zeros(_FIXED, len(x), len(z))
    torch.matmul(x, z.mT, out=parts[0])
    for part, length in zip(parts[1:], LENGTHS, strict=True):
        for column, other in zip(x.mT * (math.sqrt(5.0) / length), z.mT * (math.sqrt(5.0) / length), strict=True):
            part.add_(_polynomial((column.unsqueeze(-1) - other).abs_()).mul_(decay(column, other)))
    return parts.div_(dim)


def _matern(distance: Tensor) -> Tensor:
    """The Matern-5/2 kernel of a distance times the root of five over the lengthscale."""
    return _polynomial(distance).mul_(torch.exp(-distance))


def _polynomial(distance: Tensor) -> Tensor:
    """1 + r + r^2 / 3 of distances r."""
    return (distance / 3.0).add_(1.0).mul_(distance).add_(1.0)


def has_lengthscales(num_columns: int, num_rows: int) -> bool:
    """Whether each input has a lengthscale: where the rows tell it."""
    return num_columns <= max(10, min(50, num_rows // 3))


class FixedParts:
    """Scaled inputs, and what :func:`fixed_matrices` makes of them, which pickles lack: it is larger than all the rest.

    :ivar x: inputs (N, d).
    :ivar fixed: matrices (F, N, N).
    """

    x: Tensor
    fixed: Tensor

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "fixed": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, fixed=fixed_matrices(state["x"], state["x"]))


class KernelPrior(FixedParts):
    r"""A kernel of d standardized inputs and the noise, with a prior, for rows (N, d).

    .. math:: k(x, z) = 1 + s_L \frac{x^\top z}{d} + \sum_l \frac{s_l}{d} \sum_k \kappa_l(|x_k - z_k|)
        + s\, \kappa\big(|a \circ (x - z)|\big), \qquad a_k = a e^{\delta_k}, \quad \delta_k \sim t_3(\tfrac12)

    Its parameters are a vector: :math:`\delta` if each input has a lengthscale, :math:`\log a`, :math:`\log s`, the
    logarithms of the other scales, and that of the noise variance. Priors but that of :math:`\delta` are normal.

    :param x: inputs.
    :param fixed: the matrices of :func:`fixed_matrices` at these inputs.
    :param has_lengthscales: whether each input has a lengthscale.
    """

    def __init__(self, x: Tensor, fixed: Tensor, has_lengthscales: bool) -> None:
        self.x, self.fixed = x, fixed
        dim = self.num_deviations = x.shape[1] if has_lengthscales else 0
        scale = -0.5 * math.log(max(x.shape[1], 1))
        self.center = np.r_[np.zeros(dim), scale, -0.5, [-2.0] * _FIXED, math.log(0.05)]
        self.width = np.r_[[np.inf] * dim, 1.0, 1.5, [2.0] * _FIXED, 2.0]
        low = np.r_[[-9.0] * dim, -8.0, [-14.0] * (1 + _FIXED), math.log(_SMALLEST)]
        high = np.r_[[5.0] * dim, 4.0, [6.0] * (1 + _FIXED), 1.5]
        self.bounds: Sequence[tuple[float, float]] = [*zip(low.tolist(), high.tolist(), strict=True)]

    @property
    def start(self) -> Floats:
        """Where the search for the most probable parameters begins."""
        start = self.center.copy()
        start[self.num_deviations] -= 0.3
        return start

    def noise(self, vector: Floats) -> float:
        """The noise variance."""
        return math.exp(vector[-1])

    def _weights(self, vector: Floats) -> Tensor:
        """The scales (F,) of the fixed parts."""
        return torch.from_numpy(np.exp(vector[self.num_deviations + 2 : -1]))

    def _fixed_part(self, vector: Floats, fixed: Tensor) -> Tensor:
        """The constant and the fixed parts, (N, M)."""
        return (self._weights(vector) @ fixed.flatten(1)).add_(1.0).reshape(fixed.shape[1:])

    def scale(self, vector: Floats) -> float:
        """The scale s of the part that has lengthscales."""
        return math.exp(vector[self.num_deviations + 1])

    def inverse_lengths(self, vector: Floats) -> Tensor:
        """The inverse lengthscales (d,) of this part."""
        count = self.num_deviations
        logs = vector[count] + (vector[:count] if count else np.zeros(self.x.shape[1]))
        return torch.from_numpy(np.exp(logs))

    def matrix(self, vector: Floats, x: Tensor, z: Tensor, fixed: Tensor) -> Tensor:
        """The kernel (N, M) at inputs (N, d) and (M, d), whose fixed parts (F, N, M) are known."""
        inverse, scale = self.inverse_lengths(vector), self.scale(vector)
        return self._fixed_part(vector, fixed).add_(_matern(_distances(x * inverse, z * inverse)), alpha=scale)

    def variance(self, vector: Floats, x: Tensor) -> Tensor:
        """The kernel of inputs (N, d) with themselves, (N,)."""
        linear, *others = self._weights(vector).tolist()
        constant = 1.0 + self.scale(vector) + (sum(others) if x.shape[1] else 0.0)
        return constant + linear * x.square().sum(-1) / max(x.shape[1], 1)

    def of_rows(self, vector: Floats) -> tuple[Tensor, Callable[[Tensor], Floats]]:
        """The kernel (N, N) of the rows, and what makes derivatives by it, symmetric, those by the vector."""
        inverse, count = self.inverse_lengths(vector), self.num_deviations
        distance = _distances(self.x * inverse, self.x * inverse)
        decay = torch.exp(vector[count + 1] - distance)
        part = _polynomial(distance).mul_(decay)

        def slope(by_matrix: Tensor) -> Floats:
            by_square = distance.add(1.0).mul_(decay).mul_(by_matrix).mul_(-5.0 / 6.0)
            rows = by_square.sum(-1) @ self.x.square() - ((by_square @ self.x) * self.x).sum(0)
            of_lengths, flat = (4.0 * inverse.square() * rows).numpy(), by_matrix.reshape(-1)
            found = np.zeros_like(vector)
            found[:count] = of_lengths[:count]
            found[count] = of_lengths.sum()
            found[count + 1] = float(part.reshape(-1) @ flat)
            found[count + 2 : -1] = (self._weights(vector) * (self.fixed.flatten(1) @ flat)).numpy()
            return found

        return self._fixed_part(vector, self.fixed).add_(part), slope

    def prior(self, vector: Floats) -> tuple[float, Floats]:
        """Minus the log prior density, and its gradient."""
        standard, count = (vector - self.center) / self.width, self.num_deviations
        squares = (vector[:count] / _WIDTH) ** 2 / _DEGREES
        slope = standard / self.width
        slope[:count] += (_DEGREES + 1.0) / _DEGREES * vector[:count] / _WIDTH**2 / (1.0 + squares)
        return 0.5 * float(standard @ standard) + 0.5 * (_DEGREES + 1.0) * float(np.log1p(squares).sum()), slope


class TableKernel(KernelPrior, TargetKernel):
    """The same with targets (N,) of variance one, and what they say of the parameters.

    :param y: targets.
    """

    def __init__(self, x: Tensor, y: Tensor, fixed: Tensor, has_lengthscales: bool) -> None:
        super().__init__(x, fixed, has_lengthscales)
        self.y = y

    def between(self, x: Tensor, z: Tensor) -> Callable[[Floats], Tensor]:
        fixed = fixed_matrices(x, z)
        return lambda vector: self.matrix(vector, x, z, fixed)

    def drawn(self, vector: Floats, num_functions: int, generator: Generator | None) -> PriorFunctions:
        inverse, scale = self.inverse_lengths(vector), self.scale(vector)
        linear, *additive = self._weights(vector).tolist()
        dim, parts = len(inverse), [MaternPart(torch.tensor([scale], dtype=torch.float64), 2.5, inverse)]
        for weight, length in zip(additive, LENGTHS, strict=True):
            weights = torch.full_like(inverse, weight / max(dim, 1))
            parts.append(MaternPart(weights, 2.5, torch.full_like(inverse, 1.0 / length), is_additive=True))
        return PriorFunctions(dim, linear, parts, num_functions, generator)


def _distances(x: Tensor, z: Tensor) -> Tensor:
    """Distances (N, M) of rows, times the root of five."""
    squares = torch.addmm(x.square().sum(-1, keepdim=True) + z.square().sum(-1), x, z.mT, alpha=-2.0)
    return squares.clamp_(min=0.0).mul_(5.0).sqrt_()
