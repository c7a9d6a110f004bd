"""The table of public signatures: what every public function, class and method takes, by kinds with good values.

An argument that a line leaves out has the kind of its name in ``BY_NAME``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gpytorch
import numpy as np
import torch
from argument_kinds import (
    ANY,
    FLAG,
    FLOATING,
    GENERATOR,
    KERNEL,
    MODULE,
    PATH,
    SEED,
    Kind,
    count,
    free_inputs,
    inputs,
    instance,
    is_real,
    is_tried,
    labels,
    number,
    real,
    tensor,
    values,
    word,
)
from gpytorch.kernels import MultitaskKernel, PolynomialKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from problems import ExactModel
from torch import Tensor
from torch.distributions import Normal

import rfgp
from rfgp import (
    approximation,
    averaging,
    botorch,
    data,
    diagnostics,
    features,
    inference,
    kernels,
    likelihoods,
    linalg,
    models,
)
from rfgp import functionals as operators
from rfgp.approximation import selection
from rfgp.diagnostics import bounds, certificates, conformal, sensitivity, two_sample
from rfgp.features import allocation
from rfgp.functionals import observations
from rfgp.linalg import sampling
from rfgp.models import maps, streams
from rfgp.models.least_squares import simplex
from rfgp.study import datasets, plots


@dataclass(frozen=True, repr=False, eq=False)
class Signature:
    """What a public function takes: the kinds of its arguments by name, which hold a good call."""

    function: Callable[..., Any]
    kinds: dict[str, Kind]

    def __repr__(self) -> str:
        owner = getattr(self.function, "__self__", None)
        name = self.function.__name__
        if owner is None or isinstance(owner, type):
            return name if owner is None else f"{owner.__name__}.{name}"
        return f"{type(owner).__name__}.{name}"


# Good values

_GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(12, 3, generator=_GENERATOR)
Y = torch.rand(12, generator=_GENERATOR)
UNIT = torch.nn.functional.normalize(X, dim=-1)
CLASSES = torch.arange(12) % 3
SHARES = torch.softmax(torch.rand(12, 3, generator=_GENERATOR), -1)
SERIES = torch.tensor([1.0, 1.0, 0.5])
FLAT = torch.rand(9, 2, generator=_GENERATOR)
EYE = torch.eye(3)
NORMAL = Normal(torch.zeros(12), torch.ones(12))
COMPLEX_NORMAL = likelihoods.ComplexNormal(torch.zeros(5).cfloat(), torch.eye(5))
DIRICHLET = likelihoods.DirichletClassificationLikelihood(num_classes=3)


def approximated(exact: gpytorch.kernels.Kernel, **options: Any) -> gpytorch.kernels.Kernel:
    return rfgp.approximate(exact, 8, input_dim=3, seed=0, **options)


def rbf() -> gpytorch.kernels.Kernel:
    return approximated(RBFKernel())


APPROXIMATED = approximated(ScaleKernel(RBFKernel()))
TASKS = approximated(MultitaskKernel(RBFKernel(), num_tasks=2))
CURL = approximated(kernels.CurlFreeKernel(RBFKernel()))
SKETCH = features.ProductSketch(3, 8, degree=2, generator=_GENERATOR)
COMPLEX_SKETCH = features.ProductSketch(3, 8, degree=2, is_complex=True, generator=_GENERATOR)
LINEAR_SKETCH = features.ProductSketch(3, 4, degree=1, generator=_GENERATOR)
SPHERICAL = features.SphericalFourier(3, 8, degree=2, a=2.0, generator=_GENERATOR)
TENSOR_SKETCH = features.TensorSketch(3, 8, degree=2, generator=_GENERATOR)
MAPS = [
    features.RandomFourier(3, 8, generator=_GENERATOR),
    SKETCH,
    COMPLEX_SKETCH,
    features.ComplexToReal(COMPLEX_SKETCH),
    features.TensorSRHT(3, 8, degree=2, generator=_GENERATOR),
    TENSOR_SKETCH,
    features.OpticalFeatures(3, 8, generator=_GENERATOR),
    features.LinearFeatures(3),
    features.Maclaurin({1: LINEAR_SKETCH, 2: SKETCH}, SERIES),
]
EXACT_KERNELS = [
    kernels.SkewedChiSquaredKernel(),
    kernels.OpticalKernel(),
    kernels.CurlFreeKernel(RBFKernel()),
    kernels.DivergenceFreeKernel(RBFKernel()),
    kernels.HelmholtzKernel(RBFKernel()),
    kernels.DecomposableKernel(RBFKernel(), kernels.ConstantCovariance(EYE)),
]

GP = models.WeightSpaceGP(rbf(), GaussianLikelihood(), keep_data=True).condition(X, Y)
GP_OF_SUM = models.WeightSpaceGP(rbf() + rbf(), GaussianLikelihood()).condition(X, Y)
FIXED = models.WeightSpaceGP(rbf(), FixedNoiseGaussianLikelihood(Y + 1.0)).condition(X, Y, Y + 1.0)
CLASSIFIER = models.WeightSpaceGP(rbf(), DIRICHLET).condition(X, CLASSES)
FIELD = models.WeightSpaceGP(CURL, GaussianLikelihood()).condition(X, X)
LATENT = gpytorch.distributions.MultivariateNormal(X.mT, torch.eye(12).expand(3, 12, 12))
LAPLACE = models.LaplaceGP(rbf(), gpytorch.likelihoods.BernoulliLikelihood()).condition(X, Y > 0.5)
COUNTS = models.LaplaceGP(rbf(), likelihoods.PoissonLikelihood()).condition(X, (3.0 * Y.abs()).round())
VARIATIONAL = models.WeightSpaceVariationalGP(rbf(), GaussianLikelihood())
LOCAL = models.LocalizedMaclaurinGP(RBFKernel(), GaussianLikelihood(), num_features=8).condition(X, Y)
HETEROSCEDASTIC = models.HeteroscedasticGP(rbf(), rbf())
SQUARES = models.VectorLeastSquares(rbf(), regularization=1e-3).fit(X, Y)
EXACT = ExactModel(X, Y, GaussianLikelihood(), rbf()).eval()
WINDOW = streams.SlidingWindow(models.WeightSpaceGP(rbf(), GaussianLikelihood()).condition(X, Y), 20)
AVERAGED = averaging.AveragedGP(X.double(), Y.double())
DRAWS = models.ParameterAverage([ExactModel(X.double(), Y.double(), GaussianLikelihood(), rbf()).double()] * 2, 3)
AVERAGED_CLASSIFIER = averaging.AveragedGPClassifier(X.double(), CLASSES)
FORGETTING = streams.Forgetting(models.WeightSpaceGP(rbf(), GaussianLikelihood()).condition(X, Y), 0.9)
OPTIMIZER = botorch.WeightSpaceModel(X.double(), Y.double()[:, None], num_features=8, seed=0).eval()
OPTIMIZER.posterior(X.double())  # its first call conditions the model
WIND = datasets.load_wind()
BOX = {name: sensitivity.Uniform(0.0, 1.0) for name in "abc"}
CURVES = {"a": plots.Curve([1, 2], [1, 2])}
TABLE = data.ArraySource(X, Y)
DATA = datasets.Dataset("toy", X.double(), Y.double(), X.double(), Y.double(), "regression", None, "here", "none")


def _density(w: Tensor) -> Tensor:
    return torch.exp(-0.5 * w.square().sum(-1))[:, None, None] * torch.eye(2)


# Kinds that several lines share

ROWS = tensor(X, lambda v: is_real(v) and v.shape == X.shape)
"""Inputs that go with targets."""
FREE = inputs(X)
NATURAL = Kind(
    1, lambda v: number(v) >= 0 and (math.isinf(number(v)) or number(v).is_integer()), [-1, 1.5, "8", None, [1]]
)
OF_ANY_WIDTH = free_inputs(X)
NOT_CHECKED = tensor(X, lambda v: v.is_floating_point() and v.dim() >= 2 and v.shape[-1] == 3 and v.shape[-2] > 0)
"""Inputs whose features may be NaN."""
TARGETS = tensor(
    Y, lambda v: v.dtype.is_floating_point | v.is_complex() and bool(v.isfinite().all()) and v.shape == Y.shape
)
NOISE = values(Y + 1.0, is_above=0.0).or_(None)
WEIGHTS = values(Y + 1.0, is_above=0.0).or_(None)
LABELS = labels(CLASSES, 2)
EVERY_CLASS = replace(LABELS, admits=lambda v: LABELS.admits(v) and set(v.tolist()) in ({0, 1}, {0, 1, 2}))
ANY_LABELS = tensor(CLASSES, lambda v: v.dtype is torch.int64 and v.dim() == 1 and bool(((v >= 0) & (v <= 2)).all()))
ROWS_OF_ANY = tensor(
    SHARES, lambda v: is_real(v) and v.dim() == 2 and v.shape[1] == 3 and bool(((v >= 0) & (v <= 1)).all())
)
PROBABILITIES = tensor(SHARES, lambda v: is_real(v) and v.shape == SHARES.shape and bool(((v >= 0) & (v <= 1)).all()))
PREDICTED = instance(NORMAL, torch.distributions.Distribution)
OWN_KERNEL = instance(APPROXIMATED, approximation.FeatureKernel, gpytorch.kernels.Kernel)
LIKELIHOOD = instance(GaussianLikelihood(), gpytorch.likelihoods.Likelihood)
ANY_MODEL = instance(GP, torch.nn.Module)
OPERATOR = instance(operators.Value(), operators.Operator).or_(None)
LEVEL = real(0.9, 0.0, 1.0)
SHARE = Kind(0.5, lambda v: 0.0 < number(v) <= 1.0, [0.0, -1.0, 1.5, math.nan, True, "a"])
COEFFICIENTS = tensor(
    SERIES, lambda v: v.dim() == 1 and not v.is_complex() and v.dtype is not torch.bool and bool((v >= 0).all())
).or_(
    Kind(
        None,
        lambda v: isinstance(v, list | tuple | range | np.ndarray) and len(v) > 0 and all(number(n) >= 0 for n in v),
    )
)
ENDS = tensor(X + 1.0, lambda v: is_real(v) and v.dim() > 0 and v.shape[-1] == 3)
GROUPS = tensor(CLASSES, lambda v: v.shape == Y.shape and not v.is_floating_point()).or_(count(3, least=2))
REAL_TARGETS = values(Y)
COMPLEX_TOO = tensor(Y, lambda v: bool(v.isfinite().all()) and v.dtype is not torch.bool and v.shape == Y.shape)
WITH_MISSING = tensor(Y, lambda v: not v.is_complex() and not bool(v.isinf().any()) and v.shape == Y.shape)
"""NaN stands for a missing target."""
COLUMN_TOO = tensor(Y, lambda v: bool(v.isfinite().all()) and v.shape in (Y.shape, (12, 1)))
ORDERS = Kind((1, 0), lambda v: isinstance(v, tuple | list | range) and len(v) > 0, [(), None])
POSITIVE = real(1.0, 0.0)
POSITIVE_OR_INFINITE = Kind(1.0, lambda v: number(v) > 0.0, [0.0, -1.0, math.nan, "8", [1.0], 1j])
SHAPE = Kind(
    (3,),
    lambda v: isinstance(v, list | tuple | range) and all(type(n) is int and n >= 0 for n in v),
    [(-1,), (1.5,), 3],
)
DISTANCES = values(torch.tensor([0.5])).or_(Kind(None, lambda v: isinstance(v, list | np.ndarray)))
FORM = word("ctr", "real", "complex")
SKETCH_NAME = word("rademacher", "gaussian", "tensor_srht", "tensor_sketch", "fourth_roots")
STRUCTURE = word("independent", "orthogonal", "hadamard", "qmc")
AXES = Kind(None, lambda value: value is None or type(value).__name__ == "Axes")


def called(module: Callable[[Any], Any]) -> Callable[..., Any]:
    """A call of a module as a function of inputs."""

    def call(x: Any) -> Any:
        return module(x)

    call.__name__ = call.__qualname__ = f"{type(module).__name__}()"
    return call


def values_of(kernel: gpytorch.kernels.Kernel) -> Callable[..., Any]:
    """The values of a kernel as a function of inputs."""

    def call(x1: Any, x2: Any = None) -> Tensor:
        return kernel(x1, x2).to_dense()

    call.__name__ = call.__qualname__ = f"{type(kernel).__name__}()"
    return call


BY_NAME: dict[str, Kind] = {
    "alpha_epsilon": POSITIVE.at(0.01),
    "ax": AXES,
    "base_kernel": KERNEL,
    "block_size": count(4).at(None),
    "bounded": FLAG,
    "curl_free_base": KERNEL,
    "degree": count(2),
    "delta": LEVEL.at(0.05),
    "diameter": POSITIVE,
    "direction": word("approximate_from_exact", "exact_from_approximate", "both"),
    "dtype": FLOATING.or_(None),
    "epsilon": POSITIVE.at(0.1),
    "exact_kernel": KERNEL,
    "form": FORM,
    "generator": GENERATOR,
    "initialize": FLAG,
    "input_dim": count(3),
    "intrinsic_dim": real(2.0, 1.0, has_low=True),
    "is_complex": FLAG,
    "is_gaussian": FLAG,
    "keep_data": FLAG,
    "kernel": OWN_KERNEL,
    "labels": LABELS,
    "largest_error": POSITIVE,
    "largest_norm": POSITIVE,
    "learn_additional_noise": FLAG,
    "lengthscale": POSITIVE,
    "level": LEVEL,
    "likelihood": LIKELIHOOD,
    "max_iterations": count(50),
    "mean": MODULE,
    "model": ANY_MODEL,
    "new_x": FREE,
    "noise": NOISE,
    "num_draws": count(1),
    "num_features": count(8),
    "num_functions": count(2),
    "num_neighbors": count(3).at(None).or_(None),
    "num_probes": count(3),
    "num_samples": count(8),
    "operator": OPERATOR.at(None),
    "orlicz_norm": POSITIVE,
    "output_dim": count(2),
    "predictive": PREDICTED,
    "probabilities": PROBABILITIES,
    "product_dtype": Kind(torch.float64, lambda v: v in (torch.float32, torch.float64), ["float64", torch.int64, 0]),
    "progress": FLAG.or_(None),
    "prior": FLAG,
    "second_moment": POSITIVE,
    "seed": SEED,
    "sketch": SKETCH_NAME,
    "slope": POSITIVE,
    "time_limit": POSITIVE_OR_INFINITE,
    "tolerance": POSITIVE.at(0.5),
    "train_inputs": ROWS,
    "train_targets": TARGETS,
    "weights": WEIGHTS,
    "width": count(4),
    "x": FREE,
    "y": TARGETS,
}


def line(function: Callable[..., Any], /, **kinds: Kind) -> Signature:
    """A line of the table; defaults are good too."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = kinds.pop(name, BY_NAME.get(name))
        if kind is not None and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            is_free = parameter.default is parameter.empty or not is_tried(kind)
            found[name] = kind if is_free else kind.or_(parameter.default)
    if kinds:
        raise TypeError(f"expected arguments of {function.__name__}, got {sorted(kinds)}; take them out of its line")
    return Signature(function, found)


DOUBLE = inputs(X.double())
INPUTS_OF_TWO = tensor(X.double(), lambda v: is_real(v) and v.dim() in (1, 2) and v.shape[-1] == 3 and len(v) > 0)
ROW_NUMBERS = tensor(
    torch.tensor([0, 3]),
    lambda v: (
        not (v.is_floating_point() or v.is_complex() or v.dtype is torch.bool)
        and bool(((v >= 0) & (v < len(Y))).all())
        and len(v.unique()) < len(Y)
    ),
)
GROUPS_OF_ALL = tensor(CLASSES, lambda v: v.shape == Y.shape)
ANY_TARGETS = tensor(Y, lambda v: v.shape == Y.shape and not v.is_complex())
LEVELS_OF_ROWS = tensor(
    torch.full((12,), 0.9),
    lambda v: is_real(v) and v.shape[-1:] in ((), (1,), (12,)) and bool(((v > 0.0) & (v < 1.0)).all()),
).or_(Kind(0.9, lambda v: not isinstance(v, Tensor) and 0.0 < number(v) < 1.0, [0.0, 1.0, math.nan, True, "a"]))
VARYING = tensor(
    Y, lambda v: v.shape == Y.shape and not v.is_complex() and bool(v.isfinite().all()) and bool((v != v[0]).any())
)
ARRAYS = Kind(None, lambda v: isinstance(v, np.ndarray | list))
PLANE = tensor(
    FLAT, lambda v: not v.is_complex() and v.dim() == 2 and v.shape[-1] == 2 and bool(v.isfinite().all())
).or_(ARRAYS)
WITH_GAPS = tensor(FLAT, lambda v: not v.is_complex() and v.shape == FLAT.shape).or_(
    ARRAYS, Kind(None, lambda v: isinstance(v, Tensor) and v.dtype is torch.uint64)
)
ON_PLANE = values(FLAT[:, 0].clone()).or_(ARRAYS)
SUM_ROWS = tensor(X, lambda v: is_real(v) and v.shape == X.shape)
UNCHECKED_COLUMN = tensor(Y[:, None], lambda v: v.dim() == 2 and len(v) == 12)
COLUMN = tensor(Y[:, None], lambda v: v.dim() == 2 and len(v) == 12 and bool(v.isfinite().all()))
STATISTICS = inference.GramStatistics(3, 1).update(X, Y[:, None])
MATRIX = tensor(EYE, lambda v: is_real(v) and v.dim() >= 2 and v.shape[-1] == v.shape[-2])
NUMBERS = tensor(
    (3.0 * Y.abs()).round(),
    lambda v: v.shape == Y.shape and not v.is_complex() and bool(((v >= 0) & (v % 1 == 0)).all()),
)
BINARY = tensor(
    (Y > 0.5).float(), lambda v: v.shape == Y.shape and not v.is_complex() and bool(((v == 0) | (v == 1)).all())
)
EXPONENT = Kind(2, lambda v: isinstance(v, int | float) and v in (2, 4), [1, 3, 1j, "2"])
ARRAY = Kind(X.double().numpy(), lambda v: isinstance(v, np.ndarray | list | tuple | Tensor), [None, "a", 1.0])
DRAWN = dict(width=NATURAL, dim=NATURAL, generator=GENERATOR.at(_GENERATOR))
SIZE = dict(shape=SHAPE, generator=instance(_GENERATOR))
WAVES = tensor(
    torch.rand(4, 2, generator=_GENERATOR), lambda v: v.is_floating_point() and v.dim() > 0 and v.shape[-1] == 2
)
DIMS = dict(input_dim=count(2), components=count(1))

SIGNATURES = [
    # Kernels with features, and their selection
    line(
        rfgp.approximate,
        kernel=KERNEL,
        method=Kind(
            "fourier", lambda v: isinstance(v, features.FeatureMap), ["foo", "fourier:imaginary", "rademacher"]
        ),
        train_inputs=FREE,
    ),
    line(approximation.with_features),
    line(approximation.hilbert_schmidt_variance, x=NOT_CHECKED, y=NOT_CHECKED),
    line(approximation.LandmarkKernel, landmarks=OF_ANY_WIDTH, learn=FLAG),
    line(approximation.FeatureKernel, exact_kernel=KERNEL.at(PolynomialKernel(power=2)), maps=instance(SKETCH)),
    *(line(method) for kernel in (APPROXIMATED, TASKS, CURL) for method in (kernel.features, kernel.resample)),
    *(line(kernel.scalar_features, x=NOT_CHECKED) for kernel in (APPROXIMATED, TASKS, CURL)),
    line(TASKS.feature_operator, x=NOT_CHECKED),
    line(CURL.output_factor, operator=OPERATOR),
    *(line(values_of(kernel), x1=FREE, x2=FREE) for kernel in (APPROXIMATED, TASKS, CURL)),
    *(line(values_of(kernel), x1=NOT_CHECKED, x2=NOT_CHECKED) for kernel in EXACT_KERNELS),
    line(selection.rank_methods, kernel=KERNEL, train_inputs=OF_ANY_WIDTH, noise=POSITIVE),
    line(selection.best_method, kernel=KERNEL, train_inputs=OF_ANY_WIDTH),
    line(selection.suggest_num_features, kernel=KERNEL, train_inputs=OF_ANY_WIDTH, method=word("fourier")),
    line(selection.predicted_error),
    line(selection.posterior_loss, train_inputs=FREE, noise=POSITIVE, num_rows=count(8)),
    # Kernels
    line(
        kernels.AdvectedKernel,
        num_space_dims=count(2),
        velocity_prior=MODULE,
        spread_constraint=MODULE,
        spread_prior=MODULE,
    ),
    line(kernels.ConstantCovariance, matrix=MATRIX),
    line(kernels.GraphLaplacianCovariance, similarity=MATRIX.at(torch.ones(3, 3) - EYE)),
    line(kernels.CurlFreeKernel),
    line(kernels.DivergenceFreeKernel),
    line(kernels.HelmholtzKernel, divergence_free_base=KERNEL),
    line(
        kernels.DecomposableKernel,
        data_covar_module=KERNEL,
        task_covar_module=instance(kernels.ConstantCovariance(EYE)),
    ),
    line(kernels.DotProductKernel, coefficients=COEFFICIENTS),
    line(kernels.SkewedChiSquaredKernel, skewness=POSITIVE),
    line(kernels.OpticalKernel, exponent=EXPONENT),
    line(kernels.ObservationKernel, num_nodes=count(8)),
    line(kernels.OrthogonalAdditiveKernel, num_dims=count(3), max_degree=count(2, most=3)),
    line(kernels.SpectralDensityKernel, density=Kind(_density, callable), input_dim=count(2), proposal_scale=POSITIVE),
    line(
        kernels.LinearlyObservedKernel,
        operators=Kind([operators.Value()], lambda v: False, [operators.Value(), [operators.Value]]),
    ),
    line(kernels.InputTransformKernel, transform=instance(kernels.LinearMap(X), torch.nn.Module)),
    line(kernels.LinearMap, train_inputs=OF_ANY_WIDTH, rank=count(2, most=3)),
    line(kernels.KumaraswamyWarp, train_inputs=OF_ANY_WIDTH),
    line(kernels.SinhArcsinhWarp, train_inputs=OF_ANY_WIDTH),
    line(kernels.SphericalCoordinates, latitude=count(0, least=0), longitude=count(1, least=0)),
    # Feature maps
    line(features.RandomFourier, spectrum=instance(features.Gaussian(), features.Spectrum), structure=STRUCTURE),
    line(features.ProductSketch, weights=word("rademacher")),
    line(features.TensorSRHT, variant=word("upsampled", "stacked")),
    line(features.TensorSketch),
    line(features.OpticalFeatures, exponent=EXPONENT),
    line(features.SphericalFourier, a=real(2.0, 0.0), structure=STRUCTURE),
    line(features.LinearFeatures),
    line(features.ComplexToReal, feature_map=instance(COMPLEX_SKETCH, features.FeatureMap)),
    line(
        features.FourierSeries, orders=ANY.at(torch.tensor([[0], [1]])), coefficients=values(torch.tensor([0.5, 0.5]))
    ),
    line(
        features.Maclaurin,
        maps_by_degree=Kind({1: LINEAR_SKETCH, 2: SKETCH}, lambda v: False, [{1: "a"}, {1: X}]),
        coefficients=COEFFICIENTS,
    ),
    line(features.polynomial_sketch, name=SKETCH_NAME),
    line(features.Matern, nu=POSITIVE.at(1.5)),
    line(features.RationalQuadratic, alpha=POSITIVE),
    line(features.SpectralMixture, num_mixtures=count(2)),
    line(
        features.PowerWeighted,
        spectrum=instance(features.Gaussian(), features.Spectrum),
        powers=Kind((1,), lambda v: isinstance(v, tuple), [(-1,), "a", 1]),
    ),
    line(features.TraceMeasure, density=Kind(_density, callable), dim=count(2), proposal_scale=POSITIVE),
    line(features.Gaussian().draw, **DRAWN),
    line(features.Laplace().draw, **DRAWN),
    *(line(method, x=NOT_CHECKED, y=NOT_CHECKED) for own in MAPS for method in (own.target, own.moments)),
    *(line(own.resample) for own in (*MAPS, SPHERICAL)),
    *(line(called(own), x=NOT_CHECKED) for own in MAPS),
    line(called(SPHERICAL), x=inputs(UNIT)),
    line(SKETCH.forward_pair, y=NOT_CHECKED, x=NOT_CHECKED),
    line(TENSOR_SKETCH.variance_bound, x=NOT_CHECKED, y=NOT_CHECKED),
    line(SPHERICAL.target, x=inputs(UNIT), y=inputs(UNIT)),
    line(SPHERICAL.polynomial, x=inputs(UNIT), y=inputs(UNIT)),
    *(
        line(
            function,
            x=OF_ANY_WIDTH,
            coefficients=COEFFICIENTS,
            num_features=count(12),
            min_degree=count(1, least=0),
            num_pairs=count(20),
            form=FORM,
            function=Kind(None, callable),
        )
        for function in (allocation.optimized_maclaurin, allocation.allocate)
    ),
    line(
        allocation.random_maclaurin,
        num_features=count(12),
        coefficients=COEFFICIENTS,
        ratio=POSITIVE.at(2.0),
    ),
    # Linear algebra and draws
    *(
        line(draw, **SIZE)
        for draw in (
            sampling.rademacher,
            sampling.fourth_roots,
            sampling.gaussian,
            sampling.complex_gaussian,
            sampling.uniform,
        )
    ),
    line(sampling.sobol, size=count(4), dim=count(3, most=21201), generator=instance(_GENERATOR)),
    line(sampling.chi, degrees=real(2.0, 0.0), **SIZE),
    line(sampling.orthogonal_directions, size=count(4), dim=count(3), generator=instance(_GENERATOR)),
    line(sampling.shuffled_copies, size=count(4), length=count(3), generator=instance(_GENERATOR)),
    line(sampling.stacked_permutations, size=count(4), length=count(3), generator=instance(_GENERATOR)),
    line(linalg.hadamard, order=count(4)),
    line(
        linalg.fwht,
        x=tensor(Y[:8].clone(), lambda v: v.dim() > 0),
        dim=Kind(-1, lambda v: isinstance(v, int), [1.5, "a", None]),
    ),
    line(linalg.next_power_of_two, n=count(3)),
    line(
        linalg.gram,
        features=tensor(X, lambda v: v.is_floating_point() or v.is_complex()),
        targets=UNCHECKED_COLUMN,
        weights=ANY,
    ),
    line(linalg.cholesky, matrix=tensor(EYE, lambda v: v.dim() >= 2 and v.shape[-1] == v.shape[-2])),
    line(linalg.log_determinant, factor=tensor(EYE, lambda v: v.dim() >= 2 and v.shape[-1] == v.shape[-2])),
    # Sums of rows
    line(
        inference.GramStatistics,
        num_features=count(3),
        num_targets=count(1),
        num_groups=count(1),
        has_complex_targets=FLAG,
    ),
    line(
        STATISTICS.update,
        features=ROWS,
        targets=tensor(Y[:, None], lambda v: is_real(v) and v.shape == (12, 1)),
        log_noise=tensor(Y, lambda v: is_real(v) and v.shape == Y.shape),
        groups=labels(CLASSES * 0, 0),
        weights=WEIGHTS,
    ),
    line(STATISTICS.merge, other=instance(STATISTICS)),
    line(STATISTICS.subtract, other=instance(STATISTICS)),
    line(
        inference.GramStatistics.concatenate,
        parts=Kind([STATISTICS, STATISTICS], lambda v: False, [X, [X], STATISTICS]),
    ),
    line(inference.GramStatistics.from_state_dict, state=Kind(STATISTICS.state_dict(), lambda v: False)),
    # Likelihoods and distributions
    line(
        likelihoods.ComplexGaussianLikelihood,
        noise_prior=MODULE,
        noise_constraint=MODULE,
        batch_shape=SHAPE.at(()),
        has_pseudo_noise=FLAG,
    ),
    line(
        likelihoods.NegativeBinomialLikelihood,
        batch_shape=SHAPE.at(()),
        dispersion_prior=MODULE,
        dispersion_constraint=MODULE,
    ),
    line(likelihoods.HeteroscedasticSoftmaxLikelihood, num_classes=count(3, least=2), noise_scale_prior=MODULE),
    line(likelihoods.LogVarianceLikelihood, num_functions=count(1)),
    line(
        likelihoods.MultitaskFixedNoiseGaussianLikelihood,
        noise=tensor(X[:, :2] + 1.0, lambda v: is_real(v) and v.dim() >= 2 and bool((v > 0).all())),
        batch_shape=SHAPE.at(()),
        noise_prior=MODULE,
        noise_constraint=MODULE,
    ),
    line(
        likelihoods.FixedNoiseComplexGaussianLikelihood,
        noise=tensor(
            Y + 1.0, lambda v: v.is_floating_point() and v.dim() > 0 and not bool((v <= 0).any() | v.isinf().any())
        ),
        has_pseudo_noise=FLAG,
        noise_prior=MODULE,
        noise_constraint=MODULE,
    ),
    line(likelihoods.DirichletClassificationLikelihood, targets=ANY_LABELS, num_classes=count(3)),
    line(DIRICHLET.set_alpha_epsilon),
    line(DIRICHLET.class_probabilities, latent=instance(LATENT, torch.distributions.Distribution)),
    line(
        CLASSIFIER.likelihood.select_alpha_epsilon,
        model=ANY_MODEL.at(CLASSIFIER),
        x=ROWS,
        grid=Kind((0.1, 0.01), lambda v: False, [(), ("a",), 0, (-1.0,)]),
    ),
    line(
        called(likelihoods.ComplexGaussianLikelihood()), x=instance(COMPLEX_NORMAL, likelihoods.ComplexNormal, Tensor)
    ),
    line(COMPLEX_NORMAL.log_prob, value=tensor(torch.zeros(5).cfloat(), lambda v: v.dim() and v.shape[-1] == 5)),
    line(
        COMPLEX_NORMAL.plus_noise,
        noise=tensor(torch.ones(5), lambda v: is_real(v) and bool((v > 0).all())),
    ),
    line(COMPLEX_NORMAL.rsample, sample_shape=SHAPE),
    # Models
    line(models.WeightSpaceGP, residual=word("none", "vfe", "fitc")),
    line(averaging.AveragedGP, x=SUM_ROWS, y=VARYING),
    line(AVERAGED.predictive, x=INPUTS_OF_TWO),
    line(AVERAGED.covariance, x=INPUTS_OF_TWO, has_noise=FLAG),
    line(AVERAGED.single_draws, count=count(3)),
    line(AVERAGED.thinned, count=count(3)),
    line(AVERAGED.without, rows=ROW_NUMBERS),
    line(AVERAGED.function, x=INPUTS_OF_TWO),
    line(AVERAGED.sample, x=INPUTS_OF_TWO, num_samples=count(3), generator=GENERATOR.at(_GENERATOR)),
    line(AVERAGED.draw_functions, num_functions=count(3), generator=GENERATOR.at(_GENERATOR)),
    line(AVERAGED.leave_group_out, x=ANY.at(X.double()), y=ANY.at(Y.double()), groups=GROUPS_OF_ALL),
    line(AVERAGED.predictive(X.double()).icdf, level=LEVEL),
    line(AVERAGED.predictive(X.double()).log_prob, y=ANY_TARGETS),
    line(AVERAGED.predictive(X.double()).cdf, y=ANY_TARGETS),
    line(DRAWS.posterior, x=DOUBLE),
    line(DRAWS.predictive, x=DOUBLE),
    line(DRAWS.predictive(X.double()).icdf, value=LEVELS_OF_ROWS),
    line(averaging.AveragedGPClassifier, x=SUM_ROWS, y=EVERY_CLASS),
    line(AVERAGED_CLASSIFIER.predictive, x=INPUTS_OF_TWO),
    line(AVERAGED_CLASSIFIER.update, x=SUM_ROWS, y=LABELS),
    line(AVERAGED_CLASSIFIER.leave_one_out, x=ANY.at(X.double()), y=LABELS),
    line(AVERAGED_CLASSIFIER.leave_group_out, x=ANY.at(X.double()), y=LABELS, groups=GROUPS_OF_ALL),
    line(models.LaplaceGP, likelihood=LIKELIHOOD.at(LAPLACE.likelihood), hessian=word("full", "block_diagonal")),
    line(models.WeightSpaceVariationalGP, covariance=Kind("full", lambda v: v in ("full", "diagonal"), ["foo", 1.5])),
    line(models.HeteroscedasticGP, noise_kernel=OWN_KERNEL.at(rbf()), noise_mean=MODULE),
    line(models.LocalizedMaclaurinGP, kernel=KERNEL, threshold=POSITIVE, centers=ANY),
    line(
        models.VectorLeastSquares,
        regularization=POSITIVE,
        manifold_regularization=real(0.0, 0.0, has_low=True),
        output_operator=ANY,
        solver=word("cholesky", "cg"),
        tolerance=POSITIVE,
    ),
    *(
        line(method, x=ROWS, y=y, noise=noise, weights=WEIGHTS.at(None))
        for model, y, noise in (
            (GP, TARGETS, NOISE.at(None)),
            (FIXED, TARGETS, NOISE),
            (CLASSIFIER, LABELS, NOISE.at(None)),
            (FIELD, tensor(X, lambda v: v.shape == X.shape), NOISE.at(None)),
        )
        for method in (model.condition, model.update)
    ),
    line(GP_OF_SUM.component_posterior),
    *(line(model.posterior) for model in (GP, FIXED, CLASSIFIER, FIELD, LAPLACE, LOCAL, VARIATIONAL)),
    *(line(model.sample_functions) for model in (GP, FIXED, CLASSIFIER, FIELD)),
    line(
        GP.downdate,
        x=tensor(X[:5], lambda v: is_real(v) and v.shape == (5, 3)),
        y=values(Y[:5]),
        noise=NOISE.at(None),
        weights=WEIGHTS.at(None),
    ),
    line(GP.resample),
    line(GP.forget, factor=SHARE),
    line(GP.leave_one_out, x=ROWS, noise=NOISE.at(None), weights=WEIGHTS.at(None)),
    line(GP.leave_group_out, x=ROWS, groups=GROUPS, noise=NOISE.at(None), weights=WEIGHTS.at(None)),
    *(line(called(model.sample_functions(2)[0])) for model in (GP, CLASSIFIER, FIELD)),
    line(LAPLACE.condition, x=ROWS, y=BINARY, exposure=NOISE.at(None), start=values(Y).at(None)),
    line(COUNTS.condition, x=ROWS, y=NUMBERS, exposure=NOISE, start=values(Y).at(None)),
    line(VARIATIONAL.elbo, x=ROWS, y=REAL_TARGETS, num_data=count(12, least=12)),
    line(VARIATIONAL.natural_step, x=ROWS, y=REAL_TARGETS, num_data=count(12, least=12), step_size=SHARE),
    line(HETEROSCEDASTIC.condition, x=ROWS, y=WITH_MISSING),
    line(LOCAL.condition, x=ROWS),
    line(SQUARES.fit, x=ROWS, y=COLUMN_TOO, unlabeled=FREE.at(None), laplacian=MATRIX.at(None)),
    line(SQUARES.with_regularization, regularization=POSITIVE, manifold_regularization=real(0.0, 0.0, has_low=True)),
    line(SQUARES.predict),
    line(models.knn_laplacian, x=OF_ANY_WIDTH, neighbors=count(3, most=11), is_normalized=FLAG),
    line(models.task_columns, y=tensor(Y, lambda v: v.shape == Y.shape), tasks=LABELS, num_tasks=count(3)),
    line(models.folds, num_rows=count(12), num_folds=count(3, least=2, most=12)),
    line(models.PosteriorPoints),
    line(models.sample_functions),
    line(models.given_positive, model=ANY_MODEL.at(GP)),
    line(simplex.simplex_code, num_classes=count(3, least=2)),
    line(simplex.encode, labels=ANY_LABELS, num_classes=count(3, least=3)),
    line(simplex.decode, values=tensor(X[:, :2].clone(), lambda v: is_real(v))),
    line(streams.SlidingWindow, model=ANY_MODEL.at(WINDOW.model), size=count(20)),
    line(streams.Forgetting, model=ANY_MODEL.at(FORGETTING.model), factor=SHARE),
    line(
        streams.LengthscaleBank,
        stream=instance(WINDOW, streams.SlidingWindow, streams.Forgetting),
        factors=Kind([0.5, 1.0], lambda v: False, [None, "a", [-1.0], [], 0.5]),
        learn_every=count(5),
    ),
    line(WINDOW.update, x=ROWS, noise=NOISE.at(None)),
    line(FORGETTING.update, x=ROWS, noise=NOISE.at(None)),
    line(
        maps.predict_map,
        points=FREE.or_(ARRAYS),
        variance=FLAG,
        noise=FLAG,
        out=Kind(None, lambda v: isinstance(v, str)),
        executor=Kind(None, lambda v: v is None, [0.5]),
    ),
    # Training
    line(
        rfgp.fit,
        x=ROWS,
        strategy=word("auto"),
        max_evaluations=count(2),
        noise=NOISE.at(None),
        weights=WEIGHTS.at(None),
        exposure=NOISE.at(None),
    ),
    line(
        rfgp.training.compare,
        models=Kind({"a": GP}, lambda v: False, [{}, {"a": None}, [GP], GP]),
        x=ROWS,
        noise=NOISE.at(None),
    ),
    line(rfgp.training.neighbor_score, num_neighbors=count(3), x=ROWS, noise=NOISE.at(None), num_rows=count(5)),
    *(
        line(strategy)
        for strategy in (
            *(rfgp.training.Auto, rfgp.training.Average, rfgp.training.Blocks),
            *(rfgp.training.Neighbors, rfgp.training.Subset),
        )
    ),
    line(rfgp.training.LeaveOut, groups=count(5).or_(instance(X))),
    line(rfgp.training.Minibatches, epochs=count(3), num_data=count(12)),
    line(rfgp.save, path=PATH, with_rows=FLAG),
    line(
        rfgp.load,
        path=PATH,
        classes=Kind([], lambda v: isinstance(v, list | tuple) and not v, [RBFKernel, ["RBFKernel"]]),
        into=Kind(None, lambda v: v is None, ["other.pt", models.WeightSpaceGP]),
    ),
    # Diagnostics
    line(diagnostics.rmse, mean=COMPLEX_TOO, y=COMPLEX_TOO),
    *(line(score, y=values(Y)) for score in (diagnostics.regression_mnll,)),
    *(line(score, y=WITH_MISSING) for score in (diagnostics.crps, diagnostics.pit, diagnostics.recalibrate_variance)),
    line(
        diagnostics.calibration_curve,
        y=WITH_MISSING,
        levels=Kind([0.5], lambda v: v is None, [[], [2.0], math.inf, "a"]),
    ),
    *(
        line(score)
        for score in (
            diagnostics.classification_mnll,
            diagnostics.brier_score,
            diagnostics.recalibrate_temperature,
        )
    ),
    *(
        line(score, num_bins=count(5))
        for score in (diagnostics.expected_calibration_error, diagnostics.reliability_curve)
    ),
    line(diagnostics.coverage, lower=values(Y), upper=values(Y + 1.0), y=WITH_MISSING),
    line(diagnostics.interval_score, lower=values(Y), upper=values(Y + 1.0), y=WITH_MISSING),
    line(diagnostics.sharpness, lower=values(Y), upper=values(Y + 1.0)),
    line(
        diagnostics.energy_score,
        samples=tensor(torch.stack([X, X + 1.0]), lambda v: is_real(v) and v.shape[1:] == X.shape),
        y=values(X),
    ),
    line(diagnostics.normal_interval),
    line(diagnostics.error_rate, probabilities=tensor(SHARES, lambda v: is_real(v) and v.shape == SHARES.shape)),
    line(
        diagnostics.coverage_at_least, kl_per_point=Kind(0.1, lambda v: number(v) >= 0.0, [-1.0, math.nan, "a", None])
    ),
    line(diagnostics.kl_reading, kl_per_point=Kind(0.1, lambda v: number(v) >= 0.0, [-1.0, math.nan, "a", None])),
    line(diagnostics.kl_divergence, p=PREDICTED, q=PREDICTED, joint=FLAG),
    line(diagnostics.kl_to_exact, train_targets=COLUMN_TOO, noisy=FLAG, train_noise=NOISE.at(None)),
    line(
        diagnostics.compare_to_exact,
        train_targets=COLUMN_TOO,
        train_noise=NOISE.at(None),
        max_rows=count(12),
        num_subsets=count(2),
    ),
    line(diagnostics.exact_posterior, kernel=KERNEL, train_targets=COLUMN_TOO, noise=ANY),
    line(diagnostics.relative_frobenius_error, y=FREE),
    line(
        diagnostics.warn_of_lost_posterior,
        x=tensor(X, lambda v: v.is_floating_point() and v.dim() > 0 and 0 not in v.shape[-2:]),
        num_rows=count(8),
    ),
    line(diagnostics.Temperature, value=POSITIVE),
    line(diagnostics.VarianceScale, factor=POSITIVE),
    line(bounds.minh_bound),
    line(bounds.brault_bounded_bound, variance=POSITIVE),
    line(bounds.brault_subexponential_bound, variance=POSITIVE),
    line(bounds.curl_free_constants),
    line(bounds.divergence_free_constants),
    line(bounds.decomposable_constants, coregionalization=MATRIX, mean_norm=POSITIVE, variance=POSITIVE),
    line(
        bounds.derivative_bound, second_moment=POSITIVE.at(None), lengthscale=ANY.at(1.0), p=ORDERS, q=ORDERS.at((0, 0))
    ),
    line(bounds.fourier_bound, variance=ANY.at(DISTANCES.good)),
    line(bounds.fourier_variance, kernel=DISTANCES, kernel_at_double=DISTANCES),
    line(bounds.operator_fourier_variance, kernel=DISTANCES, kernel_at_double=DISTANCES, coregionalization=MATRIX),
    line(bounds.operator_fourier_bound),
    line(bounds.over_compact_set, pointwise=instance(bounds.fourier_bound(), bounds.TailBound)),
    line(bounds.rademacher_bound, x=FREE, y=FREE),
    line(bounds.rahimi_recht_bound),
    line(
        bounds.sutherland_schneider_bound,
        variance=Kind(1.0, lambda v: number(v) > -1e-6, [-1.0, math.nan, "a", 1j, True]),
    ),
    *(
        line(method)
        for bound in (bounds.fourier_bound(), bounds.derivative_bound((1, 0), (0, 0), 1.0, lengthscale=1.0))
        for method in (bound.num_features, bound.failure_probability)
    ),
    line(
        certificates.certified_posterior, kernel=KERNEL, x=ROWS, noise=ANY, num_landmarks=count(4), max_seconds=POSITIVE
    ),
    line(certificates.certify, x=ROWS, noise=NOISE.at(None)),
    line(certificates.log_determinant, x=OF_ANY_WIDTH, kernel=KERNEL, noise=ANY, num_landmarks=count(4)),
    line(certificates.stochastic_kl, noise=ANY),
    line(
        conformal.split_conformal,
        x=ROWS,
        y=WITH_MISSING,
        normalize=FLAG,
        noise=NOISE.at(None),
        groups=GROUPS_OF_ALL.at(None),
    ),
    line(conformal.jackknife_plus, x=ROWS, groups=GROUPS, noise=NOISE.at(None)),
    line(conformal.ClassConditionalSets),
    line(conformal.ClassConditionalSets(SHARES, CLASSES).sets, probabilities=ROWS_OF_ANY),
    line(sensitivity.Empirical, values=ANY.at(Y)),
    line(sensitivity.Uniform, low=real(0.0, high=1.0), high=real(1.0, low=0.0)),
    line(sensitivity.Normal, mean=real(0.0), std=POSITIVE),
    line(sensitivity.sobol_indices, inputs=Kind(BOX, lambda v: False), second_order=FLAG, num_points=count(16)),
    line(sensitivity.main_effects, inputs=Kind(BOX, lambda v: False), num_points=count(16), grid=count(5)),
    line(sensitivity.propagate, inputs=Kind(BOX, lambda v: isinstance(v, Tensor)), num_points=count(16)),
    line(
        sensitivity.GaussianCopula, inputs=Kind(BOX, lambda v: False), correlation=Kind(torch.eye(3), lambda v: False)
    ),
    line(sensitivity.GaussianCopula(BOX, torch.eye(3)).sample, num_points=count(16)),
    line(sensitivity.shapley_effects, inputs=Kind(BOX, lambda v: False), num_points=count(16, least=16)),
    line(sensitivity.derivative_sensitivities, inputs=Kind(BOX, lambda v: False)),
    *(line(function, y=FREE, kernel=KERNEL) for function in (two_sample.mmd, two_sample.permutation_test)),
    line(two_sample.block_mmd, y=FREE, kernel=KERNEL, block_size=count(4, least=2)),
    line(two_sample.kernel_inception_distance, y=FREE, offset=POSITIVE, method=word("tensor_srht")),
    # Operators and observations
    line(operators.Component, index=NATURAL),
    line(operators.Partial(0).matrix, **DIMS),
    line(operators.Gradient().matrix, **DIMS),
    line(operators.Value().matrix, **DIMS),
    line(operators.Component(0).matrix, **DIMS),
    line(operators.Divergence().symbol, w=WAVES, components=count(2)),
    line(operators.Potential().symbol, w=WAVES, components=count(2)),
    line(operators.Gradient().of_constant, constants=tensor(torch.ones(1), is_real), input_dim=count(2)),
    line(observations.points, x=OF_ANY_WIDTH, weights=tensor(Y, is_real).at(None)),
    line(observations.boxes, lower=ENDS.at(X), upper=ENDS, integral=FLAG, weights=tensor(Y, is_real)),
    line(observations.segments, start=ENDS.at(X), end=ENDS, integral=FLAG, weights=tensor(Y, is_real)),
    line(observations.num_columns, num_outputs=count(1)),
    line(observations.derivatives, direction=ANY.at(X)),
    # Rows from elsewhere
    line(data.ArraySource, x=ANY.at(X), y=ANY.at(Y), noise=ANY, batch_size=count(5)),
    line(data.GridSource, axes=Kind([Y, Y], lambda v: False, [Y, [], [X]]), batch_size=count(4)),
    line(data.sample, source=instance(TABLE, data.Source, list, tuple), count=count(5)),
    line(data.MappedSource, source=instance(TABLE, data.Source), function=Kind(lambda x, y: (x, y), callable)),
    line(
        data.Standardize,
        mean=tensor(X.mean(0), lambda v: is_real(v) and v.shape == (3,)),
        std=tensor(X.std(0), lambda v: is_real(v) and v.shape == (3,) and bool((v >= 0).all())),
        target_mean=tensor(Y.mean(), is_real).at(None),
        target_std=tensor(Y.std(), is_real).at(None),
    ),
    # BoTorch
    line(
        botorch.WeightSpaceModel,
        train_X=tensor(X.double(), lambda v: is_real(v) and v.shape == X.shape),
        train_Y=values(Y[:, None].double()),
        train_Yvar=values(Y[:, None].double() + 1.0, is_above=0.0).at(None),
        kernel=KERNEL.at(None),
        likelihood=LIKELIHOOD.at(None),
        outcome_transform=MODULE,
        input_transform=MODULE,
    ),
    line(botorch.PathwiseFeatureMap),
    line(
        OPTIMIZER.subset_output,
        idcs=Kind([0], lambda v: isinstance(v, list) and bool(v) and set(v) <= {0, -1}, [0.5, "a", [0.0], [5]]),
    ),
    line(
        OPTIMIZER.posterior,
        X=DOUBLE,
        output_indices=Kind([0], lambda v: v is None, [0.5, X, "a"]),
        observation_noise=ANY.at(False),
        posterior_transform=ANY,
    ),
    line(
        OPTIMIZER.condition_on_observations,
        X=tensor(X.double(), lambda v: is_real(v) and v.shape == X.shape),
        Y=values(Y[:, None].double()),
        noise=NOISE.at(None),
    ),
    # Studies
    line(plots.figure, width=POSITIVE, rows=count(1), columns=count(1), height=POSITIVE),
    line(
        plots.comparison,
        curves=Kind(CURVES, lambda v: isinstance(v, dict)),
        exact=real(1.0),
        log_x=real(10.0, 1.0).or_(None),
        log_y=FLAG,
    ),
    line(
        plots.scalar_field,
        points=PLANE,
        values=ON_PLANE,
        levels=count(10).or_(ARRAYS),
        limits=Kind((0.0, 1.0), lambda v: v is None or isinstance(v, list), [(2, 1), (1,), "a"]),
    ),
    line(
        plots.vector_field,
        points=PLANE,
        velocity=WITH_GAPS,
        variance=ANY.at(ON_PLANE.good),
        density=POSITIVE,
        limits=Kind((0.0, 1.0), lambda v: v is None or isinstance(v, list), [(2, 1), (1,), "a"]),
    ),
    line(datasets.load, name=word("diabetes")),
    line(
        WIND.window,
        lat=Kind((20.0, 50.0), lambda v: False, [(50.0, 20.0), (1.0,)]),
        lon=Kind((-60.0, -20.0), lambda v: isinstance(v, range), [(1.0,)]),
    ),
    line(
        rfgp.study.run,
        data=instance(DATA),
        task=ANY,
        kernel=word("rbf", "auto"),
        methods=Kind(["fourier"], lambda v: False, ["fourier", ["foo"], [["fourier"]]]),
        num_features=Kind([8], lambda v: isinstance(v, range), [8, [0], ["a"]]),
        num_seeds=count(1),
        exact_limit=count(20),
        scaling=word("standardize", "unit", "none").at(None),
        progress=FLAG,
        out=ANY,
        alpha_epsilon=ANY.at(0.01),
    ),
    line(rfgp.study.exact_kernel, name=word("rbf", "auto"), num_outputs=count(1)),
    line(rfgp.study.default_methods, kernel=word("rbf", "auto")),
]
