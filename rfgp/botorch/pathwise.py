"""Features of kernels as BoTorch's pathwise sampling takes them."""

from __future__ import annotations

from typing import Any, cast

import torch
from botorch.sampling.pathwise.features import FeatureMap
from botorch.sampling.pathwise.features.generators import GenKernelFeatures
from torch import Tensor

from .._support import checks
from ..approximation import RandomFeatureKernel
from ..approximation.families.scale import FeatureScaleKernel


class PathwiseFeatureMap(FeatureMap):
    r"""The features of a kernel as a map of BoTorch's, which draws functions :math:`f(x) = \phi(x)^\top w`.

    BoTorch's pathwise sampling makes it for every kernel with features, once :mod:`rfgp.botorch` is imported. It takes
    the features that the kernel has, whatever ``num_features`` says, and no residual of truncated features.

    :param kernel: a kernel with scalar features; complex ones are taken as real and imaginary parts side by side.
    :param input_dim: the number of columns of the inputs.
    :raises ValueError: for a kernel of several outputs.

    Source: Wilson et al. (2020), Efficiently sampling functions from Gaussian process posteriors, Eq. 5.

    >>> import gpytorch, rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=64, input_dim=3, seed=0)
    >>> PathwiseFeatureMap(kernel, input_dim=3)(torch.zeros(5, 3)).shape
    torch.Size([5, 64])
    """

    def __init__(self, kernel: RandomFeatureKernel, input_dim: int) -> None:
        checks.instance("kernel", kernel, RandomFeatureKernel, "a kernel with features", "make one by approximate")
        input_dim = checks.positive_integer("input_dim", input_dim)
        if kernel.has_output_factor:
            raise ValueError(
                "expected a kernel of one output for BoTorch's pathwise sampling, got an operator-valued one; use "
                "MultiTaskGP, whose tasks are a column of the inputs"
            )
        super().__init__()
        self.kernel = kernel
        self.batch_shape = cast(torch.Size, kernel.batch_shape)
        self.input_transform = torch.nn.Identity()
        self.output_transform = torch.nn.Identity()
        with torch.no_grad():
            weight = next(kernel.parameters(), torch.zeros(()))
            self.num_outputs = self(weight.new_zeros(1, input_dim)).shape[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Real features (..., N, D) of inputs (..., N, d)."""
        features = self.kernel.features(x)
        return torch.cat([features.real, features.imag], dim=-1) if features.is_complex() else features


def _generate(kernel: RandomFeatureKernel, *, num_inputs: int, num_outputs: int, **_: Any) -> PathwiseFeatureMap:
    return PathwiseFeatureMap(kernel, num_inputs)


for _kind in (RandomFeatureKernel, FeatureScaleKernel):  # the second is a ScaleKernel too, which BoTorch knows
    GenKernelFeatures.register(_kind)(_generate)
