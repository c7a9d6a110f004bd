"""Compare what every kernel, likelihood and model computes with what another commit computes on the same machine.

It is run by hand::

    python tests/reference.py against COMMIT [--only PATTERN]
    python tests/reference.py record FILE.npz
    python tests/reference.py compare FILE.npz [--only PATTERN]
    python tests/reference.py coverage

The first one prints the largest difference by model and kind of value; the next two store values and compare others
with them, for changes without a commit; the last one prints the share of lines that are executed. Files are not
committed: another processor rounds otherwise, and optimization multiplies the difference. A key is the name of a case,
a colon and the name of a value. Samples, which may change with the order of random draws, have "/sample" in their keys.
What raises an error is recorded as such.
"""

import argparse
import ast
import dataclasses
import functools
import importlib
import itertools
import math
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import coverage
import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    IndexKernel,
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
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean, MultitaskMean, ZeroMean

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "support"))

import old_version
import reference_models

import rfgp
from rfgp import approximation, kernels, likelihoods, models
from rfgp import functionals as ops
from rfgp.approximation import selection
from rfgp.kernels import CurlFreeKernel, DecomposableKernel, DivergenceFreeKernel, HelmholtzKernel
from rfgp.kernels import LinearlyObservedKernel as Observed

TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
SMALLEST = 1e-3
"""Differences are relative to the largest recorded value of a key, or to this where that is smaller."""
DTYPES = {"float64": torch.float64, "float32": torch.float32}
SIZES = {"tall": (40, 24), "wide": (24, 32)}
"""Numbers of rows and, per output, of features."""
SETTINGS = [("tall", "float64"), ("tall", "float32"), ("wide", "float64")]
CLASSES, POINTS = 3, 5
CORE = ("inference", "models", "training", "approximation")
"""The rooms of which values are to reach most."""


# Kernels


@dataclasses.dataclass(frozen=True)
class Family:
    """Exact kernels of one family, with the methods to approximate them and the operators to predict."""

    make: Callable
    methods: tuple[str, ...] = ("auto",)
    columns: int = 3
    outputs: int = 1
    operators: tuple = ()
    domain: Callable = lambda x: x


def outputs(count, make, *operators, methods=("auto",), columns=2):
    """A family of kernels of several outputs."""
    return Family(make, methods, columns, count, operators)


def forms(*names):
    return tuple(f"{name}:{form}" for name in names for form in ("real", "complex", "ctr"))


def rbf(**options):
    return ScaleKernel(RBFKernel(**options))


def mixture():
    return SpectralMixtureKernel(num_mixtures=2, ard_num_dims=3)


def dot_product():
    return kernels.DotProductKernel(torch.tensor([0.5, 1.0, 0.0, 0.3]))


def on_sphere():
    kernel = PolynomialKernel(power=3)
    kernel.offset = 1.5
    return ScaleKernel(kernel.requires_grad_(False))


def one_measure():
    shared = RBFKernel(ard_num_dims=2)
    return ScaleKernel(CurlFreeKernel(shared)) + ScaleKernel(DivergenceFreeKernel(shared))


def delayed(w):
    """The spectral density of two outputs of which the second is the first one, later."""
    phase = torch.exp(-0.7j * w[:, 0])
    b = torch.stack([torch.ones_like(phase), phase], dim=-1)
    density = torch.exp(-0.5 * w.square().sum(-1)) / (2.0 * math.pi) ** (0.5 * w.shape[-1])
    return density[:, None, None] * b[:, :, None] * b[:, None, :].conj()


def multitask(base, num_tasks, rank=1):
    return MultitaskKernel(base, num_tasks=num_tasks, rank=rank)


def graph():
    similarity = torch.tensor([[0.0, 1.0, 0.5], [1.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    return DecomposableKernel(rbf(), kernels.GraphLaplacianCovariance(similarity))


def known_covariance():
    return DecomposableKernel(MaternKernel(1.5), kernels.ConstantCovariance(torch.tensor([[1.0, 0.4], [0.4, 0.8]])))


def with_tasks(x):
    return torch.cat([x[:, :2], torch.arange(len(x))[:, None] % 3], dim=-1)


FOURIER = ("fourier", "fourier_orthogonal", "fourier_hadamard")
SKETCHES = ("rademacher", "gaussian", "tensor_srht", "tensor_srht_stacked", "tensor_sketch")
MACLAURIN = ("random_maclaurin", "optimized_maclaurin")
SPHERICAL = ("spherical", "spherical_orthogonal", "spherical_hadamard")
AUTO = ("auto", "auto lazily", "auto on inputs")
POSITIVE, SMALL = {"domain": torch.abs}, {"domain": lambda x: 0.4 * x}
SPHERE = {"domain": functools.partial(torch.nn.functional.normalize, dim=-1)}
FAMILIES = {
    "polynomial": Family(lambda: ScaleKernel(PolynomialKernel(3)), (*AUTO, *forms(*SKETCHES, *MACLAURIN))),
    "polynomial on the sphere": Family(on_sphere, forms(*SPHERICAL), **SPHERE),
    "linear": Family(lambda: LinearKernel(ard_num_dims=3), ("auto", *forms("gaussian"), "tensor_srht")),
    "rbf": Family(rbf, (*AUTO, *forms(*FOURIER, *MACLAURIN))),
    "rbf with ard": Family(lambda: RBFKernel(ard_num_dims=4), FOURIER, columns=4),
    "rbf of some columns": Family(lambda: rbf(active_dims=[0, 2], ard_num_dims=2), AUTO[:2]),
    "matern 0.5": Family(lambda: ScaleKernel(MaternKernel(0.5)), FOURIER),
    "matern 1.5": Family(lambda: MaternKernel(1.5, ard_num_dims=3), FOURIER),
    "matern 2.5": Family(lambda: ScaleKernel(MaternKernel(2.5)), ("auto", "fourier:complex")),
    "rational quadratic": Family(lambda: ScaleKernel(RQKernel()), FOURIER),
    "spectral mixture": Family(mixture, forms("fourier")),
    "periodic": Family(lambda: ScaleKernel(PeriodicKernel()), ("auto", "fourier"), columns=1),
    "periodic of 3 columns": Family(lambda: PeriodicKernel(ard_num_dims=3), ("fourier", "fourier:complex")),
    "cosine": Family(lambda: ScaleKernel(CosineKernel()), columns=1),
    "constant": Family(lambda: ScaleKernel(ConstantKernel())),
    "skewed chi-squared": Family(lambda: kernels.SkewedChiSquaredKernel(skewness=0.7), forms("fourier"), **POSITIVE),
    "dot product": Family(lambda: ScaleKernel(dot_product()), ("auto on inputs", *forms(*MACLAURIN))),
    "exponential": Family(lambda: kernels.ExponentialDotProductKernel(ard_num_dims=3), forms(*MACLAURIN), **SMALL),
    "optical": Family(lambda: ScaleKernel(kernels.OpticalKernel(exponent=4)), forms("optical")),
    "sum": Family(lambda: rbf(active_dims=[0, 1]) + ScaleKernel(MaternKernel(1.5, active_dims=[2])), AUTO[:2]),
    "sum with exact parts": Family(lambda: rbf() + LinearKernel() + CosineKernel(active_dims=[1])),
    "sum of many": Family(
        lambda: RQKernel() + mixture() + kernels.OpticalKernel() + PolynomialKernel(2) + dot_product()
    ),
    "product": Family(lambda: rbf(active_dims=[0]) * PeriodicKernel(active_dims=[1, 2])),
    "product with exact part": Family(lambda: rbf() * LinearKernel(ard_num_dims=3)),
    "product with biased part": Family(lambda: dot_product() * RBFKernel()),
    "product of three": Family(lambda: RBFKernel() * ConstantKernel() * PolynomialKernel(2), ("auto", "fourier")),
    "product of sums": Family(lambda: (RBFKernel() + LinearKernel()) * (ConstantKernel() + MaternKernel(2.5))),
    "scaled product": Family(lambda: ScaleKernel(PolynomialKernel(2) * RBFKernel(active_dims=[0, 2]))),
    "scaled sum": Family(lambda: ScaleKernel(rbf() * PeriodicKernel(active_dims=[0]) + LinearKernel())),
    "index": Family(lambda: rbf(active_dims=[0, 1]) * IndexKernel(3, rank=2, active_dims=[2]), domain=with_tasks),
    "multitask": outputs(
        3, lambda: multitask(rbf(), 3, 2), ops.Component(1), methods=(*AUTO, "fourier_hadamard", "random_maclaurin")
    ),
    "multitask polynomial": outputs(2, lambda: multitask(PolynomialKernel(2), 2), methods=("auto", "rademacher:real")),
    "coregionalization": outputs(3, lambda: multitask(RBFKernel(), 3) + multitask(MaternKernel(2.5), 3, 2)),
    "graph": outputs(3, graph),
    "known covariance": outputs(2, known_covariance),
    "curl-free": outputs(
        2,
        lambda: CurlFreeKernel(RBFKernel()),
        ops.Divergence(),
        ops.Potential(),
        methods=("auto", "auto lazily", "fourier"),
    ),
    "divergence-free": outputs(
        2, lambda: ScaleKernel(DivergenceFreeKernel(MaternKernel(2.5))), ops.Vorticity(), ops.Streamfunction()
    ),
    "helmholtz": outputs(
        2,
        lambda: HelmholtzKernel(RBFKernel(ard_num_dims=2)),
        ops.CurlFreePart(),
        ops.DivergenceFreePart(),
        2.0 * ops.Divergence(),
    ),
    "helmholtz in space": outputs(3, lambda: HelmholtzKernel(RBFKernel()), ops.Curl(), columns=3),
    "one measure": outputs(2, one_measure, ops.CurlFreePart(), ops.Divergence(), methods=("auto", "fourier")),
    "value and gradient": outputs(3, lambda: Observed(rbf(), [ops.Value(), ops.Gradient()]), ops.Component(0)),
    "laplacian": outputs(1, lambda: Observed(RBFKernel(), [ops.Laplacian()]), ops.Gradient()),
    "observed field": outputs(3, lambda: Observed(HelmholtzKernel(RBFKernel()), [ops.Value(), ops.Divergence()])),
    "mixed sum": outputs(2, lambda: CurlFreeKernel(MaternKernel(1.5)) + multitask(RBFKernel(), 2)),
    "spectral density": outputs(2, lambda: kernels.SpectralDensityKernel(delayed, 2), ops.Vorticity()),
    "gradients of gpytorch": outputs(3, gpytorch.kernels.RBFKernelGrad),
}


# Likelihoods and means


@dataclasses.dataclass(frozen=True)
class Noise:
    """Likelihoods of one kind, made from targets and known noise variances."""

    make: Callable
    targets: Callable = lambda x, y: y
    is_fixed: bool = False
    is_scale_batched: bool = False


def labels(x, y):
    return torch.arange(len(x)) % CLASSES


def complex_targets(x, y):
    return torch.complex(y, x[:, 0] ** 2)


def dirichlet(cls, is_scale_batched=False, **options):
    def make(y, variances):
        return cls(y, alpha_epsilon=0.1, dtype=torch.get_default_dtype(), **options)

    return Noise(make, labels, is_scale_batched=is_scale_batched)


def fixed(cls, **options):
    return Noise(lambda y, variances: cls(variances, **options), is_fixed=True)


def by_task(rank=0, **options):
    return Noise(lambda y, variances: MultitaskGaussianLikelihood(y.shape[-1], min(rank, y.shape[-1]), **options))


NOISES = {
    "gaussian": Noise(lambda y, variances: GaussianLikelihood()),
    "fixed": fixed(FixedNoiseGaussianLikelihood),
    "fixed and learned": fixed(FixedNoiseGaussianLikelihood, learn_additional_noise=True),
    "complex": Noise(lambda y, variances: likelihoods.ComplexGaussianLikelihood(), complex_targets),
    "dirichlet": dirichlet(likelihoods.DirichletClassificationLikelihood, learn_additional_noise=True),
    "dirichlet, scales": dirichlet(likelihoods.DirichletClassificationLikelihood, True),
    "dirichlet of gpytorch": dirichlet(gpytorch.likelihoods.DirichletClassificationLikelihood),
    "dirichlet of gpytorch, scales": dirichlet(
        gpytorch.likelihoods.DirichletClassificationLikelihood, True, learn_additional_noise=True
    ),
}
OUTPUT_NOISES = {
    "per task": by_task(),
    "shared": NOISES["gaussian"],
    "one": by_task(has_task_noise=False),
    "full": by_task(rank=1),
    "full alone": by_task(rank=3, has_global_noise=False),
    "fixed": fixed(likelihoods.MultitaskFixedNoiseGaussianLikelihood),
    "fixed and learned": fixed(likelihoods.MultitaskFixedNoiseGaussianLikelihood, learn_additional_noise=True),
}
MEANS = {
    "constant": lambda columns, batch: ConstantMean(batch_shape=batch),
    "zero": lambda columns, batch: ZeroMean(batch_shape=batch),
    "linear": lambda columns, batch: LinearMean(columns, batch_shape=batch),
}


# Cases


def draws(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(torch.get_default_dtype())


def moved(module, seed, shift=0.0):
    """The module with its parameters drawn around a value, and factors of covariances around a diagonal."""
    for i, (name, parameter) in enumerate(module.named_parameters()):
        if parameter.requires_grad:
            center = 0.5 * torch.eye(*parameter.shape) if name.endswith("factor") else shift
            parameter.data.copy_(center + 0.3 * draws(*parameter.shape, seed=100 * seed + i))
    return module


def approximated(kernel, method, num_features, x):
    """A kernel with features, made from the training inputs where the method needs them."""
    name, _, how = method.partition(" ")
    needs_inputs = "maclaurin" in name or how == "on inputs"
    known = {"train_inputs": x} if needs_inputs else {} if how == "lazily" else {"input_dim": x.shape[-1]}
    return rfgp.approximate(kernel, num_features, method=name, seed=3, **known)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model of a problem; all of its values follow from these names."""

    family: str
    method: str
    noise: str
    mean: str
    model: str
    targets: str
    size: str
    dtype: str

    @property
    def name(self):
        return "/".join(dataclasses.astuple(self))

    def steps(self):
        """What the model computes: names, and functions that give values by name."""
        family, (num_rows, num_features) = FAMILIES[self.family], SIZES[self.size]
        noise = (OUTPUT_NOISES if family.outputs > 1 else NOISES)[self.noise]
        x, points = (family.domain(draws(n, family.columns, seed=seed)) for n, seed in ((num_rows, 1), (POINTS, 2)))
        y = torch.sin(x.sum(-1, keepdim=True)) + 0.5 * draws(num_rows, family.outputs, seed=3)
        variances = 0.1 + 0.1 * draws(num_rows, family.outputs, seed=4).abs()
        if self.targets == "missing":
            y[draws(*y.shape, seed=5) > 0.7] = math.nan
        if family.outputs == 1:
            y, variances = y.squeeze(-1), variances.squeeze(-1)
        y = noise.targets(x, y)
        batch = torch.Size([CLASSES] if noise.targets is labels else [])
        exact, mean = family.make(), MEANS[self.mean](family.columns, batch)
        exact = moved(ScaleKernel(exact, batch_shape=batch) if noise.is_scale_batched else exact, 6)
        mean = moved(MultitaskMean(mean, num_tasks=family.outputs) if family.outputs > 1 else mean, 7)
        parts = {"kernel": exact, "mean": mean, "likelihood": moved(noise.make(y, variances), 8, shift=-2.0)}
        kernel = approximated(exact, self.method, num_features * family.outputs, x)
        data = [x, y, variances] if noise.is_fixed else [x, y]
        yield from MODELS[self.model](kernel, parts, data, points, family.operators)


class ExactModel(gpytorch.models.ExactGP):
    """A GPyTorch model with any kernel, of one or many outputs."""

    def __init__(self, x, y, likelihood, kernel, mean):
        super().__init__(x, getattr(likelihood, "transformed_targets", y), likelihood)
        self.mean_module, self.covar_module = mean, kernel

    def forward(self, x):
        normal = MultitaskMultivariateNormal if isinstance(self.mean_module, MultitaskMean) else MultivariateNormal
        return normal(self.mean_module(x), self.covar_module(x))


def of_kernel(kernel, parts, data, points, operators):
    """Kernel matrices, exact and of features, and the variance of the latter."""
    for name, known in (("features", kernel), ("exact kernel", parts["kernel"])):
        yield name, functools.partial(matrices, known, points, data[0])
    yield "variance", lambda: {"value": approximation.hilbert_schmidt_variance(kernel, points, data[0][:4])}


def of_exact_model(kernel, parts, data, points, operators):
    """An ExactGP: evidence, posterior, samples and divergence from the exact posterior."""
    model = ExactModel(*data[:2], parts["likelihood"], kernel, parts["mean"])
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    yield "evidence", lambda: with_gradients(objective(model(data[0]), model.train_targets).sum(), parts)
    model.eval()
    yield "posterior", lambda: moments(model(points))
    yield "noisy posterior", lambda: {"variance": model.likelihood(model(points)).variance}
    yield "functions", lambda: {"sample": seeded(lambda: model(points).rsample(torch.Size([2])))}
    yield "divergence", lambda: divergences(model, points)


def of_weight_space(kernel, parts, data, points, operators):
    """A WeightSpaceGP: the same, what operators make of the posterior, and a fit in two parts."""
    first, second = ([part[rows] for part in data] for rows in (slice(15), slice(15, None)))
    model = models.WeightSpaceGP(kernel, parts["likelihood"], parts["mean"], keep_data=True)
    yield "evidence", lambda: with_gradients(model.condition(*data[:2]).log_marginal_likelihood(), parts)
    yield "posterior", lambda: moments(model.posterior(points))
    yield "noisy posterior", lambda: {"variance": model.likelihood(model.posterior(points)).variance}
    yield "functions", lambda: {"sample": seeded(lambda: model.sample_functions(2)(points))}
    yield "divergence", lambda: divergences(model, points)
    for i, operator in enumerate(operators):
        yield f"operator {i}", functools.partial(lambda o: moments(model.posterior(points, o)), operator)
    yield "two fits", lambda: moments(model.condition(*first).update(*second).posterior(points))
    yield "evidence of two fits", lambda: {"value": model.log_marginal_likelihood()}


MODELS = {"kernel": of_kernel, "exact": of_exact_model, "weight space": of_weight_space}


def with_gradients(value, parts):
    """A value and its gradients in all parameters of exact kernel, mean and likelihood."""
    named = {f"{part}.{n}": p for part, m in parts.items() for n, p in m.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(value, list(named.values()), allow_unused=True)
    return {"value": value} | {f"gradient in {name}": g for name, g in zip(named, gradients, strict=True)}


def weighted(matrix):
    """The product of a matrix with a vector."""
    return matrix @ torch.linspace(0.5, 1.5, matrix.shape[-1]).to(matrix)


def matrices(kernel, x, y):
    return {"product": weighted(kernel(x, y).to_dense()), "diagonal": kernel(x, diag=True)}


@torch.no_grad()
def moments(latent):
    return {"mean": latent.mean, "variance": latent.variance, "covariance": weighted(latent.covariance_matrix)}


@torch.no_grad()
def seeded(sample):
    torch.manual_seed(9)
    return sample()


def divergences(model, points):
    """Both divergences from the exact posterior; of float64, since they have float64 values."""
    directions = ("approximate_from_exact", "exact_from_approximate") if points.dtype == torch.float64 else ()
    return {name: rfgp.diagnostics.kl_to_exact(model, points, direction=name) for name in directions}


def cases():
    """Every family with the plain likelihood; then every likelihood and mean with some families."""
    for name, family in FAMILIES.items():
        noise = "per task" if family.outputs > 1 else "gaussian"
        for method, model, setting in itertools.product(family.methods, MODELS, SETTINGS):
            yield Case(name, method, noise, "constant", model, "complete", *setting)
    scalar = [("rbf", "auto"), ("polynomial", "rademacher:ctr"), ("sum with exact parts", "auto")]
    several = [("curl-free", "auto"), ("multitask", "auto"), ("helmholtz", "auto")]
    for families, noises, usual in ((scalar, NOISES, "gaussian"), (several, OUTPUT_NOISES, "full")):
        pairs = [(noise, "constant") for noise in noises] + [(usual, mean) for mean in MEANS]
        chosen = itertools.product(families, pairs, ("exact", "weight space"), ("complete", "missing"), SETTINGS)
        for (family, method), (noise, mean), model, targets, setting in chosen:
            is_ours_alone = noise in ("complex", "shared")  # of which GPyTorch has no ExactGP
            has_no_missing = noises[noise].targets is labels or (families is scalar and model == "weight space")
            if not (is_ours_alone and model == "exact") and not (has_no_missing and targets == "missing"):
                yield Case(family, method, noise, mean, model, targets, *setting)
    features = ("rbf", "fourier:complex"), ("polynomial", "tensor_srht:complex")
    for (family, method), setting in itertools.product(features, SETTINGS):
        yield Case(family, method, "complex", "linear", "weight space", "complete", *setting)


# Whatever else there is, as names and values


def data_of(columns, num_outputs=1):
    x, points = draws(40, columns, seed=1), draws(POINTS, columns, seed=2)
    y = torch.sin(x.sum(-1, keepdim=True)) * torch.linspace(1.0, 2.0, num_outputs) + 0.3 * draws(40, 1, seed=3)
    return x, y if num_outputs > 1 else y.squeeze(-1), points


def kernel_of(name):
    return moved(FAMILIES[name].make(), 6)


def least_squares():
    """VectorLeastSquares by both solvers, with a graph, unlabeled inputs and an output operator."""
    x, y, points = data_of(2, 2)
    kernel = approximated(kernel_of("helmholtz"), "auto", 32, x)
    rows, graph = (x[:30], y[:30], x[30:], models.knn_laplacian(x, 4)), {"manifold_regularization": 0.01}
    mixing = graph | {"output_operator": torch.tensor([[1.0, 0.5], [0.0, 1.0]])}
    for name, options in (("plain", {}), ("lbfgs", {"solver": "lbfgs"}), ("graph", graph), ("mixing", mixing)):
        model = models.VectorLeastSquares(kernel, regularization=0.05, **options).fit(*rows)
        yield name, model.predict(points)
        yield f"{name}, divergence", model.predict(points, ops.Divergence())


def localized():
    """LocalizedMaclaurinGP in one and three dimensions."""
    for columns in (1, 3):
        x, y, points = data_of(columns)
        likelihood = moved(GaussianLikelihood(), 8, shift=-2.0)
        latent = models.LocalizedMaclaurinGP(kernel_of("rbf"), likelihood, 32).condition(x, y).posterior(points)
        yield f"mean in {columns}", latent.mean
        yield f"variance in {columns}", latent.variance


def rankings():
    """Predicted errors of every method, in order, and numbers of features that meet a tolerance."""
    x = 0.5 * draws(40, 3, seed=1)
    methods = {"sum": ["auto", "fourier"]}
    for name in ("rbf", "polynomial", "linear", "exponential", "sum", "multitask", "helmholtz in space"):
        for place, found in enumerate(selection.rank_methods(kernel_of(name), 32, x, methods=methods.get(name))):
            error = torch.tensor([found.error.mean_squared_error, found.error.relative_error**2])
            others = [place, found.num_features, found.operations, found.is_truncated]
            yield f"{name}, {found.method}/{'error' if found.error.is_closed_form else 'sample'}", error
            yield f"{name}, {found.method}", torch.tensor(others)
    for name, method in (("rbf", "fourier"), ("polynomial", "auto"), ("helmholtz in space", "fourier")):
        number = selection.suggest_num_features(kernel_of(name), x, 0.3, method=method, progress=False)
        yield f"number of features, {name}", torch.tensor(float(number))


def fantasies():
    """An ExactGP with rows added to its posterior."""
    x, y, points = data_of(3)
    for name in ("rbf", "polynomial", "sum"):
        kernel = approximated(kernel_of(name), "auto", 24, x)
        model = ExactModel(x[:30], y[:30], moved(GaussianLikelihood(), 8, shift=-2.0), kernel, ConstantMean()).eval()
        model(points)
        for key, value in moments(model.get_fantasy_model(x[30:], y[30:])(points)).items():
            yield f"{name}, {key}", value


def one_task_per_row():
    """A multitask kernel for observations of one task each."""
    x, y, points = data_of(2)
    kernel = approximated(kernel_of("multitask"), "auto", 24, x)
    model = models.WeightSpaceGP(kernel, moved(MultitaskGaussianLikelihood(3), 8, shift=-2.0))
    model.condition(x, models.task_columns(y, torch.arange(len(x)) % 3, 3))
    yield "evidence", model.log_marginal_likelihood()
    yield from moments(model.posterior(points)).items()


def training():
    """The evidence before and after a few evaluations by the optimizer."""
    for name, kind in itertools.product(("rbf", "polynomial", "multitask", "curl-free"), ("exact", "weight space")):
        columns, count = FAMILIES[name].columns, FAMILIES[name].outputs
        x, y, _ = data_of(columns, count)
        kernel = approximated(FAMILIES[name].make(), "auto", 24, x)
        likelihood = GaussianLikelihood() if count == 1 else MultitaskGaussianLikelihood(count)
        mean = ConstantMean() if count == 1 else MultitaskMean(ConstantMean(), count)
        exact = ExactModel(x, y, likelihood, kernel, mean)
        model = exact if kind == "exact" else models.WeightSpaceGP(kernel, likelihood, mean)
        summary = rfgp.fit(model, x, y, max_evaluations=4, progress=False)
        ends = summary.initial_log_marginal_likelihood, summary.log_marginal_likelihood
        yield f"{name}, {kind}", torch.tensor(ends)


OTHERS = (least_squares, localized, rankings, fantasies, one_task_per_row, training)


# Recording and comparing


def runs():
    """Name, dtype, policy for missing targets and steps of all that is recorded."""
    for case in dict.fromkeys(cases()):
        yield case.name, case.dtype, "mask" if case.targets == "missing" else "ignore", case.steps
    for other, dtype in itertools.product(OTHERS, DTYPES):
        if (other, dtype) != (rankings, "float32"):
            yield (
                f"{other.__name__}/{dtype}",
                dtype,
                "ignore",
                functools.partial(zip, ["values"], [lambda other=other: dict(other())]),
            )
    for name, function in reference_models.CONTRACT.items():
        yield f"{name}/float64", "float64", "ignore", functools.partial(of_models, function)
    for other in reference_models.OTHERS:
        yield f"{other.__name__}/float64", "float64", "ignore", functools.partial(of_models, other)


def of_models(function):
    yield "values", functools.partial(reference_models.run, function)


def evaluated(steps):
    """The values of steps by name, and what raised an error in place of them."""
    found = {}
    try:
        for name, step in steps():
            try:
                found |= {f"{name}/{key}": array(value) for key, value in step().items()}
            except Exception as error:
                found[f"{name}/{type(error).__name__}"] = np.zeros(1)
    except Exception as error:
        found[type(error).__name__] = np.zeros(1)
    return found


def array(value):
    """The numbers of a tensor in float64, none for None."""
    value = torch.zeros(0) if value is None else value.detach()
    return (torch.view_as_real(value) if value.is_complex() else value).double().flatten().numpy()


def values(pattern):
    """All values by key, of what has names that contain a pattern."""
    found = {}
    for name, dtype, policy, steps in runs():
        if pattern in name:
            torch.set_default_dtype(DTYPES[dtype])
            torch.manual_seed(0)
            with gpytorch.settings.observation_nan_policy(policy):
                found |= {f"{name}: {key}": value for key, value in evaluated(steps).items()}
    return found


def save(path, found):
    names = np.frombuffer("\n".join(found).encode(), np.uint8)
    sizes = [len(value) for value in found.values()]
    np.savez_compressed(path, names=names, sizes=sizes, values=np.concatenate(list(found.values())))


def load(path):
    with np.load(path) as file:
        names, ends = file["names"].tobytes().decode().split("\n"), np.cumsum(file["sizes"])
        return dict(zip(names, np.split(file["values"], ends[:-1]), strict=True))


def difference(old, new):
    """The largest difference relative to the largest old value; infinite where shapes or places of NaN differ."""
    if old is None or new is None or old.shape != new.shape or not np.array_equal(np.isfinite(old), np.isfinite(new)):
        return math.inf
    old, new = old[np.isfinite(old)], new[np.isfinite(new)]
    return float(np.abs(new - old).max(initial=0.0) / np.abs(old).max(initial=SMALLEST))


def compare(old, new):
    """Print what differs and a summary, and return the number of keys beyond the tolerance."""
    largest, beyond = dict.fromkeys(DTYPES, 0.0), []
    for key in old | new:
        dtype = next(name for name in DTYPES if name in key)
        found = difference(old.get(key), new.get(key))
        largest[dtype] = max(largest[dtype], found)
        if found > TOLERANCE[dtype]:
            beyond.append(key)
            print(f"{key}  {'is new' if key not in old else 'is missing' if key not in new else f'{found:.2e}'}")
    samples = sum("/sample" in key for key in beyond)
    print(f"{len(old | new)} keys, {len(beyond)} beyond tolerance, {samples} of these samples; {rfgp.__path__[0]}")
    print(*[f"largest difference in {dtype}: {found:.2e}" for dtype, found in largest.items()], sep="\n")
    return len(beyond)


def of_file(path, pattern):
    """The values of a file of what has names that contain a pattern."""
    return {key: value for key, value in load(path).items() if pattern in key.partition(": ")[0]}


def of_commit(commit, pattern):
    """The values that the package of another commit gives."""
    sys.path.insert(0, str(old_version.install(commit)))
    return importlib.import_module("old_reference").values(pattern)


def table(old, new):
    """Print the largest difference of every group of models and kind of value, in a table; inf: there or not."""
    cells = {}
    for key in old | new:
        name, _, value = key.partition(": ")
        group = "/".join(name.split("/")[:1]) if name.count("/") > 3 else name.partition("/")[0]
        cell = group, re.sub(r".*[:/] ?", "", value).split(",")[0].partition(" in ")[0]
        cells[cell] = max(cells.get(cell, 0.0), difference(old.get(key), new.get(key)))
    width = max(len(group) for group, _ in cells)
    for (group, value), found in cells.items():
        print(f"{group:{width}}  {value:32}{found:10.1e}")


def covered(pattern):
    """Print, by room, how many lines of the bodies of functions run, of all that are no docstrings."""
    tracer = coverage.Coverage(data_file=None, source=[rfgp.__path__[0]], config_file=False)
    with tracer.collect():
        values(pattern)
    rooms = {}
    for path in sorted(Path(rfgp.__path__[0]).rglob("*.py")):
        tree, bodies = ast.parse(path.read_text(encoding="utf-8")), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                bodies |= {*range(body[0].lineno, body[-1].end_lineno + 1)} if body else set()
        _, statements, _, missing, _ = tracer.analysis2(str(path))
        lines = bodies & {*statements}
        parts = path.relative_to(rfgp.__path__[0]).parts
        total = rooms.setdefault(parts[0] if len(parts) > 1 else ".", [0, 0])
        total[0] += len(lines - {*missing})
        total[1] += len(lines)
    rooms["core"] = [sum(rooms[name][place] for name in CORE) for place in (0, 1)]
    for name, (run, count) in rooms.items():
        print(f"{name:16}{run:7} of {count:6} lines, {100.0 * run / max(count, 1):.1f} %")
    print(f"core: {', '.join(CORE)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "compare", "against", "coverage"])
    parser.add_argument("file", nargs="?", metavar="FILE", help='the file of values; a commit for "against"')
    parser.add_argument("--only", default="", metavar="PATTERN", help="only cases whose names contain this")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if arguments.action == "coverage":
        return covered(arguments.only)
    if arguments.file is None:
        parser.error(f"expected a file or a commit after {arguments.action}")
    if arguments.action == "record":
        return save(arguments.file, values(arguments.only))
    old = (of_file if arguments.action == "compare" else of_commit)(arguments.file, arguments.only)
    new = values(arguments.only)
    if arguments.action == "against":
        table(old, new)
    sys.exit(min(compare(old, new), 1))


if __name__ == "__main__":
    main()
