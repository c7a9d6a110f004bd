"""Small regression and classification problems, and models for them, shared by the tests of models and training."""

import gpytorch
import torch
from gpytorch.kernels import PolynomialKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood

import rfgp
from rfgp.likelihoods import ComplexGaussianLikelihood, DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP

INPUTS, WIDTH, CLASSES = 3, 12, 3
FORMS = {"real": "rademacher:real", "ctr": "auto", "complex": "tensor_srht:complex"}
KINDS = ("gaussian", "fixed", "fixed+learnt", "complex", "dirichlet")


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
    return FixedNoiseGaussianLikelihood(torch.ones(1), learn_additional_noise=kind == "fixed+learnt")


def model_for(kind, form="ctr", **options):
    """An unfitted weight-space model; ``options`` go to :func:`polynomial`."""
    mean = gpytorch.means.ConstantMean()
    mean.constant = 0.3
    return WeightSpaceGP(polynomial(method=FORMS[form], **options), likelihood_for(kind), mean)


def no_graph(distribution):
    """Mean and covariance of a posterior, detached."""
    return distribution.mean.detach(), distribution.covariance_matrix.detach()
