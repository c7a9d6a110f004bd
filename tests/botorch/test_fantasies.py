"""Conditioning BoTorch's models with kernels of features on more observations: as with a dense kernel."""

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Standardize
from botorch.sampling import SobolQMCNormalSampler
from dense_features import DenseFeatureKernel
from gpytorch.kernels import RBFKernel, ScaleKernel

import rfgp

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
    pytest.mark.filterwarnings("ignore:Non-strict enforcement of botorch tensor conventions"),
]

COLUMNS = 2


def model(is_dense, batch_shape, num_outputs, transform):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(*batch_shape, 20, COLUMNS, generator=generator)
    y = torch.randn(*batch_shape, 20, num_outputs, generator=generator)
    shape = torch.Size((*batch_shape, num_outputs) if num_outputs > 1 else batch_shape)
    exact = ScaleKernel(RBFKernel(batch_shape=shape), batch_shape=shape)
    exact.base_kernel.lengthscale = 0.3 + torch.rand(*shape, 1, 1, generator=generator)
    kernel = rfgp.approximate(exact, 16, input_dim=COLUMNS, seed=0)
    outcome = Standardize(m=num_outputs, batch_shape=torch.Size(batch_shape)) if transform else None
    kernel = DenseFeatureKernel(kernel) if is_dense else kernel
    return SingleTaskGP(x, y, covar_module=kernel, outcome_transform=outcome).eval()


@pytest.mark.parametrize("transform", [False, True], ids=["plain", "standardized"])
@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_conditioning_is_that_of_a_dense_kernel(batch_shape, num_outputs, transform):
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(3, *batch_shape, 4, COLUMNS, generator=generator)
    y = torch.randn(3, *batch_shape, 4, num_outputs, generator=generator)
    points = [torch.rand(*shape, 5, COLUMNS, generator=generator) for shape in ((), batch_shape, (3, *batch_shape))]
    predictions = []
    for is_dense in (False, True):
        known = model(is_dense, batch_shape, num_outputs, transform)
        known.posterior(points[0])
        conditioned = [known.condition_on_observations(at, y) for at in (x, x[0])]
        posteriors = [one.posterior(at) for one in conditioned for at in points]
        predictions.append([value for one in posteriors for value in (one.mean, one.variance)])
    for ours, dense in zip(*predictions, strict=True):
        assert ours.shape == (3, *batch_shape, 5, num_outputs)
        torch.testing.assert_close(ours, dense, rtol=1e-6, atol=1e-8)


def test_fantasies_are_those_of_a_dense_kernel():
    at, points = torch.rand(4, COLUMNS), torch.rand(5, COLUMNS)
    found = []
    for is_dense in (False, True):
        known = model(is_dense, (), 1, False)
        fantasies = known.fantasize(at, SobolQMCNormalSampler(torch.Size([3]), seed=1))
        found.append(fantasies.posterior(points).mean)
    assert found[0].shape == (3, 5, 1)
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-8)
