"""Variances by blocks of columns of a root equal dense ones, whatever the root and its width."""

import pytest
import torch

from rfgp.inference import OutputFactor, WeightPosterior
from rfgp.inference.posterior.posterior import PointVariance

pytestmark = pytest.mark.usefixtures("float64_default")

ROOTS = {
    "upper": torch.triu,
    "lower": torch.tril,
    "full": lambda root: root,
    "zero": torch.zeros_like,
    "banded": lambda root: root.triu(-3).tril(150),
}


@pytest.mark.parametrize("width", [1, 127, 128, 129, 300])
@pytest.mark.parametrize("form", ROOTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_blocks_of_columns(form, width, dtype):
    roots = [ROOTS[form](torch.randn(width, width, dtype=dtype)) for _ in range(2)]
    features = torch.randn(20, width, dtype=dtype)
    dense = torch.stack([(features @ root).abs().square().sum(-1) for root in roots], -1)
    torch.testing.assert_close(PointVariance(roots)(features), dense, rtol=1e-13, atol=1e-13)
    half = torch.complex64 if dtype.is_complex else torch.float32
    found = PointVariance(roots).to(torch.float32)(features.to(half))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), dense, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [5, 300])
def test_mixing(width):
    root, mixing, features = torch.randn(width, width), torch.rand(width, 4), torch.randn(20, width)
    dense = (features @ root).square() @ mixing
    torch.testing.assert_close(PointVariance([root], mixing)(features), dense, rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("outputs", [1, 3])
def test_wide_posteriors(outputs):
    """More columns than a block has, for one output and for several."""
    features = torch.randn(400, 150)
    factor = OutputFactor.kronecker(torch.randn(outputs, outputs).double(), 150)
    columns = factor.features(features)
    posterior = WeightPosterior(columns.mT @ columns, torch.randn(factor.num_columns, 1))
    found = posterior.point_variance(factor)(features[:20])
    expected = posterior.function_variance(features[:20], factor).unflatten(-1, (-1, outputs))
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=0.0)


def test_prior_variances():
    features, matrix = torch.randn(20, 6), torch.randn(3, 2)
    separable = OutputFactor.kronecker(matrix, 6)
    spectral = OutputFactor.spectral(torch.randn(3, 2, 2))
    for factor in (separable, spectral):
        expected = factor.features(features).square().sum(-1).unflatten(-1, (-1, factor.num_outputs))
        torch.testing.assert_close(factor.prior_variances(features), expected, rtol=1e-13, atol=0.0)
