"""The kernel of smooth functions: an RBF kernel of all inputs together, and one of each input alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Generator, Tensor

from .functions import MaternPart, PriorFunctions
from .target_kernel import Floats, TargetKernel

_SMALLEST = 1e-8
"""The smallest noise variance."""


class SmoothKernel(TargetKernel):
    r"""A kernel of d standardized inputs and the noise, for rows (N, d) and targets (N,).

    .. math:: k(x, z) = 1 + s \exp\Big(-\tfrac12 \sum_k a_k^2 (x_k - z_k)^2\Big)
        + \sum_k s_k \exp\big(-\tfrac12 b_k^2 (x_k - z_k)^2\big)

    Its parameters are the logarithms of a (d,), b (d,), those of the scales of single inputs (d,), that of s, and that
    of the noise variance. Their priors are normal. What runs of a simulator compute is such a function: effects of
    single inputs have most of its variance, and it has little noise.
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y
        dim, length = x.shape[1], 1.5 + 0.5 * math.log(max(x.shape[1], 1))
        self.center = np.r_[[-length] * dim, [-0.75] * dim, [-2.0] * dim, 0.0, -12.0]
        self.width = np.r_[[math.sqrt(3.0)] * dim, [1.0] * dim, [3.0] * dim, 3.0, 5.0]
        self.bounds = [(-7.0, 3.0)] * (2 * dim) + [(-9.0, 7.0)] * (dim + 1) + [(math.log(_SMALLEST), 1.0)]

    @property
    def start(self) -> Floats:
        start, dim = self.center.copy(), self.x.shape[1]
        start[:dim] += 0.25
        start[2 * dim : 3 * dim], start[-1] = -1.0, -9.0
        return start

    def prior(self, vector: Floats) -> tuple[float, Floats]:
        standard = (vector - self.center) / self.width
        return 0.5 * float(standard @ standard), standard / self.width

    def scale(self, vector: Floats) -> float:
        return math.exp(vector[-2])

    def inverse_lengths(self, vector: Floats) -> Tensor:
        return torch.from_numpy(np.exp(vector[: self.x.shape[1]]))

    def _parts(self, vector: Floats) -> tuple[float, Tensor, Tensor, Tensor]:
        """Of all inputs together the scale and inverse lengthscales (d,), and of single inputs both, (d,)."""
        _, single, scales = torch.from_numpy(np.exp(vector[:-2])).chunk(3)
        return self.scale(vector), self.inverse_lengths(vector), scales, single

    def of_rows(self, vector: Floats) -> tuple[Tensor, Callable[[Tensor], Floats]]:
        scale, joint, scales, single = self._parts(vector)
        part = _joint(self.x * joint, self.x * joint).mul_(scale)
        alone = [*_singles(self.x * single, self.x * single)]

        def slope(by_matrix: Tensor) -> Floats:
            by_joint, squares = _squares(part * by_matrix, self.x)
            by_lengths, of_scales = [-joint.square() * squares], []
            for k, one in enumerate(alone):
                total, squares = _squares(one * by_matrix, self.x[:, k : k + 1])
                of_scales.append(scales[k : k + 1] * total)
                by_lengths.append(-scales[k] * single[k].square() * squares)
            return torch.cat([*by_lengths, *of_scales, by_joint.reshape(1), torch.zeros(1)]).numpy()

        total = part + 1.0
        for k, one in enumerate(alone):
            total.add_(one, alpha=float(scales[k]))
        return total, slope

    def between(self, x: Tensor, z: Tensor) -> Callable[[Floats], Tensor]:
        def matrix(vector: Floats) -> Tensor:
            scale, joint, scales, single = self._parts(vector)
            total = _joint(x * joint, z * joint).mul_(scale).add_(1.0)
            for k, one in enumerate(_singles(x * single, z * single)):
                total.add_(one, alpha=float(scales[k]))
            return total

        return matrix

    def variance(self, vector: Floats, x: Tensor) -> Tensor:
        scale, _, scales, _ = self._parts(vector)
        return x.new_full((len(x),), 1.0 + scale + float(scales.sum()))

    def drawn(self, vector: Floats, num_functions: int, generator: Generator | None) -> PriorFunctions:
        scale, joint, scales, single = self._parts(vector)
        together = MaternPart(torch.tensor([scale], dtype=torch.float64), math.inf, joint)
        parts = [together, MaternPart(scales, math.inf, single, is_additive=True)]
        return PriorFunctions(len(joint), 0.0, parts, num_functions, generator)


def _joint(x: Tensor, z: Tensor) -> Tensor:
    """The RBF kernel (N, M) of inputs divided by lengthscales."""
    norms = x.square().sum(-1, keepdim=True) + z.square().sum(-1)
    return torch.addmm(norms, x, z.mT, beta=-0.5).clamp_(max=0.0).exp_()


def _singles(x: Tensor, z: Tensor) -> Iterator[Tensor]:
    """Those of single inputs, one after the other."""
    for column, other in zip(x.mT * math.sqrt(0.5), z.mT * math.sqrt(0.5), strict=True):
        yield (column.unsqueeze(-1) - other).square_().neg_().exp_()


def _squares(weights: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of symmetric weights (N, N), and those (k,) of the squared differences of rows of x (N, k) by them."""
    of_one, of_x = (weights @ torch.cat([torch.ones_like(x[:, :1]), x], dim=-1)).split([1, x.shape[1]], dim=-1)
    return of_one.sum(), 2.0 * (x.square() * of_one - x * of_x).sum(0)
