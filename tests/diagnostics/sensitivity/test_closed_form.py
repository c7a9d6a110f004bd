"""Closed forms equal quadrature, for every kernel whose features are plane waves, and for every distribution."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean, MultitaskMean, ZeroMean
from quadrature import Quadrature

import rfgp
from rfgp.diagnostics.sensitivity import (
    Empirical,
    Normal,
    Uniform,
    derivative_sensitivities,
    main_effects,
    sobol_indices,
)
from rfgp.kernels import CurlFreeKernel, HelmholtzKernel, SkewedChiSquaredKernel
from rfgp.likelihoods import ComplexGaussianLikelihood, DirichletClassificationLikelihood

pytestmark = pytest.mark.usefixtures("float64_default")
VALUES = [0.1, 0.2, 0.7, 0.75, 0.9, 1.4]
INPUTS = {
    "uniform": [Uniform(-0.5, 1.0), Uniform(0.0, 2.0)],
    "normal": [Normal(0.3, 0.4), Normal(1.0, 0.3)],
    "empirical": [Empirical(VALUES), Empirical([-0.2, 0.4, 1.1])],
    "mixed": [Normal(0.3, 0.4), Empirical(VALUES)],
}


def scaled(kernel, lengthscale=0.6):
    kernel.lengthscale = lengthscale
    return ScaleKernel(kernel)


def periodic(**options):
    kernel = PeriodicKernel(**options)
    kernel.period_length = 4.0  # slow enough for the quadrature
    return kernel


def mixture_kernel():
    kernel = SpectralMixtureKernel(num_mixtures=2, ard_num_dims=2)
    kernel.mixture_means, kernel.mixture_scales = torch.full((2, 1, 2), 0.3), torch.full((2, 1, 2), 0.2)
    return kernel


KERNELS = {
    "orthogonal": (lambda: scaled(RBFKernel(ard_num_dims=2)), "fourier_orthogonal"),
    "independent": (lambda: scaled(RBFKernel()), "fourier"),
    "Sobol": (lambda: scaled(MaternKernel(nu=1.5)), "fourier_qmc"),
    "hadamard": (lambda: scaled(MaternKernel(nu=2.5)), "fourier_hadamard"),
    "complex": (lambda: scaled(RBFKernel()), "fourier:complex"),
    "complex to real": (lambda: scaled(RBFKernel()), "fourier:ctr"),
    "rational quadratic": (lambda: scaled(RQKernel()), "fourier"),
    "mixture": (mixture_kernel, "auto"),
    "periodic": (lambda: ScaleKernel(periodic()), "fourier"),
    "one dimension": (lambda: periodic(active_dims=[1]) + CosineKernel(active_dims=[0]), "auto"),
    "sum": (
        lambda: (
            scaled(RBFKernel(active_dims=[0])) + ScaleKernel(LinearKernel()) + scaled(RBFKernel()) + ConstantKernel()
        ),
        "auto",
    ),
    "product": (lambda: scaled(RBFKernel(active_dims=[1])) * scaled(MaternKernel(active_dims=[0])), "auto"),
    "complex product": (
        lambda: scaled(RBFKernel(active_dims=[1])) * scaled(RBFKernel(active_dims=[0])),
        "fourier:complex",
    ),
    "product of pairs": (lambda: scaled(RBFKernel()) * CosineKernel(active_dims=[0]), "auto"),
    "sum of products": (
        lambda: ScaleKernel(RBFKernel(active_dims=[0]) * RBFKernel(active_dims=[1]) + RBFKernel(active_dims=[1])),
        "auto",
    ),
}


def rows(count=40):
    x = torch.rand(count, 2, generator=torch.Generator().manual_seed(1)) * 1.5 - 0.2
    return x, torch.sin(3.0 * x[:, 0]) * x[:, 1] + x[:, 0].square()


def fitted(kernel=None, method="auto", mean=None, num_features=24, **options):
    exact = scaled(RBFKernel(ard_num_dims=2)) if kernel is None else kernel
    approximate = rfgp.approximate(exact, num_features, input_dim=2, method=method, seed=0)
    likelihood = GaussianLikelihood()
    likelihood.noise = 0.01
    return rfgp.WeightSpaceGP(approximate, likelihood, mean, **options).condition(*rows())


def functions(model, count, seed=0):
    """The posterior mean and functions drawn with a seed, as one function with values (1 + S, N)."""
    torch.manual_seed(seed)
    samples = model.sample_functions(count)
    return lambda x: torch.cat([model.posterior(x).mean[None], samples(x)]).detach()


def all_of(estimate):
    return torch.cat([estimate.value[None], estimate.samples])


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)


def compare(model, inputs, count=2):
    wanted = Quadrature(functions(model, count), inputs)
    torch.manual_seed(0)
    found = sobol_indices(model, inputs, num_functions=count)
    first, total, second = wanted.indices()
    assert found.method == "closed form"
    close(all_of(found.mean), wanted.mean())
    close(all_of(found.variance), wanted.variance(tuple(range(len(inputs)))))
    close(all_of(found.first), first)
    close(all_of(found.total), total)
    close(all_of(found.second).nan_to_num(), second)


@pytest.mark.parametrize("name", KERNELS)
def test_indices_equal_quadrature_for_every_kernel(name):
    make, method = KERNELS[name]
    compare(fitted(make(), method, num_features=48), INPUTS["mixed"])


@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("mean", [ZeroMean, ConstantMean, lambda: LinearMean(2)], ids=["zero", "constant", "linear"])
def test_indices_equal_quadrature_for_every_distribution_and_mean(inputs, mean):
    module = mean()
    for parameter in module.parameters():
        torch.nn.init.constant_(parameter, 0.7)
    compare(fitted(mean=module), inputs)


def test_three_inputs_equal_quadrature():
    x = torch.rand(40, 3)
    kernel = rfgp.approximate(scaled(RBFKernel()), 16, input_dim=3, seed=0)
    model = rfgp.WeightSpaceGP(kernel, GaussianLikelihood()).condition(x, x[:, 0] * x[:, 1] + x[:, 2])
    inputs = [Uniform(0.0, 1.0), Normal(0.5, 0.2), Empirical(VALUES)]
    wanted = Quadrature(functions(model, 2), inputs, 30)
    torch.manual_seed(0)
    found = sobol_indices(model, inputs, num_functions=2)
    for estimate, expected in zip((found.first, found.total, found.second), wanted.indices(), strict=True):
        close(all_of(estimate).nan_to_num(), expected)


def test_chunks_of_waves_change_nothing(monkeypatch):
    from rfgp.diagnostics.sensitivity import closed_form

    monkeypatch.setattr(closed_form, "_CHUNK", 60)
    compare(fitted(), INPUTS["mixed"])


def test_draws_of_the_features_are_mixed():
    model = fitted(num_draws=3)
    quadrature = Quadrature(lambda x: model.posterior(x).mean.detach()[None], INPUTS["mixed"])
    found = sobol_indices(model, INPUTS["mixed"], num_functions=5)
    first, total, _ = quadrature.indices()
    close(found.first.value, first[0])
    close(found.total.value, total[0])
    parts = [Quadrature(lambda x, m=m: m.posterior(x).mean.detach()[None], INPUTS["mixed"]).mean() for m in
             (model, *model.further_draws.of(model))]  # fmt: skip
    spread = torch.cat(parts)
    assert found.first.samples.shape == (5, 2) and found.mean.samples.min() > spread.min() - 0.1


def test_several_outputs_have_indices_of_their_own():
    x, y = rows()
    for kernel in (MultitaskKernel(scaled(RBFKernel()), 2, rank=1), CurlFreeKernel(RBFKernel()),
                   HelmholtzKernel(RBFKernel())):  # fmt: skip
        mean = MultitaskMean([ConstantMean(), ConstantMean()], 2)
        approximate = rfgp.approximate(kernel, 16, input_dim=2, seed=0)
        model = rfgp.WeightSpaceGP(approximate, MultitaskGaussianLikelihood(2), mean)
        model.condition(x, torch.stack([y, y.cos()], -1))
        torch.manual_seed(0)
        samples = model.sample_functions(2)
        torch.manual_seed(0)
        found = sobol_indices(model, INPUTS["mixed"], num_functions=2)
        assert found.first.value.shape == (2, 2) and found.second.samples.shape == (2, 2, 2, 2)
        for t in range(2):
            wanted = Quadrature(
                lambda x, t=t, m=model, s=samples: torch.cat([m.posterior(x).mean[None], s(x)])[..., t].detach(),
                INPUTS["mixed"],
            )
            first, total, _ = wanted.indices()
            close(all_of(found.first)[:, t], first)
            close(all_of(found.total)[:, t], total)
            close(all_of(found.mean)[:, t], wanted.mean())


def test_classes_have_indices_of_their_own():
    x, y = rows()
    approximate = rfgp.approximate(scaled(RBFKernel()), 16, input_dim=2, seed=0)
    likelihood = DirichletClassificationLikelihood(num_classes=2)
    model = rfgp.WeightSpaceGP(approximate, likelihood, ConstantMean(batch_shape=torch.Size([2])))
    model.condition(x, (y > 0.5).long())
    found = sobol_indices(model, INPUTS["mixed"], num_functions=2)
    first, _, _ = Quadrature(lambda x: model.posterior(x).mean.detach(), INPUTS["mixed"]).indices()
    close(found.first.value, first)


@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS)
def test_main_effects_equal_quadrature(inputs):
    model = fitted(mean=LinearMean(2))
    wanted = Quadrature(functions(model, 2), inputs, 30)
    lengths = [len(w) for w in wanted.weights]
    for k in range(2):
        grid = torch.stack([torch.linspace(0.0, 1.0, lengths[k])] * 2, -1)
        grid[:, k] = wanted.x.reshape(*lengths, 2).select(1 - k, 0)[:, k]
        torch.manual_seed(0)
        effects = main_effects(model, inputs, grid, num_functions=2)
        assert effects.method == "closed form" and effects.effect.samples.shape == (2, lengths[k], 2)
        close(all_of(effects.effect)[..., k], wanted.mean((k,)))


@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS)
def test_mean_squared_derivatives_equal_quadrature(inputs):
    module = LinearMean(2)
    torch.nn.init.constant_(module.weights, 0.5)
    model = fitted(mean=module)

    def slopes(x):
        x = x.requires_grad_()
        return torch.autograd.grad(model.posterior(x).mean.sum(), x)[0].mT.square()

    wanted = Quadrature(slopes, inputs).mean()
    found = derivative_sensitivities(model, inputs, num_functions=2)
    close(found.mean_square.value, wanted)
    if inputs is INPUTS["uniform"] or inputs is INPUTS["normal"]:
        total = sobol_indices(model, inputs, num_functions=2).total
        assert (found.total_bound().value >= total.value).all()
    else:
        with pytest.raises(ValueError, match="expected uniform or normal inputs for a bound, got values"):
            found.total_bound()


SAMPLED = {
    "polynomial": (lambda: PolynomialKernel(power=2), "auto"),
    "Maclaurin": (lambda: PolynomialKernel(power=3), "random_maclaurin"),
    "not affine": (SkewedChiSquaredKernel, "auto"),
    "linear factor": (lambda: RBFKernel(active_dims=[0]) * LinearKernel(active_dims=[1]), "auto"),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_other_features_are_sampled(name):
    make, method = SAMPLED[name]
    model = fitted(make(), method)
    inputs = [Uniform(0.0, 1.0), Uniform(0.0, 0.8)]
    wanted = Quadrature(functions(model, 2), inputs)
    torch.manual_seed(0)
    found = sobol_indices(model, inputs, num_functions=2, num_points=2**11)
    assert found.method == "sampling"
    for estimate, expected in zip((found.first, found.total, found.second), wanted.indices(), strict=True):
        torch.testing.assert_close(all_of(estimate).nan_to_num(), expected, rtol=0.0, atol=0.02)
    torch.manual_seed(0)
    effects = main_effects(model, inputs, torch.full((1, 2), 0.3), num_functions=2, num_points=2**8)
    assert effects.method == "sampling" and effects.effect.samples.shape == (2, 1, 2)
    with pytest.raises(ValueError, match="expected Fourier features for derivatives"):
        derivative_sensitivities(model, inputs)


def test_sampled_outputs():
    x, y = rows()
    kernel = rfgp.approximate(MultitaskKernel(PolynomialKernel(power=2), 2), 16, input_dim=2, seed=0)
    model = rfgp.WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2)).condition(x, torch.stack([y, -y + x[:, 0]], -1))
    inputs = [Uniform(0.0, 1.0), Uniform(0.0, 1.0)]
    found = sobol_indices(model, inputs, num_functions=3, num_points=2**12)
    assert found.method == "sampling" and found.total.samples.shape == (3, 2, 2)
    first, _, _ = Quadrature(lambda x: model.posterior(x).mean.detach().mT, inputs).indices()
    torch.testing.assert_close(found.first.value, first, rtol=0.0, atol=0.02)


def test_models_without_functions_are_refused():
    x, y = rows()
    inputs = INPUTS["uniform"]
    kernel = rfgp.approximate(RBFKernel(), 8, method="landmarks", train_inputs=x)
    blocks = rfgp.WeightSpaceGP(kernel, GaussianLikelihood(), block_size=10).condition(x, y)
    numbers = rfgp.WeightSpaceGP(rfgp.approximate(RBFKernel(), 8, input_dim=2), ComplexGaussianLikelihood())
    with pytest.raises(ValueError, match="without blocks"):
        sobol_indices(blocks, inputs)
    with pytest.raises(ValueError, match="real targets"):
        sobol_indices(numbers.condition(x, torch.complex(y, y)), inputs)
    with pytest.raises(ValueError, match="expected a fitted rfgp"):
        sobol_indices(lambda x: x, inputs)
    with pytest.raises(ValueError, match="expected x with 2 columns, got 3"):
        sobol_indices(fitted(), [Uniform(0, 1)] * 3)
    for shape in [(0, 5, 2), (3, 5, 2), (0, 2)]:
        with pytest.raises(ValueError, match="grid"):
            main_effects(fitted(), inputs, grid=torch.zeros(shape))
    unfitted = rfgp.WeightSpaceGP(rfgp.approximate(RBFKernel(), 8, input_dim=2), GaussianLikelihood())
    with pytest.raises(ValueError):
        sobol_indices(unfitted, inputs)
