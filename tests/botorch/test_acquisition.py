"""Acquisition functions of BoTorch with kernels of features: values and gradients of a dense kernel."""

import pytest
import torch
from botorch.acquisition import (
    qExpectedImprovement,
    qKnowledgeGradient,
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
    qNoisyExpectedImprovement,
    qUpperConfidenceBound,
)
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Standardize
from botorch.sampling import SobolQMCNormalSampler
from dense_features import DenseFeatureKernel
from gpytorch.kernels import PolynomialKernel, RBFKernel, ScaleKernel

import rfgp

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
    pytest.mark.filterwarnings("ignore:.*has known numerical issues"),
]

COLUMNS = 2


def model(num_features=64, is_dense=False, outcome_transform=None, method="auto"):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(30, COLUMNS, generator=generator)
    y = torch.sin(4.0 * x.sum(-1, keepdim=True)) + 0.1 * torch.randn(30, 1, generator=generator)
    exact = ScaleKernel(RBFKernel() if method == "auto" else PolynomialKernel(power=3))
    kernel = rfgp.approximate(exact, num_features, input_dim=COLUMNS, method=method, seed=0)
    kernel = DenseFeatureKernel(kernel) if is_dense else kernel
    made = SingleTaskGP(x, y, covar_module=kernel, outcome_transform=outcome_transform)
    made.likelihood.noise = 0.05
    return made.eval()


def sampler():
    return SobolQMCNormalSampler(torch.Size([32]), seed=5)


def baseline():
    """Points of low values, so that others improve on them."""
    return 0.5 + 0.2 * torch.rand(6, COLUMNS, generator=torch.Generator().manual_seed(2))


ACQUISITIONS = {
    "qEI": lambda m: qExpectedImprovement(m, best_f=0.2, sampler=sampler()),
    "qLogEI": lambda m: qLogExpectedImprovement(m, best_f=0.2, sampler=sampler()),
    "qUCB": lambda m: qUpperConfidenceBound(m, beta=2.0, sampler=sampler()),
    "qNEI": lambda m: qNoisyExpectedImprovement(m, baseline(), sampler=sampler()),
    "qLogNEI": lambda m: qLogNoisyExpectedImprovement(m, baseline(), sampler=sampler()),
    "qLogNEI without a cached root": lambda m: qLogNoisyExpectedImprovement(
        m, baseline(), sampler=sampler(), cache_root=False
    ),
    "qKG": lambda m: qKnowledgeGradient(m, num_fantasies=4, sampler=SobolQMCNormalSampler(torch.Size([4]), seed=5)),
}


@pytest.mark.parametrize("transform", [None, lambda: Standardize(m=1)], ids=["plain", "standardized"])
@pytest.mark.parametrize("num_features", [64, 20])
@pytest.mark.parametrize("name", ACQUISITIONS)
def test_values_and_gradients_are_those_of_a_dense_kernel(name, num_features, transform):
    points = torch.rand(3, 6 if name == "qKG" else 2, COLUMNS, generator=torch.Generator().manual_seed(4))
    found = []
    for is_dense in (False, True):
        at = points.clone().requires_grad_()
        made = model(num_features, is_dense, None if transform is None else transform())
        value = ACQUISITIONS[name](made)(at)
        found.append((value, torch.autograd.grad(value.sum(), at)[0]))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    assert (found[0][1].abs() > 0.0).any()


@pytest.mark.parametrize("acquisition", [qNoisyExpectedImprovement, qLogNoisyExpectedImprovement])
@pytest.mark.parametrize("method", ["auto", "tensor_srht:complex"])
def test_default_arguments(acquisition, method):
    made = model(method=method)
    value = acquisition(made, made.train_inputs[0])(torch.rand(3, 2, COLUMNS))
    assert value.shape == (3,) and value.isfinite().all()


@pytest.mark.parametrize("num_features", [64, 4])
def test_samplers_want_one_base_sample_per_point(num_features):
    made, chosen = model(num_features), sampler()
    posterior = made.posterior(torch.rand(3, 5, COLUMNS))
    assert posterior.base_sample_shape == (3, 5)
    assert chosen(posterior).shape == (32, 3, 5, 1) and chosen.base_samples.shape == (32, 1, 5)


def test_a_list_of_models():
    models = ModelListGP(model(), model(20))
    posterior = models.posterior(torch.rand(3, 5, COLUMNS))
    assert sampler()(posterior).shape == (32, 3, 5, 2)
    assert posterior.rsample(torch.Size([7])).shape == (7, 3, 5, 2)
