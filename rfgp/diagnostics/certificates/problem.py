"""An exact Gaussian-process regression in float64, with features that precondition it."""

from __future__ import annotations

import copy
from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from torch import Tensor

from ..._support import checks
from ...approximation import FeatureKernel
from ...approximation.landmarks import Landmarks, choose_landmarks
from ...inference import noise_model
from ...kernels.checked import check_columns
from ...linalg import row_chunks
from .kernel_matrix import KernelMatrix
from .preconditioner import FeaturePreconditioner, LandmarkPreconditioner


def exact_matrix(kernel: Kernel, x: Tensor) -> KernelMatrix:
    """The matrix of an exact kernel, or of the exact one that a kernel approximates, at inputs (N, d)."""
    checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel", "such as ScaleKernel(RBFKernel())")
    exact = getattr(kernel, "exact_kernel", kernel)
    check_columns(exact, x)
    return KernelMatrix(exact, x)


def landmark_preconditioner(
    matrix: KernelMatrix, kernel: Any, x: Tensor, noise: Tensor, num_landmarks: int
) -> LandmarkPreconditioner:
    """The preconditioner of the landmarks that a kernel has, or else of random rows."""
    num_landmarks = checks.positive_integer("num_landmarks", num_landmarks)
    maps = kernel.unscaled.maps if isinstance(kernel, FeatureKernel) else None
    if isinstance(maps, Landmarks):
        return LandmarkPreconditioner(matrix, maps.landmarks.detach().double(), noise)
    landmarks = choose_landmarks(kernel, matrix.select(x), num_landmarks, "landmarks", seed=0)
    return LandmarkPreconditioner(matrix, landmarks, noise)


@torch.no_grad()
def feature_preconditioner(kernel: Any, x: Tensor, noise: Tensor) -> FeaturePreconditioner:
    """The preconditioner of the features of a kernel of one output."""
    exact = copy.deepcopy(kernel).double()
    rows = x.double()
    exact.scalar_features(rows[:1])
    width = exact.num_scalar_features * (2 if exact.is_complex else 1)
    what = f"a preconditioner of {len(x)} x {width} features"
    checks.fits_in_memory(8.0 * width * (len(x) + 3.0 * width), what, "choose fewer features")
    features = rows.new_empty(len(rows), width)
    for part in row_chunks(len(rows), width):
        values = exact.output_factor().reshape(()) * exact.scalar_features(rows[part])
        features[part] = torch.cat([values.real, values.imag], dim=-1) if values.is_complex() else values
    return FeaturePreconditioner(features, noise)


def targets_and_noise(likelihood: Likelihood, x: Tensor, y: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
    """Checked targets and noise variances (N,), in float64."""
    checks.instance("likelihood", likelihood, Likelihood, "a GPyTorch likelihood", "such as GaussianLikelihood()")
    model = noise_model(likelihood)
    if model.num_systems * model.num_outputs > 1 or model.is_batched or model.is_complex:
        raise ValueError(
            f"expected a Gaussian or fixed-noise likelihood of one output, got {type(likelihood).__name__}; certify "
            "outputs one by one"
        )
    rows = model.rows(x, y, noise, x.new_zeros(len(x), 0), is_all=True)
    return rows.targets[:, 0].detach().double(), model.variances(rows).detach()
