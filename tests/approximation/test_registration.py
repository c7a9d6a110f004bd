"""Kernels that rfgp has never heard of, registered from outside; and GPyTorch's own, which are supported or refused."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass

import gpytorch
import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import GammaPrior
from problems import ExactModel

import rfgp
from rfgp.approximation import FeatureKernel, approximates, family
from rfgp.approximation.families import FAMILIES, FourierFamily, GaussianFamily
from rfgp.approximation.selection import best_method, predicted_error, rank_methods
from rfgp.approximation.selection.ranking import best_of_part
from rfgp.features import RandomFourier, Spectrum
from rfgp.kernels import StationaryKernel

WIDTH = 64


class HeatKernel(RBFKernel):
    """exp(-|x - y|^2 / (4 l^2)): a subclass with other values."""

    def forward(self, x1, x2, **params):
        return super().forward(x1 / math.sqrt(2.0), x2 / math.sqrt(2.0), **params)


class CauchyKernel(Kernel):
    """The product of 1 / (1 + (x_k - y_k)^2 / l_k^2): a kernel of its own."""

    has_lengthscale = True

    def forward(self, x1, x2, diag=False, **params):
        left, right = x1 / self.lengthscale, x2 / self.lengthscale
        difference = left - right if diag else left.unsqueeze(-2) - right.unsqueeze(-3)
        return (1.0 / (1.0 + difference.square())).prod(-1)


@dataclass(frozen=True)
class LaplaceFrequencies(Spectrum):
    """Independent frequencies of density exp(-|w|) / 2, of the Cauchy kernel."""

    def draw(self, width, dim, generator):
        centered = torch.rand(width, dim, generator=generator, dtype=torch.float64) - 0.5
        return {"weight": -centered.sign() * torch.log1p(-2.0 * centered.abs())}

    def frequencies(self, base_draws, **hyperparameters):
        return base_draws["weight"], None

    def kernel(self, x, y, factor=1.0, **hyperparameters):
        return (1.0 / (1.0 + (factor * (x.unsqueeze(-2) - y.unsqueeze(-3))).square())).prod(-1)


class SpectralKernel(StationaryKernel):
    """The same, by its spectral density: nothing is registered."""

    spectrum = LaplaceFrequencies()


@pytest.fixture(autouse=True)
def _registered():
    """All that an outsider has to write beside kernel and spectrum."""

    @approximates(HeatKernel)
    class HeatFamily(GaussianFamily):
        def scaled(self, x):
            return super().scaled(x) / math.sqrt(2.0)

    @approximates(CauchyKernel)
    class CauchyFamily(FourierFamily):
        spectrum = LaplaceFrequencies()


def points(num_rows, seed=0):
    return 0.7 * torch.randn(num_rows, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def double(kernel):
    kernel = kernel.double()
    for i, parameter in enumerate(kernel.parameters()):
        parameter.data.fill_(0.3 + 0.2 * i)
    return kernel


OUTSIDERS = {"subclass": HeatKernel, "unheard of": CauchyKernel, "by its spectrum": SpectralKernel}
TREES = {
    "alone": lambda kernel: kernel(),
    "ARD": lambda kernel: kernel(ard_num_dims=2),
    "scaled": lambda kernel: ScaleKernel(kernel()),
    "sum": lambda kernel: ScaleKernel(kernel()) + LinearKernel(),
    "sum of columns": lambda kernel: kernel(active_dims=[0]) + MaternKernel(active_dims=[1]),
    "product": lambda kernel: kernel() * MaternKernel(),
    "product of a sum": lambda kernel: ScaleKernel(kernel(active_dims=[0])) * (LinearKernel() + MaternKernel()),
    "tasks": lambda kernel: MultitaskKernel(kernel(), num_tasks=2),
}
every_outsider = pytest.mark.parametrize("name", OUTSIDERS)
every_tree = pytest.mark.parametrize("tree", TREES)


@every_tree
@every_outsider
def test_features_estimate_the_kernel_of_an_outsider(name, tree):
    exact, x = double(TREES[tree](OUTSIDERS[name])), points(4)
    kernel = rfgp.approximate(exact, WIDTH, input_dim=2, method="fourier", seed=0)
    assert [type(part) for part in kernel.exact_kernel.modules() if type(part) in OUTSIDERS.values()]
    with torch.no_grad():
        target = exact(x).to_dense()
        drawn = (kernel.resample(torch.Generator().manual_seed(i)).features(x) for i in range(100))
        samples = torch.stack([features @ features.mT for features in drawn])
    error = samples.std(0) / math.sqrt(len(samples))
    assert ((samples.mean(0) - target).abs() <= 4.5 * error + 1e-12).all()


@every_tree
@every_outsider
def test_methods_are_ranked_for_the_kernel_of_an_outsider(monkeypatch, name, tree):
    monkeypatch.setattr(rfgp.approximation.selection.errors, "_COLUMNS_DRAWN", 1)  # the fewest draws
    exact, x = double(TREES[tree](OUTSIDERS[name])), points(6)
    (only,) = rank_methods(exact, WIDTH, x, methods=["fourier"])
    assert 0.0 < only.error.relative_error < 1.0


@every_outsider
def test_the_best_method_is_taken_for_the_kernel_of_an_outsider(name):
    exact, x = double(OUTSIDERS[name]()), points(WIDTH)
    assert best_method(exact, WIDTH, x) == "landmarks"
    chosen = best_of_part(exact, WIDTH, x)
    assert chosen in (("fourier", "fourier_orthogonal", "fourier_qmc") if name == "subclass" else ("fourier",))
    kernel = rfgp.approximate(exact, WIDTH, method=chosen, train_inputs=x, seed=0)
    assert str(kernel.maps.recipe.method) == chosen


@every_outsider
def test_the_predicted_error_of_an_outsider_is_a_closed_form(name):
    exact, x = double(OUTSIDERS[name]()), points(6)
    kernel = rfgp.approximate(exact, WIDTH, input_dim=2, method="fourier", seed=0)
    predicted = predicted_error(kernel, x)
    assert predicted.is_closed_form
    with torch.no_grad():
        target, errors = exact(x).to_dense(), []
        for i in range(200):
            errors.append((kernel.resample(torch.Generator().manual_seed(i))(x).to_dense() - target).square().mean())
    errors = torch.stack(errors)
    assert abs(float(errors.mean()) - predicted.mean_squared_error) <= 4.0 * float(errors.std()) / math.sqrt(200.0)


@every_outsider
def test_models_take_the_kernel_of_an_outsider(name):
    exact, x = double(ScaleKernel(OUTSIDERS[name]()) + LinearKernel()), points(30)
    y, test = x[:, 0] * x[:, 1], points(5, seed=1)
    kernel = rfgp.approximate(exact, WIDTH, input_dim=2, seed=0)
    likelihood = GaussianLikelihood().double()
    weight_space = rfgp.models.WeightSpaceGP(kernel, likelihood).condition(x, y)
    drop_in = ExactModel(x, y, likelihood, kernel).double().eval()
    with torch.no_grad():
        expected, found = weight_space.posterior(test), drop_in(test)
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.variance, expected.variance, rtol=1e-5, atol=1e-6)


@every_outsider
def test_states_of_outsiders(name):
    kernel, other = (rfgp.approximate(double(OUTSIDERS[name]()), WIDTH, input_dim=2, seed=seed) for seed in (0, 1))
    other.load_state_dict(kernel.state_dict())
    assert torch.equal(other(points(3)).to_dense(), kernel(points(3)).to_dense())
    plain = rfgp.approximate(RBFKernel().double(), WIDTH, input_dim=2, seed=0)
    with pytest.raises(ValueError, match="expected the state of FeatureKernel"):
        plain.load_state_dict(kernel.state_dict())


def test_settings_of_outsiders_belong_to_their_states():
    class Powered(CauchyKernel):
        def __init__(self, power):
            super().__init__()
            self.power = power

        def forward(self, x1, x2, **params):
            return super().forward(self.power * x1, self.power * x2, **params)

    @approximates(Powered)
    class PoweredFamily(FourierFamily):
        settings = ("power",)
        spectrum = LaplaceFrequencies()

        def scaled(self, x):
            return self.kernel.power * super().scaled(x)

    one, two = (rfgp.approximate(Powered(power), WIDTH, input_dim=2, seed=0) for power in (1, 2))
    with pytest.raises(ValueError, match=r"expected the state of FeatureKernel\(Powered\(power=2.0\)"):
        two.load_state_dict(one.state_dict())


# Subclasses that are the same kernel, and those that are not


class WithPrior(RBFKernel):
    """The same values, with a prior."""

    def __init__(self, **options):
        super().__init__(lengthscale_prior=GammaPrior(2.0, 1.0), **options)


def overriding(base, **members):
    return type("Mine", (base,), members)


def elsewhere(self, *args, **kwargs):
    return super(type(self), self).forward(*args, **kwargs)


def test_a_subclass_with_the_same_values_has_the_family_of_its_base():
    x = points(5)
    ours, base = (kernel(ard_num_dims=2).double() for kernel in (WithPrior, RBFKernel))
    made, expected = (rfgp.approximate(kernel, WIDTH, seed=0) for kernel in (ours, base))
    assert type(family(ours)) is type(family(base)) and made.exact_kernel is ours
    assert torch.equal(made(x).to_dense(), expected(x).to_dense())
    assert len(list(made.named_priors())) == 1


@pytest.mark.parametrize("around", [lambda kernel: kernel, ScaleKernel, lambda kernel: RBFKernel() + kernel])
@pytest.mark.parametrize("name", ["forward", "__call__", "covar_dist", "num_outputs_per_input"])
def test_a_subclass_with_other_values_is_refused_until_it_is_registered(name, around):
    kernel = overriding(MaternKernel, **{name: elsewhere})
    message = rf"got Mine; use one of these or, since it overrides {name} of MaternKernel, register it with rfgp"
    for method in ("auto", "fourier"):
        with pytest.raises(ValueError, match=rf"^expected a kernel with random features .*{message}"):
            rfgp.approximate(around(kernel()), WIDTH, method=method)
    with pytest.raises(ValueError, match=message):
        FeatureKernel(kernel(), RandomFourier(2, WIDTH))
    approximates(kernel)(FAMILIES[MaternKernel])
    assert type(family(kernel())) is FAMILIES[MaternKernel]


def test_a_scale_with_other_values_is_refused():
    for members in ({"forward": elsewhere}, {"outputscale": property(lambda self: 2.0)}):
        with pytest.raises(ValueError, match=r"since it overrides .* of ScaleKernel"):
            rfgp.approximate(overriding(ScaleKernel, **members)(RBFKernel()), WIDTH)


def test_only_classes_of_kernels_are_registered():
    for wrong in (RBFKernel(), GaussianFamily, "RBFKernel", None):
        with pytest.raises(ValueError, match="expected classes of GPyTorch kernels, got"):
            approximates(wrong)


GRID = torch.linspace(0.0, 1.0, 4)[:, None]
OPTIONS = {
    "AdditiveKernel": lambda make: make(RBFKernel(), RBFKernel()),
    "ProductKernel": lambda make: make(RBFKernel(), MaternKernel()),
    "ScaleKernel": lambda make: make(RBFKernel()),
    "MultitaskKernel": lambda make: make(RBFKernel(), num_tasks=2),
    "IndexKernel": lambda make: make(num_tasks=2),
    "PolynomialKernel": lambda make: make(power=2),
    "PolynomialKernelGrad": lambda make: make(power=2),
    "SpectralMixtureKernel": lambda make: make(num_mixtures=2, ard_num_dims=2),
    "AdditiveStructureKernel": lambda make: make(RBFKernel(), num_dims=2),
    "ProductStructureKernel": lambda make: make(RBFKernel(), num_dims=2),
    "NewtonGirardAdditiveKernel": lambda make: make(RBFKernel(), num_dims=2),
    "ArcKernel": lambda make: make(MaternKernel()),
    "CylindricalKernel": lambda make: make(2, RBFKernel()),
    "MultiDeviceKernel": lambda make: make(RBFKernel(), device_ids=["cpu"]),
    "DistributionalInputKernel": lambda make: make(lambda x, y: x @ y.mT),
    "GridKernel": lambda make: make(RBFKernel(), [GRID[:, 0]]),
    "GridInterpolationKernel": lambda make: make(RBFKernel(), grid_size=4, num_dims=1),
    "HammingIMQKernel": lambda make: make(vocab_size=4),
    "InducingPointKernel": lambda make: make(RBFKernel(), GRID, GaussianLikelihood()),
    "LCMKernel": lambda make: make([RBFKernel()], num_tasks=2),
    "RFFKernel": lambda make: make(num_samples=4, num_dims=2),
    "SpectralDeltaKernel": lambda make: make(num_dims=2),
}
CLASSES = {name: known for name, known in vars(gpytorch.kernels).items() if inspect.isclass(known)}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_kernels_of_gpytorch_are_supported_as_they_are_or_refused(name):
    kernel = OPTIONS.get(name, lambda make: make())(CLASSES[name])
    if CLASSES[name] in FAMILIES:
        columns = 1 if name in ("IndexKernel", "CosineKernel") else 2
        made = rfgp.approximate(kernel, WIDTH, input_dim=columns, seed=0)
        x = torch.zeros(3, columns)
        assert made.exact_kernel(x).shape == kernel(x).shape == made(x).shape
        return
    with pytest.raises(ValueError, match=rf"^expected a kernel with random features .*, got {name}; use one of these"):
        rfgp.approximate(kernel, WIDTH, input_dim=2)
