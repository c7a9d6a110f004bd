"""A WeightSpaceGP is a GPyTorch module: priors, constraints and initial values by their names."""

from __future__ import annotations

import copy
import pickle

import gpytorch
import pytest
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.priors import GammaPrior, NormalPrior
from problems import ExactModel

import rfgp
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")


def points(num_rows=40):
    return torch.rand(num_rows, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def parts():
    exact = ScaleKernel(RBFKernel(lengthscale_prior=GammaPrior(3.0, 6.0)), outputscale_prior=GammaPrior(2.0, 1.0))
    likelihood = GaussianLikelihood(noise_prior=GammaPrior(1.1, 2.0), noise_constraint=GreaterThan(1e-3))
    mean = ConstantMean(constant_prior=NormalPrior(0.0, 1.0))
    return exact, likelihood, mean


def models():
    """A WeightSpaceGP, and an exact model of GPyTorch, with parts of their own."""
    exact, likelihood, mean = parts()
    ours = WeightSpaceGP(rfgp.approximate(exact, 16, input_dim=2, seed=0), likelihood, mean)
    exact, likelihood, mean = parts()
    theirs = ExactModel(points(), points()[:, 0], likelihood, exact)
    theirs.mean_module = mean
    return ours, theirs


def plain(name):
    """The name in a model with an exact kernel."""
    return name.replace("exact_kernel.", "")


VALUES = {
    "likelihood.noise": 0.2,
    "covar_module.base_kernel.lengthscale": 0.3,
    "covar_module.outputscale": 1.7,
    "mean_module.constant": 0.5,
}


def test_priors_constraints_and_initial_values_have_the_names_of_an_exact_model():
    ours, theirs = (model.initialize(**VALUES) for model in models())
    found, expected = (
        {plain(name): prior.log_prob(closure(part)).sum() for name, part, prior, closure, _ in model.named_priors()}
        for model in (ours, theirs)
    )
    assert found == expected and len(found) == 4
    assert len(list(ours.named_priors())) == 4
    names = [
        sorted(name.replace("exact_kernel.", "") for name, _ in model.named_constraints()) for model in (ours, theirs)
    ]
    assert names[0] == names[1]
    assert len(list(ours.hyperparameters())) == len(list(ours.named_hyperparameters())) == 4
    for name, value in VALUES.items():
        module, _, last = name.rpartition(".")
        assert torch.allclose(getattr(ours.get_submodule(module), last), torch.tensor(value))


def test_unknown_names_are_refused_as_by_gpytorch():
    for model in models():
        with pytest.raises(AttributeError, match="lengthscales"):
            model.initialize(**{"covar_module.base_kernel.lengthscales": 0.3})


def test_initial_values_make_statistics_stale():
    x = points()
    model, _ = models()
    model.condition(x, x[:, 0])
    model.initialize(**VALUES)
    with pytest.raises(ValueError, match="condition"):
        model.posterior(x)
    assert model.condition(x, x[:, 0]).posterior(x[:3]).mean.shape == (3,)


def test_parameters_are_drawn_from_their_priors():
    model, _ = models()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    torch.manual_seed(0)
    for name, part, prior, closure, setting in model.named_priors():
        assert name and setting is not None
        setting(part, prior.sample(closure(part).shape))
    assert all(not torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_fitted_model_is_copied_and_its_state_loaded(clone):
    x = points()
    exact = ScaleKernel(RBFKernel())
    model = WeightSpaceGP(rfgp.approximate(exact, 16, input_dim=2, seed=0), GaussianLikelihood()).condition(x, x[:, 0])
    expected = model.posterior(x[:3]).mean
    assert torch.equal(clone(model).posterior(x[:3]).mean, expected)
    fresh = WeightSpaceGP(rfgp.approximate(ScaleKernel(RBFKernel()), 16, input_dim=2, seed=1), GaussianLikelihood())
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh.eval().posterior(x[:3]).mean, expected)
    assert isinstance(model, gpytorch.Module)
