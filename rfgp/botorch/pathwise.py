"""Features of kernels as BoTorch's pathwise sampling takes them."""

from __future__ import annotations

from typing import Any

import torch
from botorch.sampling.pathwise.features import FeatureMap
from botorch.sampling.pathwise.features.generators import GenKernelFeatures
from botorch.sampling.pathwise.paths import SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from torch import Tensor

from .._support import checks
from ..approximation import FeatureKernel
from .model import WeightSpaceModel


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

    def __init__(self, kernel: FeatureKernel, input_dim: int) -> None:
        checks.instance("kernel", kernel, FeatureKernel, "a kernel with features", "make one by approximate")
        input_dim = checks.positive_integer("input_dim", input_dim)
        if kernel.has_output_factor:
            raise ValueError(
                "expected a kernel of one output for BoTorch's pathwise sampling, got an operator-valued one; use "
                "MultiTaskGP, whose tasks are a column of the inputs"
            )
        super().__init__()
        self.kernel = kernel
        self.batch_shape = kernel.batch_shape
        self.input_transform = torch.nn.Identity()
        self.output_transform = torch.nn.Identity()
        with torch.no_grad():
            weight = next(kernel.parameters(), torch.zeros(()))
            self.num_outputs = self(weight.new_zeros(1, input_dim)).shape[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Real features (..., N, D) of inputs (..., N, d)."""
        features = self.kernel.features(x)
        return torch.cat([features.real, features.imag], dim=-1) if features.is_complex() else features


class FunctionPath(SamplePath):
    """Functions drawn from a :class:`WeightSpaceModel`, as BoTorch's Thompson sampling evaluates and optimizes them.

    BoTorch's ``draw_matheron_paths`` makes it for such a model.

    :param model: the model.
    :param sample_shape: the shape of the draws, which batch dimensions of inputs are broadcast with.

    >>> import torch
    >>> from botorch.sampling.pathwise import draw_matheron_paths
    >>> from rfgp.botorch import WeightSpaceModel
    >>> x = torch.rand(20, 2, dtype=torch.float64)
    >>> path = draw_matheron_paths(WeightSpaceModel(x, x.sum(-1, keepdim=True)), torch.Size([4]))
    >>> path(x[:5]).shape
    torch.Size([4, 5])
    """

    def __init__(self, model: WeightSpaceModel, sample_shape: torch.Size) -> None:
        super().__init__()
        self.samples, self.sample_shape = model.sample_functions(max(sample_shape.numel(), 1)), sample_shape
        self.num_outputs = model.num_outputs
        self.input_transform, self.output_transform = None, None

    def forward(self, x: Tensor) -> Tensor:
        """Values (..., q) at inputs (..., q, d); (..., m, q) at inputs (..., 1, q, d) for m outputs."""
        if self.num_outputs == 1:
            return self.samples.paths(x, self.sample_shape).squeeze(-1)
        return self.samples.paths(x.squeeze(-3), self.sample_shape).mT

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Nothing: a model has no ensemble."""


@DrawMatheronPaths.register(WeightSpaceModel)
def _draw(model: WeightSpaceModel, *, sample_shape: torch.Size, **_: object) -> FunctionPath:
    return FunctionPath(model, sample_shape)


def _generate(kernel: FeatureKernel, *, num_inputs: int, num_outputs: int, **_: Any) -> PathwiseFeatureMap:
    return PathwiseFeatureMap(kernel, num_inputs)


GenKernelFeatures.register(FeatureKernel)(_generate)
