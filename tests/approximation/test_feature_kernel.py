"""What a kernel with features takes: maps and recipes of its family, one center, and inputs of its dtype."""

import warnings

import pytest
import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import MaternKernel, MultitaskKernel, PolynomialKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood

import rfgp
from rfgp.approximation import FeatureKernel
from rfgp.approximation.hooks.prediction import FeaturePredictionStrategy
from rfgp.approximation.maps import DrawnMap
from rfgp.features import RandomFourier, TensorSRHT
from rfgp.features.spectra import Gaussian

SKETCH = TensorSRHT(4, 8, degree=2)
POLYNOMIAL, RBF = PolynomialKernel(power=2), RBFKernel()
BAD = {
    "another degree": (lambda: FeatureKernel(POLYNOMIAL, TensorSRHT(4, 8, degree=3)), "degree 3; pass such a map"),
    "another family": (lambda: FeatureKernel(RBF, SKETCH), "for RBFKernel, got TensorSRHT of degree 2"),
    "another spectrum": (lambda: FeatureKernel(MaternKernel(nu=1.5), RandomFourier(2, 8, Gaussian())), "MaternKernel"),
    "no map": (lambda: FeatureKernel(RBF, RBF), "expected a FeatureMap or a MapRecipe for maps"),
    "no kernel": (lambda: FeatureKernel(SKETCH, SKETCH), "expected an exact GPyTorch kernel"),
    "two centers": (lambda: DrawnMap(RandomFourier(2, 8), torch.zeros(1, 2)), "center of shape"),
    "infinite center": (lambda: DrawnMap(RandomFourier(2, 8), torch.tensor([0.0, torch.inf])), "center"),
    "a method of others": (lambda: rfgp.approximate(RBF, 8, input_dim=2, method="tensor_srht"), "one of the methods"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_a_kernel_that_waits_for_inputs_takes_those_of_its_dtype_and_stays_as_it_was():
    kernel = rfgp.approximate(RBFKernel(), 8, seed=0)
    for x, message in ((torch.rand(3, 2).double(), "dtype"), (torch.ones(3, 2).long(), "floating")):
        with pytest.raises(ValueError, match=message):
            kernel.features(x)
        assert kernel.feature_map is None
    assert kernel.features(torch.rand(3, 2)).shape == (3, 8)
    with pytest.raises(ValueError, match="columns"):
        kernel.features(torch.rand(3, 5))


def test_features_are_about_the_center():
    x, center = torch.rand(5, 2), torch.tensor([0.3, -0.2])
    feature_map = RandomFourier(2, 8, generator=torch.Generator().manual_seed(0))
    moved, plain = FeatureKernel(RBF, DrawnMap(feature_map, center)), FeatureKernel(RBF, feature_map)
    torch.testing.assert_close(moved.features(x), plain.features(x - center))


@pytest.mark.parametrize("num_tasks", [1, 2])
def test_only_features_of_one_output_are_compared_with_the_number_of_rows(num_tasks):
    x = torch.rand(5, 1, generator=torch.Generator().manual_seed(0))
    exact = RBFKernel() if num_tasks == 1 else MultitaskKernel(RBFKernel(), num_tasks=2, rank=1)
    kernel = rfgp.approximate(exact, 12, input_dim=1, method="fourier", seed=0)
    mean, covariance = torch.zeros(5 * num_tasks), kernel(x)
    prior = (
        MultivariateNormal(mean, covariance)
        if num_tasks == 1
        else MultitaskMultivariateNormal(mean.reshape(5, 2), covariance)
    )
    likelihood = GaussianLikelihood() if num_tasks == 1 else MultitaskGaussianLikelihood(2)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        FeaturePredictionStrategy([x], prior, prior.mean, likelihood)
    assert len([w for w in found if "12 features exceed the 5 training rows" in str(w.message)]) == (num_tasks == 1)
    assert num_tasks == 1 or not found
