"""Small problems, models for them and every family of kernels, shared by the tests of kernels, models and training."""

import dataclasses
from collections.abc import Callable

import gpytorch
import torch
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood

import rfgp
from rfgp.features.sketch_registry import SKETCHES
from rfgp.kernels import (
    AdvectedKernel,
    DotProductKernel,
    ExponentialDotProductKernel,
    LaplaceKernel,
    OpticalKernel,
    SkewedChiSquaredKernel,
)
from rfgp.likelihoods import ComplexGaussianLikelihood, DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP

INPUTS, WIDTH, CLASSES = 3, 12, 3
FORMS = {"real": "rademacher:real", "ctr": "auto", "complex": "tensor_srht:complex"}
KINDS = ("gaussian", "fixed", "fixed+learned", "complex", "dirichlet")


class ExactModel(gpytorch.models.ExactGP):
    """A GPyTorch model with any kernel."""

    def __init__(self, x, y, likelihood, kernel, mean=None):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean() if mean is None else mean
        self.covar_module = kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def polynomial(width=WIDTH, method="auto", input_dim=INPUTS, power=2, seed=0, **options):
    """An approximated polynomial kernel with an output scale; ``input_dim=None`` gives one that is built lazily."""
    exact = ScaleKernel(PolynomialKernel(power=power), **options)
    return rfgp.approximate(exact, width, input_dim=input_dim, method=method, seed=seed)


def regression_rows(num_rows, seed=1):
    """Inputs and targets of a smooth function with noise of standard deviation 0.3."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, INPUTS, generator=generator)
    return x, torch.sin(x.sum(-1)) + 0.3 * torch.randn(num_rows, generator=generator)


def rows_for(kind, num_rows, seed=1):
    """Arguments (x, y, noise) of fit and update for a kind of likelihood; noise is None where it takes none."""
    x, y = regression_rows(num_rows, seed)
    if kind == "complex":
        return x, torch.complex(y, x[:, 0] ** 2), None
    if kind == "dirichlet":
        return x, torch.arange(num_rows) % CLASSES, None
    return x, y, 0.1 + x[:, 1] ** 2 if kind.startswith("fixed") else None


def likelihood_for(kind):
    """A likelihood; those with fixed noise and class labels know no training rows."""
    if kind == "gaussian":
        return GaussianLikelihood()
    if kind == "complex":
        return ComplexGaussianLikelihood()
    if kind == "dirichlet":
        return DirichletClassificationLikelihood(num_classes=CLASSES)
    return FixedNoiseGaussianLikelihood(torch.ones(1), learn_additional_noise=kind == "fixed+learned")


def model_for(kind, form="ctr", keep_data=True, **options):
    """An unfitted weight-space model, which keeps its rows; ``options`` go to :func:`polynomial`."""
    mean = gpytorch.means.ConstantMean()
    mean.constant = 0.3
    kernel = polynomial(method=FORMS[form], **options)
    return WeightSpaceGP(kernel, likelihood_for(kind), mean, keep_data=keep_data)


def no_graph(distribution):
    """Mean and covariance of a posterior, detached."""
    return distribution.mean.detach(), distribution.covariance_matrix.detach()


@dataclasses.dataclass(frozen=True)
class KernelCase:
    """A family of exact kernels: how to make one with GPyTorch's options, and inputs that it is defined for.

    :param create: takes ``batch_shape`` and ``active_dims``, and ``ard_num_dims`` where there is ARD; parameters have
        the values that GPyTorch starts with.
    :param methods: the methods that inputs of ``columns`` columns can have, without their forms.
    :param columns: the number of columns it is tested with.
    :param has_ard: whether it takes ``ard_num_dims``.
    :param domain: "real", "positive" or "sphere".
    """

    create: Callable[..., Kernel]
    methods: tuple[str, ...]
    columns: int = 4
    has_ard: bool = False
    domain: str = "real"

    def make(self, seed=0, **options):
        """A kernel in float64 with all parameters away from their first values."""
        return randomised(self.create(**options), seed)

    def inputs(self, num_rows, seed=0, batch=(), columns=None):
        """Inputs (*batch, num_rows, columns) in the domain, in float64."""
        generator = torch.Generator().manual_seed(seed)
        shape = (*batch, num_rows, self.columns if columns is None else columns)
        return in_domain(torch.randn(shape, generator=generator, dtype=torch.float64), self.domain)


def in_domain(x, domain):
    """Normal draws made inputs of a domain."""
    if domain == "positive":
        return x.abs()
    return torch.nn.functional.normalize(x, dim=-1) if domain == "sphere" else x


def randomised(kernel, seed=0):
    """The kernel in float64 with all parameters that learn away from their first values."""
    generator = torch.Generator().manual_seed(seed)
    kernel = kernel.double()
    for parameter in kernel.parameters():
        if parameter.requires_grad:
            parameter.data.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return kernel


def spherical_polynomial(**options):
    """A polynomial kernel with the offset of 1.5 that spherical features are made for, and that stays so."""
    kernel = PolynomialKernel(power=3, **options)
    kernel.offset = 1.5
    return kernel.requires_grad_(False)


def mixture(ard_num_dims=4, **options):
    """A spectral mixture of two components, which has to know the number of columns."""
    return SpectralMixtureKernel(num_mixtures=2, ard_num_dims=ard_num_dims, **options)


def advected(num_space_dims=3, **options):
    """A kernel of a field that drifts, which has to know the number of columns."""
    return AdvectedKernel(num_space_dims, **options)


def dot_product(**options):
    """A dot-product kernel without a quadratic term."""
    return DotProductKernel(torch.tensor([0.5, 1.0, 0.0, 0.3]), **options)


FOURIER = ("fourier", "fourier_qmc")
ISOTROPIC = ("fourier", "fourier_orthogonal", "fourier_hadamard", "fourier_qmc")
MACLAURIN = ("random_maclaurin", "optimized_maclaurin")
SPHERICAL = ("spherical", "spherical_orthogonal", "spherical_hadamard")
KERNELS = {
    "linear": KernelCase(LinearKernel, ("linear", *SKETCHES), has_ard=True),
    "polynomial": KernelCase(lambda **o: PolynomialKernel(power=2, **o), (*SKETCHES, *MACLAURIN)),
    "polynomial on the sphere": KernelCase(spherical_polynomial, SPHERICAL, domain="sphere"),
    "rbf": KernelCase(RBFKernel, (*ISOTROPIC, *MACLAURIN), has_ard=True),
    "matern 1/2": KernelCase(lambda **o: MaternKernel(nu=0.5, **o), ISOTROPIC, has_ard=True),
    "matern 3/2": KernelCase(lambda **o: MaternKernel(nu=1.5, **o), ISOTROPIC, has_ard=True),
    "matern 5/2": KernelCase(lambda **o: MaternKernel(nu=2.5, **o), ISOTROPIC, has_ard=True),
    "rational quadratic": KernelCase(RQKernel, ISOTROPIC, has_ard=True),
    "laplace": KernelCase(LaplaceKernel, FOURIER, has_ard=True),
    "spectral mixture": KernelCase(mixture, FOURIER),
    "periodic": KernelCase(PeriodicKernel, ("series",), columns=1),
    "periodic, 3 columns": KernelCase(PeriodicKernel, FOURIER, columns=3, has_ard=True),
    "cosine": KernelCase(CosineKernel, ("series",), columns=1),
    "constant": KernelCase(ConstantKernel, ("series",)),
    "advected": KernelCase(advected, FOURIER, has_ard=True),
    "skewed chi-squared": KernelCase(SkewedChiSquaredKernel, FOURIER, domain="positive"),
    "dot product": KernelCase(dot_product, MACLAURIN),
    "exponential": KernelCase(ExponentialDotProductKernel, MACLAURIN, has_ard=True),
    "optical": KernelCase(OpticalKernel, ("optical",)),
}


def methods_of(case):
    """The methods of a case with every form that they have."""
    names = []
    for name in case.methods:
        if name in ("linear", "series", "optical"):
            names.append(name)
        elif name.startswith(("fourier", "spherical")):
            names += [name, f"{name}:complex"]
        else:
            names += [f"{name}:{form}" for form in ("real", "complex", "ctr")]
    return names


def scaled(kernel, outputscale=2.0):
    """The kernel with an output scale."""
    kernel = ScaleKernel(kernel).to(torch.get_default_dtype())
    kernel.outputscale = outputscale
    return kernel


def constant(value=0.7):
    """A constant kernel."""
    kernel = ConstantKernel()
    kernel.constant = torch.tensor([value])
    return kernel


# Sums, products and nested ones of three input columns, with parts that are approximated, exact, scaled and selective.
COMPOSITIONS = {
    "sum": lambda: scaled(RBFKernel(active_dims=[0, 1])) + scaled(MaternKernel(nu=1.5, active_dims=[2]), 0.5),
    "sum with exact parts": lambda: scaled(RBFKernel()) + LinearKernel() + constant() + CosineKernel(active_dims=[1]),
    "sum of many": lambda: RQKernel() + mixture(3) + OpticalKernel() + PolynomialKernel(power=2) + dot_product(),
    "product": lambda: scaled(RBFKernel(active_dims=[0])) * PeriodicKernel(active_dims=[1, 2]),
    "product with an exact part": lambda: scaled(RBFKernel()) * LinearKernel(ard_num_dims=3),
    "product with a biased part": lambda: dot_product() * RBFKernel(),
    "product of three": lambda: RBFKernel() * constant() * PolynomialKernel(power=2),
    "product of exact parts": lambda: LinearKernel() * CosineKernel(active_dims=[1]) * constant(),
    "product of sums": lambda: (RBFKernel() + LinearKernel()) * (constant() + MaternKernel(nu=2.5)),
    "scaled sum": lambda: scaled(RBFKernel() + LinearKernel(active_dims=[1])),
    "scaled product": lambda: scaled(PolynomialKernel(power=2) * RBFKernel(active_dims=[0, 2])),
    "scaled sum in a product": lambda: scaled(scaled(RBFKernel()) + LinearKernel(), 0.3) * MaternKernel(nu=1.5),
    "scaled product in a product": lambda: scaled(RBFKernel() * LinearKernel(), 0.3) * PeriodicKernel(active_dims=[0]),
    "nested": lambda: scaled(scaled(RBFKernel()) * PeriodicKernel(active_dims=[0]) + LinearKernel(), 0.5) + constant(),
}


def composition(name, seed=0):
    """A composition in float64 with all parameters away from their first values."""
    return randomised(COMPOSITIONS[name](), seed)
