"""Evidence, mean and covariance equal dense float64 algebra, for every map, likelihood and shape of the features."""

import gpytorch
import pytest
import torch
from dense import covariance, evidence, posterior
from gpytorch.kernels import PolynomialKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from problems import COMPOSITIONS, KERNELS, composition

import rfgp
from rfgp.approximation import FeatureKernel
from rfgp.features import ComplexToReal, LinearFeatures, ProductSketch, TensorSketch, TensorSRHT
from rfgp.likelihoods import ComplexGaussianLikelihood, DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP

WIDTH, DEGREE, INPUTS = 12, 2, 3
ROWS = {"N<D": 7, "N=D": WIDTH, "N>D": 40}
RELATIVE = 1e-9


def complex_maps(generator):
    shared = {"is_complex": True, "generator": generator}
    return {
        "rademacher": lambda width: ProductSketch(INPUTS + 1, width, DEGREE, **shared),
        "gaussian": lambda width: ProductSketch(INPUTS + 1, width, DEGREE, "gaussian", **shared),
        "srht": lambda width: TensorSRHT(INPUTS + 1, width, DEGREE, **shared),
        "srht-stacked": lambda width: TensorSRHT(INPUTS + 1, width, DEGREE, "stacked", **shared),
        "tensor-sketch": lambda width: TensorSketch(INPUTS + 1, width, DEGREE, **shared),
    }


def real_maps(generator):
    return {
        "rademacher": lambda: ProductSketch(INPUTS + 1, WIDTH, DEGREE, generator=generator),
        "gaussian": lambda: ProductSketch(INPUTS + 1, WIDTH, DEGREE, "gaussian", generator=generator),
        "srht": lambda: TensorSRHT(INPUTS + 1, WIDTH, DEGREE, generator=generator),
        "srht-stacked": lambda: TensorSRHT(INPUTS + 1, WIDTH, DEGREE, "stacked", generator=generator),
        "tensor-sketch": lambda: TensorSketch(INPUTS + 1, WIDTH, DEGREE, generator=generator),
    }


def make_map(name):
    generator = torch.Generator().manual_seed(3)
    kind, _, form = name.partition(":")
    if form == "real":
        return real_maps(generator)[kind]()
    if form == "complex":
        return complex_maps(generator)[kind](WIDTH)
    return ComplexToReal(complex_maps(generator)[kind](WIDTH // 2))


KINDS = ("rademacher", "gaussian", "srht", "srht-stacked", "tensor-sketch")
REAL = [f"{kind}:{form}" for kind in KINDS for form in ("real", "ctr")]
COMPLEX = [f"{kind}:complex" for kind in KINDS]


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def make_kernel(name, scaled, outputscale=2.0):
    feature_map = make_map(name)
    kernel = FeatureKernel(PolynomialKernel(power=DEGREE), feature_map)
    if not scaled:
        return kernel
    scale = ScaleKernel(kernel)
    scale.outputscale = outputscale
    return scale


def close(actual, expected, scale=None):
    reference = expected.abs().max() if scale is None else scale
    assert (actual - expected).abs().max() <= RELATIVE * reference


def structured(kernel):
    return rfgp.approximation.with_features(kernel)


class ExactModel(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel, mean):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = mean, kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def regression_data(num_rows):
    x, test = torch.randn(num_rows, INPUTS), torch.randn(6, INPUTS)
    return x, torch.sin(x.sum(-1)) + 0.1 * torch.randn(num_rows), test


def regression_likelihood(kind, num_rows, largest):
    """A likelihood, its noise variances, and a description: noise down to 1e-6 of the norm of the kernel matrix."""
    if kind == "gaussian":
        likelihood = GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-12))
        likelihood.noise = 1e-6 * largest
        return likelihood, likelihood.noise.detach().expand(num_rows)
    noise = largest * 10.0 ** torch.linspace(-6, -3, num_rows)
    if kind == "fixed":
        return FixedNoiseGaussianLikelihood(noise), noise
    likelihood = FixedNoiseGaussianLikelihood(noise, learn_additional_noise=True)
    likelihood.second_noise = 1e-3 * largest
    return likelihood, noise + likelihood.second_noise.detach()


def constant_mean():
    mean = gpytorch.means.ConstantMean()
    mean.constant = 0.3
    return mean


def check_real(kernel, x, y, test, kind):
    """Evidence, mean and covariance of WeightSpaceGP and of ExactGP against dense algebra with the features."""
    features = structured(kernel)
    matrix = covariance(features, x, x).detach()
    likelihood, noise = regression_likelihood(kind, len(x), float(torch.linalg.eigvalsh(matrix).max()))
    residual = y - 0.3
    mean, cov = posterior(matrix, covariance(features, x, test), covariance(features, test, test), noise, residual)
    value = evidence(matrix, noise, residual)
    missing = features.residual_variance(test)
    cov = cov if missing is None else cov + torch.diag(missing)

    weight_space = WeightSpaceGP(kernel, likelihood, constant_mean())
    with torch.no_grad():
        predicted = weight_space.condition(x, y).posterior(test)
        close(weight_space.log_marginal_likelihood(), value)
    close(predicted.mean, mean + 0.3)
    close(predicted.covariance_matrix, cov, covariance(features, test, test).abs().max())
    close(predicted.variance, cov.diagonal(), covariance(features, test, test).abs().max())

    exact = ExactModel(x, y, likelihood, kernel, constant_mean())
    with torch.no_grad():
        marginal = likelihood(exact.train()(x), x)
        close(marginal.log_prob(y), value)
        predicted = exact.eval()(test)
    close(predicted.mean, mean + 0.3)
    close(predicted.covariance_matrix, cov, covariance(features, test, test).abs().max())


@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
@pytest.mark.parametrize("kind", ["gaussian", "fixed", "fixed+learned"])
@pytest.mark.parametrize("name", REAL)
def test_real_maps(name, kind, scaled, rows):
    x, y, test = regression_data(ROWS[rows])
    check_real(make_kernel(name, scaled), x, y, test, kind)


def approximated(exact, method, data):
    needs_data = method.startswith("optimized")
    options = {"train_inputs": data} if needs_data else {"input_dim": data.shape[-1]}
    return rfgp.approximate(exact, WIDTH, method=method, seed=0, **options).double()


BY_KERNEL = [(name, method) for name, case in KERNELS.items() for method in case.methods if name != "polynomial"]


@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
@pytest.mark.smoke_for_each("name")
@pytest.mark.parametrize("rows", ["N<D", "N>D"])
@pytest.mark.parametrize(("name", "method"), BY_KERNEL)
def test_every_family(name, method, rows):
    case = KERNELS[name]
    x, test = case.inputs(ROWS[rows]), case.inputs(6, seed=1)
    kernel = approximated(ScaleKernel(case.make()), method, case.inputs(WIDTH, seed=2))
    check_real(kernel, x, torch.sin(x.sum(-1)) + 0.1 * torch.randn(len(x)), test, "gaussian")


@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
@pytest.mark.parametrize("rows", ["N<D", "N>D"])
@pytest.mark.parametrize("kind", ["gaussian", "fixed+learned"])
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions(name, kind, rows):
    """The features of the whole, and what GPyTorch makes of it in ExactGP, agree with dense algebra and each other."""
    x, y, test = regression_data({"N<D": 5, "N>D": 60}[rows])
    kernel = rfgp.approximate(composition(name), 36, input_dim=INPUTS, seed=0).double()
    assert (kernel.features(x).shape[-1] > len(x)) == (rows == "N<D")
    check_real(kernel, x, y, test, kind)


def check_complex(kernel, x, y, test):
    """Complex features and real labels: the real part of the complex posterior, and ExactGP with the real kernel."""
    features = structured(kernel)
    matrix = covariance(features, x, x).detach()
    likelihood, noise = regression_likelihood("gaussian", len(x), float(torch.linalg.eigvalsh(matrix).max()))
    prior = covariance(features, test, test)
    mean, cov = posterior(matrix, covariance(features, x, test), prior, noise, y)
    model = WeightSpaceGP(kernel, likelihood)
    with torch.no_grad():
        predicted = model.condition(x, y).posterior(test)
    close(predicted.mean, mean.real)
    close(predicted.covariance_matrix, cov.real, prior.abs().max())
    with pytest.raises(ValueError, match=":ctr"):
        model.log_marginal_likelihood()

    exact = ExactModel(x, y, likelihood, kernel, gpytorch.means.ZeroMean())
    mean, cov = posterior(matrix.real, covariance(features, x, test).real, prior.real, noise, y)
    with torch.no_grad():
        close(likelihood(exact.train()(x), x).log_prob(y), evidence(matrix.real, noise, y))
        predicted = exact.eval()(test)
    close(predicted.mean, mean)
    close(predicted.covariance_matrix, cov, prior.abs().max())


@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_maps_and_real_labels(name, scaled, rows):
    x, y, test = regression_data(ROWS[rows])
    check_complex(make_kernel(name, scaled), x, y, test)


@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
@pytest.mark.parametrize("name", ["sum", "product", "product of sums", "scaled sum in a product", "nested"])
def test_complex_compositions_and_real_labels(name):
    x, y, test = regression_data(60)
    kernel = rfgp.approximate(composition(name), 36, input_dim=INPUTS, method="fourier:complex", seed=0)
    assert kernel.is_complex
    check_complex(kernel, x, y, test)


@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
@pytest.mark.parametrize("name", [*COMPLEX, "srht:ctr", "rademacher:real"])
def test_complex_targets(name, scaled, rows):
    x, real, test = regression_data(ROWS[rows])
    y = torch.complex(real, torch.cos(x[:, 0]))
    kernel = make_kernel(name, scaled)
    features = structured(kernel)
    matrix = covariance(features, x, x).detach()
    likelihood = ComplexGaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-12))
    likelihood.noise = 1e-6 * float(torch.linalg.eigvalsh(matrix).max())
    noise = likelihood.noise.detach().expand(len(x))
    prior = covariance(features, test, test)
    mean, cov = posterior(matrix, covariance(features, x, test), prior, noise, y)
    model = WeightSpaceGP(kernel, likelihood)
    with torch.no_grad():
        predicted = model.condition(x, y).posterior(test)
        close(model.log_marginal_likelihood(), evidence(matrix, noise, y))
    close(predicted.mean, mean)
    close(predicted.covariance_matrix, cov, prior.abs().max())
    close(likelihood(predicted).variance, predicted.variance + likelihood.noise)


@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("alpha", [1e-3, 0.1])
@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "fixed+learned"])
@pytest.mark.parametrize("name", [*REAL, *COMPLEX])
def test_dirichlet_equals_separate_dense_solves(name, learned, alpha, rows):
    x, test = torch.randn(ROWS[rows], INPUTS), torch.randn(6, INPUTS)
    labels = torch.arange(len(x)) % 3
    scales = torch.tensor([0.5, 1.0, 3.0])
    means = torch.tensor([-1.0, 0.2, 0.7])
    likelihood = DirichletClassificationLikelihood(labels, alpha, learn_additional_noise=learned)
    if learned:
        likelihood.second_noise = torch.tensor([[0.1], [0.2], [0.3]])
    extra = likelihood.second_noise_covar.noise.detach() if learned else torch.zeros(3, 1)
    noises = likelihood.noise_covar.noise + extra
    scale = ScaleKernel(make_kernel(name, False), batch_shape=torch.Size([3]))
    scale.outputscale = scales
    mean_module = gpytorch.means.ConstantMean(batch_shape=torch.Size([3]))
    mean_module.constant = means
    model = WeightSpaceGP(scale, likelihood, mean_module)
    with torch.no_grad():
        predicted = model.condition(x, labels).posterior(test)
    base = scale.base_kernel
    total = 0.0
    for c in range(3):
        matrix, cross, prior = (
            scales[c] * covariance(base, a, b).detach() for a, b in ((x, x), (x, test), (test, test))
        )
        residual = likelihood.transformed_targets[c] - means[c]
        mean, cov = posterior(matrix, cross, prior, noises[c], residual)
        close(predicted.mean[c], mean.real + means[c])
        close(predicted.variance[c], cov.diagonal().real, prior.abs().max())
        close(predicted.covariance_matrix[c], cov.real, prior.abs().max())
        total = total + (0.0 if base.is_complex else evidence(matrix, noises[c], residual))
    if base.is_complex:
        return
    with torch.no_grad():
        close(model.log_marginal_likelihood(), total)
        exact = ExactModel(x, likelihood.transformed_targets, likelihood, scale, mean_module)
        marginal = likelihood(exact.train()(x), x)
        close(marginal.log_prob(likelihood.transformed_targets).sum(), total)
        both = exact.eval()(test)
    close(both.mean, predicted.mean)
    close(both.variance, predicted.variance, prior.abs().max())


def test_linear_kernel_is_exact():
    x, _, test = regression_data(40)
    exact = ScaleKernel(gpytorch.kernels.LinearKernel(ard_num_dims=INPUTS))
    exact.base_kernel.variance = torch.tensor([[0.5, 1.0, 2.0]])
    kernel = rfgp.approximate(exact, 7)
    assert isinstance(kernel.feature_map, LinearFeatures)
    with torch.no_grad():
        close(kernel(test, x).to_dense(), exact(test, x).to_dense())
