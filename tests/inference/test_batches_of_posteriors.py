"""Posteriors of several classes, as a batch: parts of it are those of the whole."""

import pytest
import torch
from gpytorch.kernels import PolynomialKernel, ScaleKernel

import rfgp

pytestmark = pytest.mark.usefixtures("float64_default")


@pytest.fixture(params=["real", "ctr", "complex"])
def latent(request, float64_default):
    exact = ScaleKernel(PolynomialKernel(power=2), batch_shape=torch.Size([3]))
    exact.outputscale = torch.tensor([0.5, 1.0, 2.0])
    kernel = rfgp.approximate(exact, 24, input_dim=2, method=f"rademacher:{request.param}", seed=0)
    x = torch.randn(40, 2)
    likelihood = rfgp.likelihoods.DirichletClassificationLikelihood(torch.arange(3), dtype=torch.float64)
    model = rfgp.WeightSpaceGP(kernel, likelihood)
    with torch.no_grad():
        return model.condition(x, torch.arange(40) % 3).posterior(x[:5])


@torch.no_grad()
@pytest.mark.parametrize("index", [1, slice(1, 3), torch.tensor([2, 0])], ids=["one", "some", "another order"])
def test_classes_of_a_posterior(latent, index):
    part = latent[index]
    for name in ("mean", "variance", "covariance_matrix"):
        torch.testing.assert_close(getattr(part, name), getattr(latent, name)[index], msg=name)
    assert part.rsample(torch.Size([2])).shape == (2, *part.mean.shape)


@torch.no_grad()
def test_points_of_a_posterior_of_classes(latent):
    part = latent[..., 1:4]
    torch.testing.assert_close(part.covariance_matrix, latent.covariance_matrix[..., 1:4, 1:4])


@torch.no_grad()
def test_products_with_a_covariance_of_classes(latent):
    covariance, columns = latent.lazy_covariance_matrix, torch.randn(5, 2)
    torch.testing.assert_close(covariance @ columns, latent.covariance_matrix @ columns)
