"""Small problems of several outputs: every operator-valued kernel, kind of noise and pattern of missing outputs."""

import math

import dense
import gpytorch
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import MaternKernel, MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean, MultitaskMean, ZeroMean
from problems import randomised

import rfgp
from rfgp.functionals import Component, Gradient, Laplacian, Partial, Value
from rfgp.kernels import (
    CurlFreeKernel,
    DecomposableKernel,
    DivergenceFreeKernel,
    GraphLaplacianCovariance,
    HelmholtzKernel,
    LinearlyObservedKernel,
)
from rfgp.likelihoods import MultitaskFixedNoiseGaussianLikelihood
from rfgp.models import WeightSpaceGP

INPUTS, WIDTH = 2, 8
LOWEST = GreaterThan(1e-12)
"""A constraint under which the noise can be as small as a test wants it."""


def one_measure():
    shared = RBFKernel(ard_num_dims=INPUTS)
    return ScaleKernel(CurlFreeKernel(shared)) + ScaleKernel(DivergenceFreeKernel(shared))


def coregionalization():
    return MultitaskKernel(RBFKernel(), num_tasks=3) + MultitaskKernel(MaternKernel(nu=2.5), num_tasks=3, rank=2)


def graph_laplacian():
    similarity = torch.tensor([[0.0, 1.0, 0.5], [1.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    return DecomposableKernel(ScaleKernel(RBFKernel()), GraphLaplacianCovariance(similarity))


def tasks_and_slopes():
    tasks = MultitaskKernel(RBFKernel(), num_tasks=2, rank=2)
    return LinearlyObservedKernel(tasks, [Value(), Partial(0) @ Component(1)])


# By name: how to make an exact kernel of inputs of two columns, and its number of outputs.
OUTPUT_KERNELS = {
    "curl-free": (lambda: CurlFreeKernel(RBFKernel()), 2),
    "divergence-free": (lambda: ScaleKernel(DivergenceFreeKernel(MaternKernel(nu=2.5))), 2),
    "helmholtz": (lambda: HelmholtzKernel(RBFKernel(ard_num_dims=INPUTS)), 2),
    "one measure": (one_measure, 2),
    "value and gradient": (lambda: LinearlyObservedKernel(ScaleKernel(RBFKernel()), [Value(), Gradient()]), 3),
    "tasks and slopes": (tasks_and_slopes, 3),
    "laplacian": (lambda: LinearlyObservedKernel(RBFKernel(), [Laplacian()]), 1),
    "multitask": (lambda: MultitaskKernel(ScaleKernel(RBFKernel()), num_tasks=3, rank=2), 3),
    "coregionalization": (coregionalization, 3),
    "graph laplacian": (graph_laplacian, 3),
    "mixed sum": (lambda: CurlFreeKernel(MaternKernel(nu=1.5)) + MultitaskKernel(RBFKernel(), num_tasks=2), 2),
}
SEPARABLE = ("multitask", "graph laplacian")
NOISES = ("one", "shared", "per task", "full", "full alone", "fixed", "fixed+learned")
NOISES_OF_ONE = ("one", "fixed", "fixed+learned")
PATTERNS = ("none", "random", "an output", "rows", "one per row")
CASES = [
    (name, noise, pattern)
    for name, (_, outputs) in OUTPUT_KERNELS.items()
    for noise in (NOISES if outputs > 1 else NOISES_OF_ONE)
    for pattern in (PATTERNS if outputs > 1 and noise not in ("shared", "full alone") else ("none", "random"))
]


def output_kernel(name, width=WIDTH, seed=0, input_dim=INPUTS):
    """An approximated kernel with its parameters away from their first values."""
    return rfgp.approximate(randomised(OUTPUT_KERNELS[name][0]()), width, input_dim=input_dim, seed=seed)


def output_rows(name, num_rows=20, pattern="none", seed=1):
    """Inputs (N, 2) and targets (N, T), or (N,) where T = 1, with NaN for what is missing."""
    generator = torch.Generator().manual_seed(seed)
    outputs = OUTPUT_KERNELS[name][1]
    x = torch.randn(num_rows, INPUTS, generator=generator)
    y = torch.randn(num_rows, outputs, generator=generator)
    missing = torch.zeros_like(y, dtype=torch.bool)
    if pattern == "random":
        missing = torch.rand(y.shape, generator=generator) < 0.3
    if pattern == "an output":
        missing[:, 1] = True
    if pattern == "rows":
        missing[::3] = True
    if pattern == "one per row":
        missing = torch.arange(num_rows)[:, None] % outputs != torch.arange(outputs)
    y = torch.where(missing, math.nan, y)
    return x, y.squeeze(-1) if outputs == 1 else y


def output_noise(name, num_rows=20, seed=2):
    """Known noise variances for every row and output."""
    outputs = OUTPUT_KERNELS[name][1]
    variances = 0.1 + torch.rand(num_rows, outputs, generator=torch.Generator().manual_seed(seed))
    return variances.squeeze(-1) if outputs == 1 else variances


def output_likelihood(name, kind, num_rows=20):
    """A likelihood of a kind of noise; those with fixed noise know that of :func:`output_noise`."""
    outputs = OUTPUT_KERNELS[name][1]
    if kind.startswith("fixed"):
        fixed = FixedNoiseGaussianLikelihood if outputs == 1 else MultitaskFixedNoiseGaussianLikelihood
        likelihood = fixed(output_noise(name, num_rows), learn_additional_noise=kind == "fixed+learned")
    elif kind == "one":
        likelihood = (
            GaussianLikelihood(noise_constraint=LOWEST)
            if outputs == 1
            else MultitaskGaussianLikelihood(outputs, has_task_noise=False, noise_constraint=LOWEST)
        )
    elif kind == "shared":
        likelihood = GaussianLikelihood()
    elif kind == "per task":
        likelihood = MultitaskGaussianLikelihood(outputs, noise_constraint=LOWEST)
    else:
        is_alone = kind == "full alone"
        likelihood = MultitaskGaussianLikelihood(
            outputs, rank=outputs if is_alone else 1, has_global_noise=not is_alone
        )
    return randomised(likelihood, seed=3)


def output_mean(name):
    """A mean function of every kind for the outputs, with coefficients away from zero."""
    outputs = OUTPUT_KERNELS[name][1]
    if outputs == 1:
        return randomised(ConstantMean(), seed=4)
    parts = [ConstantMean(), LinearMean(INPUTS), ZeroMean()][:outputs]
    return randomised(MultitaskMean(parts, num_tasks=outputs), seed=4)


def output_model(name, kind="one", width=WIDTH, seed=0, input_dim=INPUTS, num_rows=20):
    """An unfitted weight-space model, which keeps its rows."""
    kernel = output_kernel(name, width, seed, input_dim)
    return WeightSpaceGP(kernel, output_likelihood(name, kind, num_rows), output_mean(name), keep_data=True)


class ExactOutputModel(gpytorch.models.ExactGP):
    """A GPyTorch model of several outputs with any kernel."""

    def __init__(self, x, y, likelihood, kernel, mean):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = mean, kernel

    def forward(self, x):
        mean, covariance = self.mean_module(x), self.covar_module(x)
        return (MultivariateNormal if mean.dim() < x.dim() else MultitaskMultivariateNormal)(mean, covariance)


def dense_noise(likelihood, num_rows, outputs):
    """The covariance (N T, N T) of the noise of training rows, rows interleaved, with gradients."""
    if isinstance(likelihood, FixedNoiseGaussianLikelihood | MultitaskFixedNoiseGaussianLikelihood):
        second = likelihood.second_noise_covar
        return torch.diag((likelihood.noise_covar.noise + (0.0 if second is None else second.noise)).flatten())
    tasks = torch.zeros(outputs, outputs)
    if getattr(likelihood, "has_task_noise", False):
        tasks = likelihood.task_noise_covar if likelihood.rank else torch.diag(likelihood.task_noises)
    if getattr(likelihood, "has_global_noise", True):
        tasks = tasks + likelihood.noise * torch.eye(outputs)
    return torch.kron(torch.eye(num_rows), tasks)


def of_features(kernel):
    """The kernel matrix of the features, as a function of two sets of inputs."""
    known = rfgp.approximation.with_features(kernel)
    return lambda x, y: dense.covariance(known, x, y)


def of_exact(kernel):
    """The exact kernel matrix, as a function of two sets of inputs."""
    return lambda x, y: kernel.exact_kernel(x, y).to_dense()


def dense_model(model, x, y, test, matrix=None):
    """Evidence, mean and covariance at test points (rows interleaved) given what is observed, by dense algebra."""
    covariance = of_features(model.covar_module) if matrix is None else matrix
    values = y.reshape(-1)
    outputs, observed = len(values) // len(x), ~torch.isnan(values)
    offset, at_test = (
        model.mean_module(rows).reshape(len(rows), -1).expand(-1, outputs).flatten() for rows in (x, test)
    )
    residual = (values - offset)[observed]
    total = (covariance(x, x) + dense_noise(model.likelihood, len(x), outputs))[observed][:, observed]
    cross = covariance(x, test)[observed]
    solved = torch.linalg.solve(total, residual)
    constant = len(residual) * math.log(2.0 * math.pi)
    evidence = -0.5 * (residual @ solved + torch.linalg.slogdet(total)[1] + constant)
    latent = covariance(test, test) - cross.mT @ torch.linalg.solve(total, cross)
    return evidence, at_test + cross.mT @ solved, latent
