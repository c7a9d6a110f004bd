"""Fits of BoTorch's models with kernels of features end where those with a dense kernel of the same features do."""

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, MultiTaskGP, SingleTaskGP
from dense_features import DenseFeatureKernel
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood
from gpytorch.priors import GammaPrior

import rfgp

pytestmark = pytest.mark.usefixtures("float64_default")

COLUMNS = 2
TIGHT = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 1000, "maxls": 50}


def rows(seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(50, COLUMNS, generator=generator)
    return x, torch.sin(6.0 * x.sum(-1, keepdim=True)) + 0.2 * torch.randn(50, 1, generator=generator)


def kernel(wrap, seed=0):
    lengthscales = RBFKernel(ard_num_dims=COLUMNS, lengthscale_prior=GammaPrior(3.0, 6.0))
    exact = ScaleKernel(lengthscales, outputscale_prior=GammaPrior(2.0, 0.15))
    return wrap(rfgp.approximate(exact, 24, input_dim=COLUMNS, seed=seed))


def single(wrap, seed=1):
    x, y = rows(seed)
    model = SingleTaskGP(x, y, covar_module=kernel(wrap, seed))
    return model, ExactMarginalLogLikelihood(model.likelihood, model)


def known_noise(wrap):
    x, y = rows()
    model = SingleTaskGP(x, y, torch.full_like(y, 0.04), covar_module=kernel(wrap))
    return model, ExactMarginalLogLikelihood(model.likelihood, model)


def model_list(wrap):
    model = ModelListGP(single(wrap, 1)[0], single(wrap, 2)[0])
    return model, SumMarginalLogLikelihood(model.likelihood, model)


def tasks(wrap):
    x, y = rows()
    with_task = torch.cat([x, torch.arange(len(x))[:, None] % 2], dim=-1)
    torch.manual_seed(0)
    model = MultiTaskGP(with_task, y, task_feature=-1, covar_module=kernel(wrap), rank=1)
    model.likelihood.noise = 0.05 * torch.ones(2)  # away from the small noise that BoTorch starts with, which is steep
    for name, parameter in model.named_parameters():  # those of the tasks have a ridge of optima
        parameter.requires_grad_("raw_var" not in name and "covar_factor" not in name)
    return model, ExactMarginalLogLikelihood(model.likelihood, model)


@pytest.mark.parametrize("make", [single, known_noise, model_list, tasks])
def test_a_fit_ends_at_the_optimum_of_the_dense_kernel(make):
    found = []
    for wrap in (lambda approximated: approximated, DenseFeatureKernel):
        model, mll = make(wrap)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": TIGHT}, max_attempts=1)
        inputs = [list(model.train_inputs)] if isinstance(model, MultiTaskGP) else []  # whose noise is that of the task
        value = mll(model.train()(*model.train_inputs), model.train_targets, *inputs)
        parameters = {
            name.replace("inner.", "").replace("exact_kernel.", ""): value.detach()
            for name, value in model.named_parameters()
            if value.requires_grad
        }
        posterior = model.eval().posterior(rows(7)[0][:5])
        found.append(({"value": value.detach()} | parameters, posterior.mean.detach(), posterior.variance.detach()))
    (ours, *ours_predicted), (dense, *dense_predicted) = found
    assert ours.keys() == dense.keys() and len(ours) >= 4
    torch.testing.assert_close(ours["value"], dense["value"], rtol=1e-6, atol=0.0)
    for name, value in dense.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-6, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
    for a, b in zip(ours_predicted, dense_predicted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
