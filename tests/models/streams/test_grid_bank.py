"""A bank of lengthscales on a Fourier grid equals the mixture of its members, which are solved at once."""

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean

import rfgp
from rfgp.inference.posterior.mixture import mixture
from rfgp.models.spectral_evidence import learn_from_statistics
from rfgp.models.streams import Forgetting, LengthscaleBank, SlidingWindow

BOX = torch.tensor([[0.0], [4.0]], dtype=torch.float64)


def problem(count: int = 120):
    torch.manual_seed(0)
    x = 4.0 * torch.rand(count, 1, dtype=torch.float64)
    return x, 2.0 + torch.sin(5.0 * x).squeeze(-1) + 0.1 * torch.randn(count, dtype=torch.float64)


def model(mean=None) -> rfgp.WeightSpaceGP:
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()).double(), 41, method="fourier_grid", train_inputs=BOX)
    return rfgp.WeightSpaceGP(kernel, GaussianLikelihood().double(), ConstantMean().double() if mean is None else mean)


@pytest.mark.filterwarnings("ignore:.*the exact kernel costs less")
@pytest.mark.parametrize("mean", (None, LinearMean(1).double()))
@pytest.mark.parametrize("is_window", (True, False))
def test_a_bank_on_a_grid_is_the_mixture_of_its_members(mean, is_window):
    x, y = problem()
    stream = SlidingWindow(model(mean), 80) if is_window else Forgetting(model(mean), 0.98)
    bank = LengthscaleBank(stream, (0.3, 0.6, 1.2), learn_every=70)
    for rows in torch.arange(120).split(30):
        bank.update(x[rows], y[rows])
    points = torch.linspace(-1.0, 5.0, 7, dtype=torch.float64).unsqueeze(-1)  # the first and the last outside the box
    evidences = torch.stack([member.log_marginal_likelihood() for member in bank.models])
    torch.testing.assert_close(bank.log_evidences, evidences.detach(), rtol=0.0, atol=1e-8)
    members, weights = bank.models, evidences.softmax(0).tolist()
    assert sorted(weights)[1] > 1e-9  # so that there is something to mix
    wanted = mixture([member.posterior(points) for member in members], weights)
    found = bank.posterior(points)
    torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.covariance_matrix, wanted.covariance_matrix, rtol=1e-8, atol=1e-8)
    wanted = mixture([member.likelihood(member.posterior(points)) for member in members], weights)
    torch.testing.assert_close(bank.predictive(points).variance, wanted.variance, rtol=1e-8, atol=1e-8)
    draws = found.sample(torch.Size([4000]))
    errors = found.variance * (2.0 / 4000) ** 0.5
    assert bool(((draws - found.mean).square().mean(0) - found.variance).abs().le(5.0 * errors).all())


def test_a_bank_on_a_grid_sees_parameters_that_others_change():
    x, y = problem()
    bank = LengthscaleBank(SlidingWindow(model(), 200), (0.3, 1.2)).update(x, y)
    before = bank.log_evidences
    bank.models[1].likelihood.noise = 0.5
    after = bank.log_evidences
    assert float(before[0]) == float(after[0]) and float(before[1]) != float(after[1])
    assert float(after[1]) == pytest.approx(float(bank.models[1].log_marginal_likelihood()), abs=1e-8)


def test_a_bank_on_a_grid_moves_beyond_both_edges():
    x, y = problem()
    for factors in ((1.2, 2.4, 4.8), (0.01, 0.02, 0.04)):
        bank = LengthscaleBank(SlidingWindow(model(), 40), factors)
        for rows in torch.arange(120).split(20):
            bank.update(x[rows], y[rows])
        assert bank.factors != list(factors)
        assert bank.log_evidences[1].item() == pytest.approx(float(bank.models[1].log_marginal_likelihood()), abs=1e-8)
        assert all(member.refit_error(x[-40:], y[-40:]).largest < 1e-9 for member in bank.models)


@pytest.mark.parametrize("fixed", ("noise", "scale", "mean"))
def test_what_is_fixed_is_not_learned(fixed):
    x, y = problem()
    known = model().condition(x, y)
    parameters = {
        "noise": known.likelihood.raw_noise,
        "scale": known.covar_module.exact_kernel.raw_outputscale,
        "mean": known.mean_module.raw_constant,
    }
    parameters[fixed].requires_grad_(False)
    value = parameters[fixed].clone()
    before = float(known.log_marginal_likelihood())
    assert all(learn_from_statistics(known) for _ in range(3))  # levels go so far in one go
    assert torch.equal(parameters.pop(fixed), value)
    after = known.log_marginal_likelihood()
    gradients = torch.autograd.grad(after, list(parameters.values()))
    assert float(after) > before + 10.0
    assert all(float(gradient.abs()) < 1e-2 for gradient in gradients)
