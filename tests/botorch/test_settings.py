"""BoTorch switches settings of GPyTorch for the whole process: with kernels of features no value depends on them."""

import copy
import importlib
import sys

import gpytorch
import linear_operator
import pytest
import torch
from dense_features import DenseFeatureKernel
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from output_problems import ExactOutputModel, output_kernel, output_likelihood, output_mean, output_rows
from problems import ExactModel, polynomial, regression_rows

from rfgp.approximation.hooks.feature_operator import FeatureLinearOperator

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS = 60


@pytest.fixture
def no_dense_factor(monkeypatch):
    """A dense Cholesky factorization of as many rows as there are fails the test."""
    factor = linear_operator.utils.cholesky.psd_safe_cholesky

    def small(matrix, *arguments, **options):
        assert matrix.shape[-1] < ROWS
        return factor(matrix, *arguments, **options)

    monkeypatch.setattr("linear_operator.operators._linear_operator.psd_safe_cholesky", small)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def scalar_model(kind="gaussian", wrap=lambda kernel: kernel):
    x, y = regression_rows(ROWS)
    likelihood = GaussianLikelihood() if kind == "gaussian" else FixedNoiseGaussianLikelihood(0.1 + x[:, 1].square())
    return ExactModel(x, y, likelihood, wrap(polynomial())), gpytorch.mlls.ExactMarginalLogLikelihood


def multitask_model():
    x, y = output_rows("multitask", ROWS)
    likelihood = output_likelihood("multitask", "full", ROWS)
    model = ExactOutputModel(x, y, likelihood, output_kernel("multitask"), output_mean("multitask"))
    return model, gpytorch.mlls.ExactMarginalLogLikelihood


def leave_one_out_model():
    return scalar_model()[0], gpytorch.mlls.LeaveOneOutPseudoLikelihood


MODELS = {
    "gaussian": scalar_model,
    "fixed": lambda: scalar_model("fixed"),
    "scaled by GPyTorch": lambda: scalar_model(wrap=ScaleKernel),
    "multitask": multitask_model,
    "leave one out": leave_one_out_model,
}


def values(model, objective):
    """The objective, its gradient, and mean, covariance and variance of the posterior."""
    model = copy.deepcopy(model)
    x, y = model.train_inputs[0], model.train_targets
    value = objective(model.likelihood, model)(model.train()(x), y)
    gradient = torch.autograd.grad(value, list(model.parameters()), allow_unused=True)
    latent = model.eval()(x[:5] + 0.1)
    noisy = model.likelihood(latent) if isinstance(model.likelihood, GaussianLikelihood) else latent
    return [value, *[g for g in gradient if g is not None], latent.mean, latent.covariance_matrix, noisy.variance]


@pytest.mark.parametrize("name", MODELS)
def test_no_value_depends_on_the_settings_that_botorch_switches(name):
    model, objective = MODELS[name]()
    found = []
    for is_fast, largest in ((True, 800), (False, 4096), (True, 5), (False, 5)):
        fast = gpytorch.settings.fast_computations(*[is_fast] * 3)
        sizes = gpytorch.settings.max_cholesky_size(largest), gpytorch.settings.max_eager_kernel_size(largest)
        with fast, sizes[0], sizes[1]:
            found.append(values(model, objective))
    assert len(found[0]) > 5
    for others in found[1:]:
        for a, b in zip(found[0], others, strict=True):
            close(a, b)


@pytest.mark.parametrize("name", ["gaussian", "fixed", "scaled by GPyTorch", "multitask"])
def test_the_evidence_has_no_dense_factor_where_log_prob_is_not_to_be_fast(name, no_dense_factor):
    model, objective = MODELS[name]()
    with gpytorch.settings.fast_computations.log_prob(False):
        value = objective(model.likelihood, model)(model.train()(model.train_inputs[0]), model.train_targets)
        value.backward()


def test_the_evidence_is_that_of_a_dense_kernel():
    model, objective = scalar_model()
    dense, _ = scalar_model(wrap=DenseFeatureKernel)
    with gpytorch.settings.fast_computations.log_prob(False):
        found, expected = values(model, objective), values(dense, objective)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def test_other_covariances_go_the_way_of_the_setting(monkeypatch):
    calls = []
    monkeypatch.setattr(FeatureLinearOperator, "__add__", lambda *_: calls.append(1))
    covariance = torch.eye(3) + 1.0
    exact = gpytorch.kernels.RBFKernel()(torch.randn(3, 1)).add_jitter(0.1)
    for matrix in (covariance, linear_operator.to_linear_operator(covariance), exact):
        found = []
        for is_fast in (True, False):
            with gpytorch.settings.fast_computations.log_prob(is_fast):
                found.append(MultivariateNormal(torch.zeros(3), matrix).log_prob(torch.ones(3)))
        dense = matrix if isinstance(matrix, torch.Tensor) else matrix.to_dense()
        close(found[0], found[1])
        close(found[0], torch.distributions.MultivariateNormal(torch.zeros(3), dense).log_prob(torch.ones(3)))
    assert not calls


def test_without_botorch(monkeypatch):
    monkeypatch.setitem(sys.modules, "botorch", None)
    monkeypatch.delitem(sys.modules, "rfgp.botorch", raising=False)
    with pytest.raises(ImportError, match=r"expected BoTorch for rfgp.botorch, got none; .* '\.\[botorch\]'"):
        importlib.import_module("rfgp.botorch")
