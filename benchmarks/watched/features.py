"""Constructions of features beside writing them, and beside scikit-learn's."""

from __future__ import annotations

import gpytorch
import torch
from sklearn.kernel_approximation import PolynomialCountSketch, RBFSampler
from torch import Tensor

import rfgp
from rfgp.features import FeatureMap, polynomial_sketch

from .ratio import ratio

ROWS, COLUMNS, SKETCHED, DIMS, WIDTH, DEGREE = 2_000, 1024, 4096, 8, 1024, 3


def rows() -> Tensor:
    """Rows of unit length."""
    return torch.nn.functional.normalize(torch.rand(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0)), dim=-1)


def sketch(method: str, form: str) -> FeatureMap:
    """A sketch of a polynomial kernel."""
    return polynomial_sketch(method, form, COLUMNS, SKETCHED, DEGREE, torch.Generator().manual_seed(0))


class Sketches:
    """Times a pass that writes as many numbers."""

    params, param_names = ("tensor_srht:ctr", "tensor_srht:real", "tensor_sketch:real"), ("method",)
    unit = "ratio"

    def track_to_writing(self, method: str) -> float:
        x, output, own = rows(), torch.randn(ROWS, SKETCHED), sketch(*method.split(":"))
        return ratio(lambda: own(x), lambda: output * 2.0)


class Fourier:
    """Times scikit-learn's RBFSampler."""

    params, param_names = ("fourier", "fourier_orthogonal", "fourier_hadamard"), ("method",)
    unit = "ratio"

    def track_to_sklearn(self, method: str) -> float:
        x = rows()[:, :DIMS].contiguous()
        kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), WIDTH, method=method, input_dim=DIMS, seed=0)
        sampler = RBFSampler(n_components=WIDTH, random_state=0).fit(x.numpy())
        return ratio(lambda: kernel.features(x), lambda: sampler.transform(x.numpy()))


def track_tensor_sketch_to_sklearn() -> float:
    """Times scikit-learn's PolynomialCountSketch."""
    x, own = rows(), sketch("tensor_sketch", "real")
    other = PolynomialCountSketch(degree=DEGREE, n_components=SKETCHED, random_state=0).fit(x.numpy())
    return ratio(lambda: own(x), lambda: other.transform(x.numpy()))
