"""Fully Bayesian models by GPyTorch's recipe for Pyro: the sites and the posterior are those of an exact kernel."""

from __future__ import annotations

import gpytorch
import pyro
import pytest
import torch
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PolynomialKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.module import RandomModuleMixin
from gpytorch.priors import LogNormalPrior, UniformPrior
from problems import ExactModel
from pyro.infer.mcmc import MCMC, NUTS
from pyro.ops.integrator import potential_grad, register_exception_handler

import rfgp
from rfgp.approximation import LandmarkKernel
from rfgp.kernels import CurlFreeKernel, HelmholtzKernel

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed"),
    pytest.mark.filterwarnings("ignore:.*numpy"),
]

WIDTH, ROWS = 16, 20


def points(num_rows=ROWS, seed=0):
    return torch.rand(num_rows, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def targets(x):
    return torch.sin(4.0 * x[:, 0]) + x[:, 1]


class SameFeatures(Kernel):
    """A plain GPyTorch kernel with a lengthscale, made of the features of an approximated Gaussian one."""

    has_lengthscale = True

    def __init__(self, kernel, **options):
        super().__init__(**options)
        self.map = [kernel.feature_map]

    def forward(self, x1, x2, diag=False, **params):
        left, right = (self.map[0](x / self.lengthscale) for x in (x1, x2))
        if diag:
            return (left * right).sum(-1)
        return left @ right.mT


def prior():
    return LogNormalPrior(-1.0, 0.5)


def priors_by_the_recipe(kernel, likelihood, model):
    """As in GPyTorch's example, in which priors are registered on the model that is made."""
    kernel.base_kernel.register_prior("lengthscale_prior", UniformPrior(0.05, 1.0), "lengthscale")
    kernel.register_prior("outputscale_prior", UniformPrior(0.4, 2.5), "outputscale")
    likelihood.register_prior("noise_prior", UniformPrior(0.01, 0.5), "noise")


def models():
    """A model with an approximated kernel, and one with a plain kernel on the same features."""
    approximated = rfgp.approximate(ScaleKernel(RBFKernel()), WIDTH, input_dim=2, seed=0)
    plain = ScaleKernel(SameFeatures(approximated))
    x, made = points(), []
    for kernel in (approximated, plain):
        likelihood = GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive())
        model = ExactModel(x, targets(x), likelihood, kernel)
        priors_by_the_recipe(kernel, likelihood, model)
        made.append(model)
    return made


def plain_name(name):
    """The name of a prior in a model with an exact kernel."""
    return name.replace("exact_kernel.", "")


def pyro_model(model):
    def sampled(x, y):
        with gpytorch.settings.fast_computations(False, False, False):
            drawn = model.pyro_sample_from_prior()
            output = drawn.likelihood(drawn(x))
            pyro.sample("obs", output, obs=y)
        return y

    return sampled


def trace(model, values=None):
    x = points()
    sampled = pyro_model(model)
    if values is not None:
        sampled = pyro.poutine.condition(sampled, data=values)
    pyro.set_rng_seed(3)
    return pyro.poutine.trace(sampled).get_trace(x, targets(x))


def test_sites_and_log_joint_are_those_of_a_plain_kernel_on_the_same_features():
    approximated, plain = models()
    ours, theirs = trace(approximated), trace(plain)
    assert list(map(plain_name, ours.stochastic_nodes)) == list(theirs.stochastic_nodes)
    assert "covar_module.exact_kernel.base_kernel.lengthscale_prior" in ours.stochastic_nodes
    torch.testing.assert_close(ours.log_prob_sum(), theirs.log_prob_sum(), rtol=1e-8, atol=1e-8)
    for lengthscale, scale, noise in ((0.2, 0.5, 0.1), (0.7, 2.0, 0.3)):
        values = {
            "covar_module.base_kernel.lengthscale_prior": torch.tensor([[lengthscale]]),
            "covar_module.outputscale_prior": torch.tensor(scale),
            "likelihood.noise_prior": torch.tensor([noise]),
        }
        values = {name: value.requires_grad_() for name, value in values.items()}
        own = {name.replace("covar_module.", "covar_module.exact_kernel."): value for name, value in values.items()}
        joints = [trace(approximated, own).log_prob_sum(), trace(plain, values).log_prob_sum()]
        torch.testing.assert_close(*joints, rtol=1e-8, atol=1e-8)
        gradients = [torch.autograd.grad(joint, list(values.values())) for joint in joints]
        for own, other in zip(*gradients, strict=True):
            torch.testing.assert_close(own, other, rtol=1e-6, atol=1e-8)


def test_steps_of_nuts_and_predictions_are_those_of_a_plain_kernel_on_the_same_features():
    x, chains, predictions = points(), [], []
    for model in models():
        pyro.set_rng_seed(0)
        kernel = NUTS(pyro_model(model), max_tree_depth=3, jit_compile=False)
        chain = MCMC(kernel, num_samples=3, warmup_steps=3, disable_progbar=True)
        chain.run(x, targets(x))
        chains.append(chain.get_samples())
        model.pyro_load_from_samples(chains[-1])
        model.eval()
        with torch.no_grad():
            output = model.likelihood(model(points(4, seed=1).expand(3, 4, 2)))
            predictions.append((output.mean, output.variance))
    assert set(map(plain_name, chains[0])) == set(chains[1])
    for name, values in chains[0].items():
        torch.testing.assert_close(values, chains[1][plain_name(name)], rtol=1e-5, atol=1e-6)
    for own, other in zip(*predictions, strict=True):
        assert own.shape == (3, 4)
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


def test_a_step_to_where_there_is_no_factor_diverges_as_the_guide_says():
    x = points()
    kernel = rfgp.approximate(ScaleKernel(RBFKernel(), outputscale_prior=prior()), 64, input_dim=2, seed=0)
    likelihood = GaussianLikelihood(noise_prior=prior(), noise_constraint=gpytorch.constraints.Positive())
    model = ExactModel(x, targets(x), likelihood, kernel)
    model.covar_module.base_kernel.lengthscale = 3.0
    sites = {"likelihood.noise_covar.noise_prior": 1e-36, "covar_module.exact_kernel.outputscale_prior": 1.0}

    def potential(values):
        return -trace(model, values).log_prob_sum()

    register_exception_handler("no factor", lambda error: "expected a positive definite matrix" in str(error))
    slopes, energy = potential_grad(potential, {name: torch.tensor(value) for name, value in sites.items()})
    assert energy.isnan() and slopes.keys() == sites.keys()


KERNELS = {
    "alone": lambda: RBFKernel(lengthscale_prior=prior()),
    "ARD": lambda: RBFKernel(ard_num_dims=2, lengthscale_prior=prior()),
    "scaled": lambda: ScaleKernel(RBFKernel(lengthscale_prior=prior()), outputscale_prior=prior()),
    "polynomial": lambda: ScaleKernel(PolynomialKernel(power=2, offset_prior=prior()), outputscale_prior=prior()),
    "linear": lambda: LinearKernel(variance_prior=prior()),
    "sum": lambda: ScaleKernel(RBFKernel(lengthscale_prior=prior())) + ScaleKernel(
        MaternKernel(lengthscale_prior=prior()), outputscale_prior=prior()
    ),
    "product": lambda: RBFKernel(lengthscale_prior=prior()) * MaternKernel(lengthscale_prior=prior()),
    "tasks": lambda: MultitaskKernel(ScaleKernel(RBFKernel(lengthscale_prior=prior())), num_tasks=2),
    "curl-free": lambda: ScaleKernel(CurlFreeKernel(RBFKernel(lengthscale_prior=prior())), outputscale_prior=prior()),
    "Helmholtz": lambda: HelmholtzKernel(RBFKernel(lengthscale_prior=prior()), RBFKernel(lengthscale_prior=prior())),
}  # fmt: skip
every_kernel = pytest.mark.parametrize("name", KERNELS)


def sampled_values(kernel):
    pyro.set_rng_seed(1)
    made = pyro.poutine.trace(kernel.pyro_sample_from_prior).get_trace()
    values = {name: node["value"] for name, node in made.nodes.items() if node["type"] == "sample"}
    return made.nodes["_RETURN"]["value"], values


@every_kernel
def test_every_kernel_has_the_sites_of_the_exact_one_and_becomes_what_was_sampled(name):
    exact, x = KERNELS[name](), points(5)
    kernel = rfgp.approximate(exact, WIDTH, input_dim=2, seed=0)
    before = kernel(x).to_dense().detach()
    drawn, values = sampled_values(kernel)
    _, others = sampled_values(exact)
    names = {f"exact_kernel.{key}": key for key in others}
    assert list(values) == list(names) and all(torch.equal(values[key], others[names[key]]) for key in values)
    changed = drawn(x).to_dense()
    assert not torch.allclose(changed, before) and torch.allclose(kernel(x).to_dense(), before)


@every_kernel
def test_gradients_run_back_to_what_was_sampled(name):
    kernel, x = rfgp.approximate(KERNELS[name](), WIDTH, input_dim=2, seed=0), points(5)
    _, values = sampled_values(kernel)
    values = {key: value.clone().requires_grad_() for key, value in values.items()}
    conditioned = pyro.poutine.condition(kernel.pyro_sample_from_prior, data=values)
    conditioned()(x).to_dense().square().sum().backward()
    assert all(value.grad is not None and bool(value.grad.abs().sum() > 0.0) for value in values.values())


def test_a_scale_and_a_kernel_that_occur_in_every_product_are_sampled_once():
    shared = ScaleKernel(RBFKernel(lengthscale_prior=prior()), outputscale_prior=prior())
    kernel = rfgp.approximate(shared * (LinearKernel() + MaternKernel()), 4 * WIDTH, input_dim=2, seed=0)
    drawn, values = sampled_values(kernel)
    scales = [part for part in drawn.modules() if isinstance(part, ScaleKernel)]
    assert len(values) == 2 and len(scales) == 1
    for part in scales:
        assert any(torch.equal(part.outputscale, value) for value in values.values())
        assert any(torch.equal(part.base_kernel.lengthscale, value) for value in values.values())
    kernel.pyro_load_from_samples({name: value.expand(3, *value.shape).clone() for name, value in values.items()})
    assert kernel.batch_shape == (3,)
    torch.testing.assert_close(kernel(points(4).expand(3, 4, 2)).to_dense()[1], drawn(points(4)).to_dense())


def test_landmarks_are_sampled_with_the_kernel():
    exact = RBFKernel(lengthscale_prior=prior())
    kernel = LandmarkKernel(exact, points(5), learn=True)
    kernel.maps.register_prior("landmarks_prior", gpytorch.priors.NormalPrior(0.0, 1.0), "landmarks")
    drawn, values = sampled_values(kernel)
    assert set(values) == {"exact_kernel.lengthscale_prior", "maps.landmarks_prior"}
    assert torch.equal(drawn.landmarks, values["maps.landmarks_prior"])
    assert torch.equal(drawn.lengthscale, values["exact_kernel.lengthscale_prior"])
    assert drawn.features(points(3)).shape == (3, 5)


def test_a_class_with_gpytorchs_base_first_can_be_made_of_every_kernel():
    made = [rfgp.approximate(make(), WIDTH, input_dim=2, seed=0) for make in KERNELS.values()]
    for kernel in made:
        for part in kernel.modules():
            if isinstance(part, gpytorch.Module):
                random = type("Random", (RandomModuleMixin, type(part)), {})
                copied = part.to_random_module()
                copied.__class__ = random if not isinstance(copied, RandomModuleMixin) else type(copied)


@every_kernel
def test_samples_of_a_chain_make_a_batch_of_models(name):
    kernel, x = rfgp.approximate(KERNELS[name](), WIDTH, input_dim=2, seed=0), points(4)
    samples = {key: torch.stack([value, 2.0 * value]) for key, value in sampled_values(kernel)[1].items()}
    single = []
    for index in range(2):
        conditioned = pyro.poutine.condition(
            kernel.pyro_sample_from_prior, data={key: value[index] for key, value in samples.items()}
        )
        single.append(conditioned()(x).to_dense())
    kernel.pyro_load_from_samples(samples)
    torch.testing.assert_close(kernel(x.expand(2, 4, 2)).to_dense(), torch.stack(single))
