"""An exact Gaussian-process regression in float64, with features that precondition it."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, Self

from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from torch import Tensor

from .. import _checks
from ..approximation import approximate
from ..inference import noise_model
from ..kernels import RandomFeatureKernel, with_features
from .kernel_matrix import KernelMatrix
from .preconditioner import FeaturePreconditioner


class Problem(NamedTuple):
    """An exact regression with known parameters.

    :param matrix: the exact kernel matrix of the rows.
    :param noise: their noise variances, (N,).
    :param preconditioner: the features.
    """

    matrix: KernelMatrix
    noise: Tensor
    preconditioner: FeaturePreconditioner

    @classmethod
    def of(cls, kernel: RandomFeatureKernel, x: Tensor, noise: Tensor) -> Self:
        """The problem of a kernel with features, and of the exact one that it approximates."""
        exact = copy.deepcopy(kernel.exact_kernel).double()
        matrix = KernelMatrix(exact, x.double())
        features: Any = copy.deepcopy(kernel).double()
        return cls(matrix, noise, FeaturePreconditioner(features, x.double(), noise, matrix.standard_deviations()))


def with_landmarks(kernel: Kernel, x: Tensor, num_landmarks: int) -> RandomFeatureKernel:
    """The kernel, where its features are those of landmarks, or its exact kernel with landmarks."""
    _checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel", "such as ScaleKernel(RBFKernel())")
    if isinstance(kernel, RandomFeatureKernel) and kernel.has_residual_covariance and not kernel.has_output_factor:
        return kernel
    exact = copy.deepcopy(getattr(kernel, "exact_kernel", kernel)).double()
    count = min(_checks.positive_integer("num_landmarks", num_landmarks), len(x))
    return with_features(approximate(exact, count, method="landmarks", train_inputs=x.double(), seed=0))


def targets_and_noise(likelihood: Likelihood, x: Tensor, y: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
    """Checked targets and noise variances (N,), in float64."""
    _checks.instance("likelihood", likelihood, Likelihood, "a GPyTorch likelihood", "such as GaussianLikelihood()")
    known = noise_model(likelihood)
    if known.num_systems * known.num_outputs > 1 or known.is_batched or known.is_complex:
        raise ValueError(
            f"expected a Gaussian or fixed-noise likelihood of one output, got {type(likelihood).__name__}; certify "
            "outputs one by one"
        )
    rows = known.rows(x, y, noise, x.new_zeros(len(x), 0), is_all=True)
    return rows.targets[:, 0].detach().double(), known.variances(rows).detach()
