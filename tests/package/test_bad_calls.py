"""Bad calls over the whole public API: each is refused by rfgp itself, which says what it expected, got and advises."""

import dis
import math
import os
import re
import warnings

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    MaternKernel,
    MultitaskKernel,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from problems import ExactModel
from torch.distributions import Normal

import rfgp
from rfgp import (
    botorch,
    data,
    diagnostics,
    features,
    inference,
    kernels,
    likelihoods,
    linalg,
    models,
    sklearn,
    study,
)
from rfgp import functionals as operators
from rfgp import likelihoods as distributions
from rfgp.approximation import FeatureKernel, hilbert_schmidt_variance, selection, with_features
from rfgp.approximation.maps import DrawnMap, MapRecipe
from rfgp.diagnostics import bounds, certificates, conformal, sensitivity, two_sample
from rfgp.features import allocation
from rfgp.functionals import observations
from rfgp.linalg import sampling
from rfgp.models import maps, streams
from rfgp.models.least_squares import simplex
from rfgp.study import datasets, plots, tables
from rfgp.study.scaling import scale_inputs
from rfgp.study.verdict import verdict

ROOT = os.path.dirname(rfgp.__file__)
MESSAGE = re.compile(r"expected .+[,;] got .+[;:] \S+ \S.*", re.DOTALL)

# Good arguments, from which every call below differs in one place.


def seeded():
    return torch.Generator().manual_seed(0)


G = seeded()
X = torch.rand(12, 3, generator=G)
Y = torch.rand(12, generator=G)
Z = torch.nn.functional.normalize(X, dim=-1)
LABELS = torch.arange(12) % 3
PROBABILITIES = torch.softmax(torch.rand(12, 3, generator=G), -1)
EYE = torch.eye(3)
COEFFICIENTS = torch.tensor([1.0, 1.0, 0.5])
NORMAL = Normal(torch.zeros(5), torch.ones(5))
PREDICTED = Normal(torch.zeros(12), torch.ones(12))
CN = distributions.ComplexNormal(torch.zeros(5).cfloat(), torch.eye(5))
VALUE = operators.Value()
RBF, POLY = RBFKernel(), PolynomialKernel(power=2)
PLANE = RBFKernel(ard_num_dims=2)
GAUSSIAN = GaussianLikelihood()


def approximated(exact, **options):
    return rfgp.approximate(exact, 8, input_dim=3, seed=0, **options)


K = approximated(ScaleKernel(RBFKernel()))
TASKS = approximated(MultitaskKernel(RBFKernel(), num_tasks=2))
CURL = approximated(kernels.CurlFreeKernel(RBFKernel()))
SKEWED, OPTICAL = kernels.SkewedChiSquaredKernel(), kernels.OpticalKernel()
CURL_FREE, HELMHOLTZ = kernels.CurlFreeKernel(RBFKernel()), kernels.HelmholtzKernel(RBFKernel())
DECOMPOSABLE = kernels.DecomposableKernel(RBFKernel(), kernels.ConstantCovariance(EYE))
FOURIER = features.RandomFourier(3, 8, generator=G)
SKETCH = features.ProductSketch(3, 8, degree=2, generator=G)
COMPLEX_SKETCH = features.ProductSketch(3, 8, degree=2, is_complex=True, generator=G)
LINEAR_SKETCH = features.ProductSketch(3, 4, degree=1, generator=G)
CTR = features.ComplexToReal(COMPLEX_SKETCH)
TENSOR = features.TensorSketch(3, 8, degree=2, generator=G)
SRHT = features.TensorSRHT(3, 8, degree=2, generator=G)
SPHERICAL = features.SphericalFourier(3, 8, degree=2, a=2.0, generator=G)
LIGHT = features.OpticalFeatures(3, 8, generator=G)
LINEAR = features.LinearFeatures(3)
SERIES = features.FourierSeries(torch.tensor([[0], [1]]), torch.tensor([0.5, 0.5]))
MACLAURIN = features.Maclaurin({1: LINEAR_SKETCH, 2: SKETCH}, COEFFICIENTS)
STATISTICS = inference.GramStatistics(3, 1).update(X, Y[:, None])
WIND = datasets.load_wind()

DIRICHLET = likelihoods.DirichletClassificationLikelihood(num_classes=3)
KNOWN_NOISE = likelihoods.MultitaskFixedNoiseGaussianLikelihood(torch.ones(12, 2))
GP = models.WeightSpaceGP(approximated(RBFKernel()), GaussianLikelihood()).condition(X, Y)
FIXED = models.WeightSpaceGP(approximated(RBFKernel()), FixedNoiseGaussianLikelihood(Y + 1.0)).condition(X, Y, Y + 1.0)
CLASSES = models.WeightSpaceGP(approximated(RBFKernel()), DIRICHLET).condition(X, LABELS)
PROBIT, BLOCKS = gpytorch.likelihoods.BernoulliLikelihood(), "block_diagonal"
VARIATIONAL = models.WeightSpaceVariationalGP(approximated(RBFKernel()), GaussianLikelihood())
LAPLACE = models.LaplaceGP(approximated(RBFKernel()), PROBIT).condition(X, Y > 0.5)
KEPT = models.WeightSpaceGP(approximated(RBFKernel()), GaussianLikelihood(), keep_data=True).condition(X, Y)
FIELD = models.WeightSpaceGP(CURL, GaussianLikelihood()).condition(X, X)
EXACT = ExactModel(X, Y, GaussianLikelihood(), approximated(RBFKernel())).eval()
LOCAL = models.LocalizedMaclaurinGP(RBFKernel(), GaussianLikelihood(), num_features=8).condition(X, Y)
SQUARES = models.VectorLeastSquares(approximated(RBFKernel()), regularization=1e-3).fit(X, Y)
DRAW, CLASS_DRAW, FIELD_DRAW = (model.sample_functions(1)[0] for model in (GP, CLASSES, FIELD))


def density(w):
    return torch.exp(-0.5 * w.square().sum(-1))[:, None, None] * torch.eye(2)


def dataset(**changes):
    x, y = X.double(), Y.double()
    settings = {"name": "toy", "x_train": x, "y_train": y, "x_test": x, "y_test": y, "task": "regression"}
    settings |= {"num_classes": None, "provenance": "here", "licence": "none"}
    return datasets.Dataset(**(settings | changes))


DATA = dataset()
TABLE = data.ArraySource(X, Y)

MINH = {"input_dim": 3, "diameter": 1.0, "slope": 1.0, "largest_norm": 1.0}
BRAULT = MINH | {"variance": 1.0, "largest_error": 1.0, "intrinsic_dim": 2.0}
del BRAULT["largest_norm"]

# Bad inputs of the shape of X.

ARRAY = np.ones((12, 3))
INTEGERS = torch.ones(12, 3, dtype=torch.long)
NANS, INFINITE = X * math.nan, X * math.inf
NO_ROWS, ROW, WIDE = X[:0], X[0], torch.ones(12, 4)
SPARSE, META = X.to_sparse(), X.to("meta")
COMPLEX, BOOLEAN = X.cfloat(), X > 0.5

APPROXIMATE_CALLS = [
    ("approximate, no arguments that fit", lambda: rfgp.approximate("rbf", 8)),
    ("approximate, a class", lambda: rfgp.approximate(RBFKernel, 8)),
    ("approximate, an unknown method", lambda: rfgp.approximate(RBF, 8, input_dim=3, method="fourrier")),
    ("approximate, an unknown form", lambda: rfgp.approximate(RBF, 8, input_dim=3, method="fourier:imaginary")),
    ("approximate, a sketch for RBF", lambda: rfgp.approximate(RBF, 8, input_dim=3, method="rademacher")),
    ("approximate, an odd width", lambda: rfgp.approximate(RBF, 7, input_dim=3, method="fourier")),
    ("approximate, a map of another kernel", lambda: rfgp.approximate(RBF, 8, method=SKETCH)),
    ("approximate, dimensions that disagree", lambda: rfgp.approximate(RBF, 8, input_dim=4, train_inputs=X)),
    ("approximate, ARD of another dimension", lambda: rfgp.approximate(RBFKernel(ard_num_dims=3), 8, input_dim=4)),
    ("approximate, active_dims beyond", lambda: rfgp.approximate(RBFKernel(active_dims=[5]), 8, input_dim=3)),
    ("approximate, ARD and wide inputs", lambda: rfgp.approximate(RBFKernel(ard_num_dims=3), 8, train_inputs=WIDE)),
    ("approximate, an unsupported kernel", lambda: rfgp.approximate(gpytorch.kernels.ArcKernel(RBF), 8)),
    (
        "approximate, an optimized series without data",
        lambda: rfgp.approximate(RBF, 8, input_dim=3, method="optimized_maclaurin"),
    ),
    ("approximate, kernel is a number", lambda: rfgp.approximate(0, 8)),
    ("approximate, kernel is a tensor", lambda: rfgp.approximate(X, 8)),
    ("approximate, kernel is None", lambda: rfgp.approximate(None, 8)),
    ("approximate, kernel is a string", lambda: rfgp.approximate("a", 8)),
    ("approximate, num_features is a half", lambda: rfgp.approximate(RBF, 1.5)),
    ("approximate, num_features is zero", lambda: rfgp.approximate(RBF, 0)),
    ("approximate, num_features is negative", lambda: rfgp.approximate(RBF, -1)),
    ("approximate, num_features is True", lambda: rfgp.approximate(RBF, True)),
    ("approximate, num_features is NaN", lambda: rfgp.approximate(RBF, math.nan)),
    ("approximate, num_features is infinite", lambda: rfgp.approximate(RBF, math.inf)),
    ("approximate, input_dim is infinite", lambda: rfgp.approximate(RBF, 8, input_dim=math.inf)),
    ("approximate, input_dim is a list", lambda: rfgp.approximate(RBF, 8, input_dim=[8])),
    ("approximate, input_dim is two numbers", lambda: rfgp.approximate(RBF, 8, input_dim=torch.tensor([1, 2]))),
    ("approximate, input_dim is complex", lambda: rfgp.approximate(RBF, 8, input_dim=1j)),
    ("approximate, input_dim is a string", lambda: rfgp.approximate(RBF, 8, input_dim="8")),
    ("approximate, input_dim is a half", lambda: rfgp.approximate(RBF, 8, input_dim=1.5)),
    ("approximate, method is a list", lambda: rfgp.approximate(RBF, 8, method=[])),
    ("approximate, method is a tensor", lambda: rfgp.approximate(RBF, 8, method=X)),
    ("approximate, method is None", lambda: rfgp.approximate(RBF, 8, method=None)),
    ("approximate, method is foo", lambda: rfgp.approximate(RBF, 8, method="foo")),
    ("approximate, method is a number", lambda: rfgp.approximate(RBF, 8, method=0)),
    ("approximate, train_inputs is sparse", lambda: rfgp.approximate(RBF, 8, train_inputs=SPARSE)),
    ("approximate, train_inputs is meta", lambda: rfgp.approximate(RBF, 8, train_inputs=META)),
    ("approximate, train_inputs is a scalar", lambda: rfgp.approximate(RBF, 8, train_inputs=torch.tensor(1.0))),
    ("approximate, train_inputs is a string", lambda: rfgp.approximate(RBF, 8, train_inputs="a")),
    ("approximate, train_inputs is a list", lambda: rfgp.approximate(RBF, 8, train_inputs=[1.0])),
    ("approximate, train_inputs is an array", lambda: rfgp.approximate(RBF, 8, train_inputs=ARRAY)),
    ("approximate, seed is NaN", lambda: rfgp.approximate(RBF, 8, seed=math.nan)),
    ("approximate, seed is a tensor", lambda: rfgp.approximate(RBF, 8, seed=torch.tensor(1))),
    ("approximate, seed is True", lambda: rfgp.approximate(RBF, 8, seed=True)),
    ("approximate, seed is negative", lambda: rfgp.approximate(RBF, 8, seed=-1)),
    ("approximate, seed is too large", lambda: rfgp.approximate(RBF, 8, seed=2**70)),
    ("approximate, seed is a string", lambda: rfgp.approximate(RBF, 8, seed="a")),
]

DIAGNOSTICS_CALLS = [
    ("an ExactGP, NaN", lambda: EXACT(NANS).mean),
    ("an ExactGP, another dtype", lambda: EXACT(X.double() + 1.0).mean),
    ("an ExactGP trained with the wrong d", lambda: ExactModel(WIDE, Y, GAUSSIAN, K).eval()(WIDE + 1.0).mean),
    (
        "an ExactGP in training with the wrong d",
        lambda: ExactModel(w := torch.rand(12, 4), Y, GAUSSIAN, K).train()(w).covariance_matrix,
    ),
    ("the divergence of an ExactGP, wrong d", lambda: diagnostics.kl_to_exact(EXACT, WIDE)),
    (
        "the kernel error with ARD, wrong d",
        lambda: diagnostics.relative_frobenius_error(approximated(RBFKernel(ard_num_dims=3)), WIDE),
    ),
    ("the divergence at other points", lambda: diagnostics.kl_divergence(NORMAL, PREDICTED)),
    (
        "the divergence of a variance of zero",
        lambda: diagnostics.kl_divergence(Normal(Y, 0.0 * Y, validate_args=False), PREDICTED),
    ),
    ("the divergence without targets", lambda: diagnostics.kl_to_exact(GP, X, train_inputs=X)),
    ("the divergence without inputs", lambda: diagnostics.kl_to_exact(GP, X, train_targets=Y)),
    ("noisy=True for classes", lambda: diagnostics.kl_to_exact(CLASSES, X, noisy=True)),
    ("complex targets for a real likelihood", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, X, Y.cfloat(), X)),
    ("probabilities above 1", lambda: diagnostics.classification_mnll(2.0 * PROBABILITIES, LABELS)),
    ("negative probabilities", lambda: diagnostics.classification_mnll(PROBABILITIES - 1.0, LABELS)),
    (
        "the score of a variance of zero",
        lambda: diagnostics.regression_mnll(Normal(Y, 0.0 * Y, validate_args=False), Y),
    ),
    ("the score of a complex distribution", lambda: diagnostics.regression_mnll(CN, torch.zeros(5))),
    ("rmse, mean is meta", lambda: diagnostics.rmse(Y.to("meta"), Y)),
    ("rmse, mean is short", lambda: diagnostics.rmse(Y[:5], Y)),
    ("rmse, mean is a column", lambda: diagnostics.rmse(Y[:, None], Y)),
    ("rmse, y is an array", lambda: diagnostics.rmse(Y, Y.numpy())),
    ("rmse, y is NaN", lambda: diagnostics.rmse(Y, Y * math.nan)),
    ("rmse, y is empty", lambda: diagnostics.rmse(Y, Y[:0])),
    ("regression_mnll, predictive is a tensor", lambda: diagnostics.regression_mnll(X, Y)),
    ("regression_mnll, predictive is None", lambda: diagnostics.regression_mnll(None, Y)),
    ("regression_mnll, predictive is a string", lambda: diagnostics.regression_mnll("a", Y)),
    ("regression_mnll, y is empty", lambda: diagnostics.regression_mnll(PREDICTED, Y[:0])),
    ("regression_mnll, y is sparse", lambda: diagnostics.regression_mnll(PREDICTED, Y.to_sparse())),
    ("regression_mnll, y is meta", lambda: diagnostics.regression_mnll(PREDICTED, Y.to("meta"))),
    ("error_rate, probabilities is sparse", lambda: diagnostics.error_rate(SPARSE, LABELS)),
    ("error_rate, probabilities is meta", lambda: diagnostics.error_rate(META, LABELS)),
    ("error_rate, probabilities is complex", lambda: diagnostics.error_rate(COMPLEX, LABELS)),
    ("error_rate, labels is too large", lambda: diagnostics.error_rate(PROBABILITIES, LABELS + 1)),
    ("error_rate, labels is booleans", lambda: diagnostics.error_rate(PROBABILITIES, LABELS > 0)),
    ("error_rate, labels is short", lambda: diagnostics.error_rate(PROBABILITIES, LABELS[:5])),
    ("classification_mnll, probabilities is NaN", lambda: diagnostics.classification_mnll(NANS, LABELS)),
    ("classification_mnll, probabilities: no rows", lambda: diagnostics.classification_mnll(NO_ROWS, LABELS)),
    ("classification_mnll, probabilities is sparse", lambda: diagnostics.classification_mnll(SPARSE, LABELS)),
    ("classification_mnll, labels is empty", lambda: diagnostics.classification_mnll(PROBABILITIES, LABELS[:0])),
    ("classification_mnll, labels is complex", lambda: diagnostics.classification_mnll(PROBABILITIES, LABELS.cfloat())),
    ("classification_mnll, labels is None", lambda: diagnostics.classification_mnll(PROBABILITIES, None)),
    ("relative_frobenius_error, kernel is None", lambda: diagnostics.relative_frobenius_error(None, X, X)),
    ("relative_frobenius_error, kernel is a string", lambda: diagnostics.relative_frobenius_error("a", X, X)),
    ("relative_frobenius_error, kernel is a number", lambda: diagnostics.relative_frobenius_error(0, X, X)),
    ("relative_frobenius_error, x is sparse", lambda: diagnostics.relative_frobenius_error(K, SPARSE, X)),
    ("relative_frobenius_error, x is meta", lambda: diagnostics.relative_frobenius_error(K, META, X)),
    ("relative_frobenius_error, x is None", lambda: diagnostics.relative_frobenius_error(K, None, X)),
    ("relative_frobenius_error, y is sparse", lambda: diagnostics.relative_frobenius_error(K, X, SPARSE)),
    ("relative_frobenius_error, y is meta", lambda: diagnostics.relative_frobenius_error(K, X, META)),
    ("relative_frobenius_error, y is a list", lambda: diagnostics.relative_frobenius_error(K, X, [1.0])),
    ("kl_divergence, p is a string", lambda: diagnostics.kl_divergence("a", NORMAL)),
    ("kl_divergence, p is a number", lambda: diagnostics.kl_divergence(0, NORMAL)),
    ("kl_divergence, p is a tensor", lambda: diagnostics.kl_divergence(X, NORMAL)),
    ("kl_divergence, q is a string", lambda: diagnostics.kl_divergence(NORMAL, "a")),
    ("kl_divergence, q is a number", lambda: diagnostics.kl_divergence(NORMAL, 0)),
    ("kl_divergence, q is a tensor", lambda: diagnostics.kl_divergence(NORMAL, X)),
    ("kl_divergence, joint is a string", lambda: diagnostics.kl_divergence(NORMAL, NORMAL, joint="no")),
    ("kl_divergence, joint is None", lambda: diagnostics.kl_divergence(NORMAL, NORMAL, joint=None)),
    ("kl_divergence, joint is two", lambda: diagnostics.kl_divergence(NORMAL, NORMAL, joint=2)),
    ("kl_to_exact, model is None", lambda: diagnostics.kl_to_exact(None, X)),
    ("kl_to_exact, model is a string", lambda: diagnostics.kl_to_exact("a", X)),
    ("kl_to_exact, model is a number", lambda: diagnostics.kl_to_exact(0, X)),
    ("kl_to_exact, x is sparse", lambda: diagnostics.kl_to_exact(GP, SPARSE, train_inputs=X, train_targets=Y)),
    ("kl_to_exact, x is meta", lambda: diagnostics.kl_to_exact(GP, META, train_inputs=X, train_targets=Y)),
    ("kl_to_exact, x is sparse (2)", lambda: diagnostics.kl_to_exact(EXACT, SPARSE)),
    ("kl_to_exact, direction is foo", lambda: diagnostics.kl_to_exact(GP, X, direction="foo")),
    ("kl_to_exact, direction is a number", lambda: diagnostics.kl_to_exact(GP, X, direction=0)),
    ("kl_to_exact, direction is a list", lambda: diagnostics.kl_to_exact(GP, X, direction=[])),
    ("kl_to_exact, noisy is None", lambda: diagnostics.kl_to_exact(GP, X, noisy=None)),
    ("kl_to_exact, noisy is two", lambda: diagnostics.kl_to_exact(GP, X, noisy=2)),
    ("kl_to_exact, noisy is a string", lambda: diagnostics.kl_to_exact(GP, X, noisy="no")),
    ("kl_to_exact, train_inputs is None", lambda: diagnostics.kl_to_exact(GP, X, train_inputs=None, train_targets=Y)),
    ("kl_to_exact: sparse", lambda: diagnostics.kl_to_exact(GP, X, train_inputs=SPARSE, train_targets=Y)),
    ("kl_to_exact, train_inputs is meta", lambda: diagnostics.kl_to_exact(GP, X, train_inputs=META, train_targets=Y)),
    ("kl_to_exact: short", lambda: diagnostics.kl_to_exact(GP, X, train_inputs=X, train_targets=Y[:5])),
    ("kl_to_exact, train_targets is a number", lambda: diagnostics.kl_to_exact(GP, X, train_inputs=X, train_targets=0)),
    ("kl_to_exact, train_targets is None", lambda: diagnostics.kl_to_exact(GP, X, train_inputs=X, train_targets=None)),
    ("exact_posterior, kernel is None", lambda: diagnostics.exact_posterior(None, GAUSSIAN, X, Y, X)),
    ("exact_posterior, kernel is a string", lambda: diagnostics.exact_posterior("a", GAUSSIAN, X, Y, X)),
    ("exact_posterior, kernel is a number", lambda: diagnostics.exact_posterior(0, GAUSSIAN, X, Y, X)),
    ("exact_posterior, likelihood is None", lambda: diagnostics.exact_posterior(RBF, None, X, Y, X)),
    ("exact_posterior, likelihood is a string", lambda: diagnostics.exact_posterior(RBF, "a", X, Y, X)),
    ("exact_posterior, likelihood is a number", lambda: diagnostics.exact_posterior(RBF, 0, X, Y, X)),
    ("exact_posterior, train_inputs is sparse", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, SPARSE, Y, X)),
    ("exact_posterior, train_inputs is meta", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, META, Y, X)),
    ("exact_posterior, train_inputs is an array", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, ARRAY, Y, X)),
    ("exact_posterior, train_targets is empty", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, X, Y[:0], X)),
    ("exact_posterior: sparse", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, X, Y.to_sparse(), X)),
    ("exact_posterior, train_targets is short", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, X, Y[:5], X)),
    ("exact_posterior, x is sparse", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, X, Y, SPARSE)),
    ("exact_posterior, x is meta", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, X, Y, META)),
    ("exact_posterior, x: no rows", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, X, Y, NO_ROWS)),
    ("exact_posterior, mean is a string", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, X, Y, X, mean="a")),
    ("exact_posterior, mean is a number", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, X, Y, X, mean=0)),
    ("exact_posterior, mean is a tensor", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, X, Y, X, mean=X)),
    ("exact_posterior: integers", lambda: diagnostics.exact_posterior(RBF, FIXED.likelihood, X, Y, X, noise=LABELS)),
    ("exact_posterior: a number", lambda: diagnostics.exact_posterior(RBF, FIXED.likelihood, X, Y, X, noise=0)),
    ("exact_posterior: booleans", lambda: diagnostics.exact_posterior(RBF, FIXED.likelihood, X, Y, X, noise=Y > 0.5)),
]

KERNELS_CALLS = [
    ("K called with a dictionary", lambda: K({})),
    ("K called with a tuple", lambda: K((X, X))),
    ("K, x1 and x2 of different d", lambda: K(X, WIDE)),
    ("K, x2 a single row", lambda: K(X, ROW)),
    ("K, x2 a string", lambda: K(X, "a")),
    ("K, a single row", lambda: K(ROW).to_dense()),
    ("K, wrong d", lambda: K(WIDE).to_dense()),
    ("K, wrong d, diagonal", lambda: K(WIDE, diag=True)),
    ("K, NaN", lambda: K(NANS).to_dense()),
    ("TASKS, wrong d", lambda: TASKS(WIDE).to_dense()),
    ("CURL, wrong d", lambda: CURL(WIDE).to_dense()),
    ("K, last_dim_is_batch", lambda: K(X, last_dim_is_batch=True).to_dense()),
    ("an output operator of a scalar kernel", lambda: K.output_factor(operators.Gradient())),
    ("a curl-free kernel of Matern 1/2", lambda: kernels.CurlFreeKernel(MaternKernel(nu=0.5))),
    ("a curl-free kernel of polynomials", lambda: kernels.CurlFreeKernel(POLY)),
    ("a divergence-free field on a line", lambda: kernels.DivergenceFreeKernel(RBF)(X[:, :1]).to_dense()),
    (
        "the Laplacian of Matern 3/2",
        lambda: kernels.LinearlyObservedKernel(MaternKernel(nu=1.5, ard_num_dims=3), [operators.Laplacian()]),
    ),
    ("an operator without its brackets", lambda: kernels.LinearlyObservedKernel(RBF, VALUE)),
    ("operators as classes", lambda: kernels.LinearlyObservedKernel(RBF, [operators.Value])),
    ("an exponent of 3", lambda: kernels.OpticalKernel(3)),
    ("skewed inputs below the skewness", lambda: SKEWED(X - 5.0).to_dense()),
    ("an asymmetric covariance", lambda: kernels.ConstantCovariance(torch.rand(3, 3))),
    ("a singular covariance", lambda: kernels.ConstantCovariance(torch.zeros(2, 2))),
    ("negative similarities", lambda: kernels.GraphLaplacianCovariance(-EYE)),
    ("a sketch of the wrong degree", lambda: FeatureKernel(POLY, features.TensorSRHT(4, 8, degree=3))),
    ("a Fourier map for a polynomial", lambda: FeatureKernel(POLY, FOURIER)),
    ("an odd number of columns in pairs", lambda: MapRecipe("fourier", 7, 0)),
    ("a complex form of linear features", lambda: MapRecipe("linear:complex", 8, 0)),
    ("a kernel product with the same weights", lambda: with_features(ProductKernel(K, K))),
    ("a sum of scalar kernel and field", lambda: with_features(AdditiveKernel(K, CURL))),
    ("K, x1 is a number", lambda: K(0).to_dense()),
    ("K, x1 is a scalar", lambda: K(torch.tensor(1.0)).to_dense()),
    ("K, x2 is sparse", lambda: K(X, SPARSE).to_dense()),
    ("K, x2 is meta", lambda: K(X, META).to_dense()),
    ("K.features, x is sparse", lambda: K.features(SPARSE)),
    ("K.features, x is meta", lambda: K.features(META)),
    ("K.scalar_features, x is sparse", lambda: K.scalar_features(SPARSE)),
    ("K.scalar_features, x is meta", lambda: K.scalar_features(META)),
    ("TASKS, x1 is meta", lambda: TASKS(META).to_dense()),
    ("TASKS, x1 is a number", lambda: TASKS(0).to_dense()),
    ("CURL, x1 is a list", lambda: CURL([1.0]).to_dense()),
    ("CURL, x1 is an array", lambda: CURL(ARRAY).to_dense()),
    ("TASKS.feature_operator, x is sparse", lambda: TASKS.feature_operator(SPARSE)),
    ("TASKS.feature_operator, x is meta", lambda: TASKS.feature_operator(META)),
    ("CURL.output_factor, operator is a number", lambda: CURL.output_factor(0)),
    ("CURL.output_factor, operator is a tensor", lambda: CURL.output_factor(X)),
    ("K.output_factor, operator is a number", lambda: K.output_factor(0)),
    ("K.output_factor, operator is a tensor", lambda: K.output_factor(X)),
    ("K.resample, generator is NumPy's", lambda: K.resample(np.random.default_rng(0))),
    ("K.resample, generator is a number", lambda: K.resample(0)),
    ("CURL_FREE, x1 is sparse", lambda: CURL_FREE(SPARSE).to_dense()),
    ("CURL_FREE, x1 is meta", lambda: CURL_FREE(META).to_dense()),
    ("OPTICAL, x1 is a number", lambda: OPTICAL(0).to_dense()),
    ("OPTICAL, x1 is a scalar", lambda: OPTICAL(torch.tensor(1.0)).to_dense()),
    ("SKEWED, x1 is sparse", lambda: SKEWED(SPARSE).to_dense()),
    ("SKEWED, x1 is meta", lambda: SKEWED(META).to_dense()),
    ("HELMHOLTZ, x1 is one row", lambda: HELMHOLTZ(ROW).to_dense()),
    ("HELMHOLTZ, x1 is a number", lambda: HELMHOLTZ(0).to_dense()),
    ("DECOMPOSABLE, x1 is complex", lambda: DECOMPOSABLE(COMPLEX).to_dense()),
    ("DECOMPOSABLE, x1 is booleans", lambda: DECOMPOSABLE(BOOLEAN).to_dense()),
    ("CurlFreeKernel, base_kernel is a tensor", lambda: kernels.CurlFreeKernel(X)),
    ("CurlFreeKernel, base_kernel is None", lambda: kernels.CurlFreeKernel(None)),
    ("DivergenceFreeKernel, base_kernel is a string", lambda: kernels.DivergenceFreeKernel("a")),
    ("DivergenceFreeKernel, base_kernel is a number", lambda: kernels.DivergenceFreeKernel(0)),
    ("HelmholtzKernel, curl_free_base is None", lambda: kernels.HelmholtzKernel(None, RBFKernel())),
    ("HelmholtzKernel, curl_free_base is a string", lambda: kernels.HelmholtzKernel("a", RBFKernel())),
    ("HelmholtzKernel, divergence_free_base is a string", lambda: kernels.HelmholtzKernel(RBFKernel(), "a")),
    ("HelmholtzKernel, divergence_free_base is a number", lambda: kernels.HelmholtzKernel(RBFKernel(), 0)),
    ("DecomposableKernel: a string", lambda: kernels.DecomposableKernel("a", kernels.ConstantCovariance(EYE))),
    ("DecomposableKernel: a number", lambda: kernels.DecomposableKernel(0, kernels.ConstantCovariance(EYE))),
    ("DecomposableKernel, task_covar_module is None", lambda: kernels.DecomposableKernel(RBFKernel(), None)),
    ("DecomposableKernel, task_covar_module is a string", lambda: kernels.DecomposableKernel(RBFKernel(), "a")),
    ("ConstantCovariance, matrix is meta", lambda: kernels.ConstantCovariance(META)),
    ("ConstantCovariance, matrix is sparse", lambda: kernels.ConstantCovariance(SPARSE)),
    ("GraphLaplacianCovariance, similarity is sparse", lambda: kernels.GraphLaplacianCovariance(SPARSE)),
    ("GraphLaplacianCovariance, similarity is meta", lambda: kernels.GraphLaplacianCovariance(META)),
    ("DotProductKernel, coefficients is booleans", lambda: kernels.DotProductKernel(Y > 0.5)),
    ("DotProductKernel, coefficients is None", lambda: kernels.DotProductKernel(None)),
    ("SkewedChiSquaredKernel, skewness is True", lambda: kernels.SkewedChiSquaredKernel(True)),
    ("SkewedChiSquaredKernel, skewness is infinite", lambda: kernels.SkewedChiSquaredKernel(math.inf)),
    ("OpticalKernel, exponent is complex", lambda: kernels.OpticalKernel(1j)),
    ("OpticalKernel, exponent is 3", lambda: kernels.OpticalKernel(3)),
    ("LinearlyObservedKernel, base_kernel is None", lambda: kernels.LinearlyObservedKernel(None, [VALUE])),
    ("LinearlyObservedKernel, base_kernel is a string", lambda: kernels.LinearlyObservedKernel("a", [VALUE])),
    ("LinearlyObservedKernel, operators is None", lambda: kernels.LinearlyObservedKernel(RBFKernel(), None)),
    ("LinearlyObservedKernel, operators is a number", lambda: kernels.LinearlyObservedKernel(RBFKernel(), 0)),
    ("SpectralDensityKernel, density is a string", lambda: kernels.SpectralDensityKernel("a", 1, 1.0)),
    ("SpectralDensityKernel, density is a number", lambda: kernels.SpectralDensityKernel(0, 1, 1.0)),
    ("SpectralDensityKernel, input_dim is a string", lambda: kernels.SpectralDensityKernel(density, "8", 1.0)),
    ("SpectralDensityKernel, input_dim is a half", lambda: kernels.SpectralDensityKernel(density, 1.5, 1.0)),
    ("SpectralDensityKernel, proposal_scale is negative", lambda: kernels.SpectralDensityKernel(density, 1, -1.0)),
    ("SpectralDensityKernel, proposal_scale is True", lambda: kernels.SpectralDensityKernel(density, 1, True)),
    (
        "FeatureKernel, base_kernel is None",
        lambda: FeatureKernel(None, features.TensorSRHT(4, 8, degree=2)),
    ),
    (
        "FeatureKernel, base_kernel is a string",
        lambda: FeatureKernel("a", features.TensorSRHT(4, 8, degree=2)),
    ),
    ("FeatureKernel, feature_map is None", lambda: FeatureKernel(POLY, None)),
    ("FeatureKernel, feature_map is a string", lambda: FeatureKernel(POLY, "a")),
    ("DrawnMap, center is a string", lambda: DrawnMap(features.TensorSRHT(4, 8, degree=2), center="a")),
    ("MapRecipe, method is a number", lambda: MapRecipe(0, 8, 0)),
    ("MapRecipe, method is a list", lambda: MapRecipe([], 8, 0)),
    ("MapRecipe, num_features is a list", lambda: MapRecipe("fourier", [8], 0)),
    (
        "MapRecipe, num_features is two numbers",
        lambda: MapRecipe("fourier", torch.tensor([1, 2]), 0),
    ),
    ("MapRecipe, seed is NaN", lambda: MapRecipe("fourier", 8, math.nan)),
    ("MapRecipe, seed is a tensor", lambda: MapRecipe("fourier", 8, torch.tensor(1))),
    ("MapRecipe, seed is True", lambda: MapRecipe("fourier", 8, True)),
    ("MapRecipe, seed is negative", lambda: MapRecipe("fourier", 8, -1)),
    ("MapRecipe, seed is too large", lambda: MapRecipe("fourier", 8, 2**70)),
    ("MapRecipe, seed is a string", lambda: MapRecipe("fourier", 8, "a")),
    ("hilbert_schmidt_variance, kernel is None", lambda: hilbert_schmidt_variance(None, X, X)),
    ("hilbert_schmidt_variance, kernel is a string", lambda: hilbert_schmidt_variance("a", X, X)),
    ("hilbert_schmidt_variance, x is sparse", lambda: hilbert_schmidt_variance(K, SPARSE, X)),
    ("hilbert_schmidt_variance, x is meta", lambda: hilbert_schmidt_variance(K, META, X)),
    ("hilbert_schmidt_variance, y is sparse", lambda: hilbert_schmidt_variance(K, X, SPARSE)),
    ("hilbert_schmidt_variance, y is meta", lambda: hilbert_schmidt_variance(K, X, META)),
    ("with_features, kernel is None", lambda: with_features(None)),
    ("with_features, kernel is a string", lambda: with_features("a")),
    ("FeatureKernel, maps is None", lambda: FeatureKernel(RBFKernel(), None)),
    ("FeatureKernel, maps is a string", lambda: FeatureKernel(RBFKernel(), "fourier")),
    ("FeatureKernel, one map for a sum", lambda: FeatureKernel(RBFKernel() + RBFKernel(), FOURIER)),
    ("FeatureKernel, one map for a product", lambda: FeatureKernel(RBFKernel() * RBFKernel(), FOURIER)),
    ("FeatureKernel, no maps for a sum", lambda: FeatureKernel(RBFKernel() + RBFKernel(), torch.nn.ModuleList())),
    ("with_features, a sum with an exact part", lambda: with_features(AdditiveKernel(K, RBFKernel()))),
]

FEATURES_CALLS = [
    ("RandomFourier, input_dim is True", lambda: features.RandomFourier(True, 8)),
    ("RandomFourier, num_features is complex", lambda: features.RandomFourier(3, 1j)),
    ("RandomFourier, spectrum is a string", lambda: features.RandomFourier(3, 8, spectrum="a")),
    ("RandomFourier, structure is a number", lambda: features.RandomFourier(3, 8, structure=0)),
    ("RandomFourier, is_complex is None", lambda: features.RandomFourier(3, 8, is_complex=None)),
    ("RandomFourier, generator is a string", lambda: features.RandomFourier(3, 8, generator="a")),
    ("ProductSketch, input_dim is a half", lambda: features.ProductSketch(1.5, 8, degree=2)),
    ("ProductSketch, num_features is NaN", lambda: features.ProductSketch(3, math.nan, degree=2)),
    ("ProductSketch, degree is NaN", lambda: features.ProductSketch(3, 8, degree=math.nan)),
    ("ProductSketch, weights is a list", lambda: features.ProductSketch(3, 8, degree=2, weights=[])),
    ("ProductSketch, is_complex is a string", lambda: features.ProductSketch(3, 8, degree=2, is_complex="no")),
    ("ProductSketch: NumPy's", lambda: features.ProductSketch(3, 8, degree=2, generator=np.random.default_rng(0))),
    ("TensorSRHT, input_dim is complex", lambda: features.TensorSRHT(1j, 8, degree=2)),
    ("TensorSRHT, num_features is a list", lambda: features.TensorSRHT(3, [8], degree=2)),
    ("TensorSRHT, degree is None", lambda: features.TensorSRHT(3, 8, degree=None)),
    ("TensorSRHT, variant is None", lambda: features.TensorSRHT(3, 8, degree=2, variant=None)),
    ("TensorSRHT, is_complex is None", lambda: features.TensorSRHT(3, 8, degree=2, is_complex=None)),
    ("TensorSRHT, generator is a number", lambda: features.TensorSRHT(3, 8, degree=2, generator=0)),
    ("TensorSketch, input_dim is True", lambda: features.TensorSketch(True, 8, degree=2)),
    ("TensorSketch, num_features is two numbers", lambda: features.TensorSketch(3, torch.tensor([1, 2]), degree=2)),
    ("TensorSketch, degree is complex", lambda: features.TensorSketch(3, 8, degree=1j)),
    ("TensorSketch, is_complex is a string", lambda: features.TensorSketch(3, 8, degree=2, is_complex="no")),
    ("TensorSketch, generator is a string", lambda: features.TensorSketch(3, 8, degree=2, generator="a")),
    ("OpticalFeatures, input_dim is True", lambda: features.OpticalFeatures(True, 8)),
    ("OpticalFeatures, num_features is a half", lambda: features.OpticalFeatures(3, 1.5)),
    ("OpticalFeatures, exponent is a string", lambda: features.OpticalFeatures(3, 8, exponent="8")),
    ("OpticalFeatures, generator is a number", lambda: features.OpticalFeatures(3, 8, generator=0)),
    ("SphericalFourier, input_dim is None", lambda: features.SphericalFourier(None, 8, degree=2, a=2.0)),
    ("SphericalFourier, num_features is a list", lambda: features.SphericalFourier(3, [8], degree=2, a=2.0)),
    ("SphericalFourier, degree is a string", lambda: features.SphericalFourier(3, 8, degree="8", a=2.0)),
    ("SphericalFourier, a is infinite", lambda: features.SphericalFourier(3, 8, degree=2, a=math.inf)),
    ("SphericalFourier: a number", lambda: features.SphericalFourier(3, 8, degree=2, a=2.0, structure=0)),
    ("SphericalFourier: a string", lambda: features.SphericalFourier(3, 8, degree=2, a=2.0, is_complex="no")),
    ("generator of SphericalFourie: a string", lambda: features.SphericalFourier(3, 8, degree=2, a=2.0, generator="a")),
    ("LinearFeatures, input_dim is a half", lambda: features.LinearFeatures(1.5)),
    ("ComplexToReal, feature_map is a tensor", lambda: features.ComplexToReal(X)),
    ("FourierSeries, orders is a number", lambda: features.FourierSeries(0, torch.tensor([0.5, 0.5]))),
    ("FourierSeries, coefficients is a number", lambda: features.FourierSeries(torch.tensor([[0], [1]]), 0)),
    ("Maclaurin, maps_by_degree is val", lambda: features.Maclaurin({1: "a"}, COEFFICIENTS)),
    ("Maclaurin, coefficients is booleans", lambda: features.Maclaurin({1: LINEAR_SKETCH}, Y > 0.5)),
    ("Maclaurin: a string", lambda: features.Maclaurin({1: LINEAR_SKETCH}, COEFFICIENTS, is_gaussian="no")),
    ("Maclaurin, importance is a list", lambda: features.Maclaurin({1: LINEAR_SKETCH}, COEFFICIENTS, importance=[1.0])),
    ("polynomial_sketch, name is a list", lambda: features.polynomial_sketch([], "ctr", 3, 8, degree=2)),
    ("polynomial_sketch, form is None", lambda: features.polynomial_sketch("rademacher", None, 3, 8, degree=2)),
    ("polynomial_sketch: infinite", lambda: features.polynomial_sketch("rademacher", "ctr", math.inf, 8, degree=2)),
    ("polynomial_sketch: a list", lambda: features.polynomial_sketch("rademacher", "ctr", 3, [8], degree=2)),
    ("polynomial_sketch: NaN", lambda: features.polynomial_sketch("rademacher", "ctr", 3, 8, degree=math.nan)),
    ("polynomial_s: a number", lambda: features.polynomial_sketch("rademacher", "ctr", 3, 8, degree=2, generator=0)),
    ("FOURIER, args is sparse", lambda: FOURIER(SPARSE)),
    ("FOURIER.target, x is sparse", lambda: FOURIER.target(SPARSE, X)),
    ("FOURIER.target, y is sparse", lambda: FOURIER.target(X, SPARSE)),
    ("FOURIER.moments, x: wrong d", lambda: FOURIER.moments(WIDE, X)),
    ("FOURIER.moments, y is a list", lambda: FOURIER.moments(X, [1.0])),
    ("FOURIER.resample, generator is a string", lambda: FOURIER.resample("a")),
    ("SKETCH, args is sparse", lambda: SKETCH(SPARSE)),
    ("SKETCH.target, x is sparse", lambda: SKETCH.target(SPARSE, X)),
    ("SKETCH.target, y is sparse", lambda: SKETCH.target(X, SPARSE)),
    ("SKETCH.moments, x: no rows", lambda: SKETCH.moments(NO_ROWS, X)),
    ("SKETCH.moments, y is a string", lambda: SKETCH.moments(X, "a")),
    ("SKETCH.resample, generator is NumPy's", lambda: SKETCH.resample(np.random.default_rng(0))),
    ("COMPLEX_SKETCH, args is sparse", lambda: COMPLEX_SKETCH(SPARSE)),
    ("COMPLEX_SKETCH.target, x is sparse", lambda: COMPLEX_SKETCH.target(SPARSE, X)),
    ("COMPLEX_SKETCH.target, y is sparse", lambda: COMPLEX_SKETCH.target(X, SPARSE)),
    ("COMPLEX_SKETCH.moments, x is integers", lambda: COMPLEX_SKETCH.moments(INTEGERS, X)),
    ("COMPLEX_SKETCH.moments, y is complex", lambda: COMPLEX_SKETCH.moments(X, COMPLEX)),
    ("COMPLEX_SKETCH.resample, generator is a string", lambda: COMPLEX_SKETCH.resample("a")),
    ("CTR, args is sparse", lambda: CTR(SPARSE)),
    ("CTR.target, x is sparse", lambda: CTR.target(SPARSE, X)),
    ("CTR.target, y is sparse", lambda: CTR.target(X, SPARSE)),
    ("CTR.moments, x is a string", lambda: CTR.moments("a", X)),
    ("CTR.moments, y is a scalar", lambda: CTR.moments(X, torch.tensor(1.0))),
    ("CTR.resample, generator is a number", lambda: CTR.resample(0)),
    ("TENSOR, args is sparse", lambda: TENSOR(SPARSE)),
    ("TENSOR.target, x is sparse", lambda: TENSOR.target(SPARSE, X)),
    ("TENSOR.target, y is sparse", lambda: TENSOR.target(X, SPARSE)),
    ("TENSOR.moments, x is a list", lambda: TENSOR.moments([1.0], X)),
    ("TENSOR.moments, y is a list", lambda: TENSOR.moments(X, [1.0])),
    ("TENSOR.resample, generator is NumPy's", lambda: TENSOR.resample(np.random.default_rng(0))),
    ("SPHERICAL, args is sparse", lambda: SPHERICAL(SPARSE)),
    ("SPHERICAL.target, x is sparse", lambda: SPHERICAL.target(SPARSE, Z)),
    ("SPHERICAL.target, y is sparse", lambda: SPHERICAL.target(Z, SPARSE)),
    ("SPHERICAL.moments, x is one row", lambda: SPHERICAL.moments(ROW, Z)),
    ("SPHERICAL.moments, y is infinite", lambda: SPHERICAL.moments(Z, INFINITE)),
    ("SPHERICAL.resample, generator is NumPy's", lambda: SPHERICAL.resample(np.random.default_rng(0))),
    ("MACLAURIN, args is sparse", lambda: MACLAURIN(SPARSE)),
    ("MACLAURIN.target, x is sparse", lambda: MACLAURIN.target(SPARSE, X)),
    ("MACLAURIN.target, y is sparse", lambda: MACLAURIN.target(X, SPARSE)),
    ("MACLAURIN.moments, x is a list", lambda: MACLAURIN.moments([1.0], X)),
    ("MACLAURIN.moments, y is a number", lambda: MACLAURIN.moments(X, 0)),
    ("MACLAURIN.resample, generator is a string", lambda: MACLAURIN.resample("a")),
    ("LIGHT, args is sparse", lambda: LIGHT(SPARSE)),
    ("LIGHT.target, x is sparse", lambda: LIGHT.target(SPARSE, X)),
    ("LIGHT.target, y is sparse", lambda: LIGHT.target(X, SPARSE)),
    ("LIGHT.moments, x is sparse", lambda: LIGHT.moments(SPARSE, X)),
    ("LIGHT.moments, y is a list", lambda: LIGHT.moments(X, [1.0])),
    ("LIGHT.resample, generator is a string", lambda: LIGHT.resample("a")),
    ("LINEAR, args is sparse", lambda: LINEAR(SPARSE)),
    ("LINEAR.target, x is sparse", lambda: LINEAR.target(SPARSE, X)),
    ("LINEAR.target, y is sparse", lambda: LINEAR.target(X, SPARSE)),
    ("LINEAR.moments, x is a number", lambda: LINEAR.moments(0, X)),
    ("LINEAR.moments, y is sparse", lambda: LINEAR.moments(X, SPARSE)),
    ("LINEAR.resample, generator is a number", lambda: LINEAR.resample(0)),
    ("SRHT, args is sparse", lambda: SRHT(SPARSE)),
    ("SRHT.target, x is sparse", lambda: SRHT.target(SPARSE, X)),
    ("SRHT.target, y is sparse", lambda: SRHT.target(X, SPARSE)),
    ("SRHT.moments, x is one row", lambda: SRHT.moments(ROW, X)),
    ("SRHT.moments, y is booleans", lambda: SRHT.moments(X, BOOLEAN)),
    ("SRHT.resample, generator is NumPy's", lambda: SRHT.resample(np.random.default_rng(0))),
    ("SERIES, args is NaN", lambda: SERIES(NANS)),
    ("SERIES.target, x is meta", lambda: SERIES.target(META, X[:, :1])),
    ("SERIES.target, y is a number", lambda: SERIES.target(X[:, :1], 0)),
    ("SERIES.moments, x is an array", lambda: SERIES.moments(ARRAY, X[:, :1])),
    ("SERIES.moments, y is NaN", lambda: SERIES.moments(X[:, :1], NANS)),
    ("COMPLEX_SKETCH.planes, x is sparse", lambda: COMPLEX_SKETCH.planes(SPARSE)),
    ("SKETCH.forward_pair, x: no rows", lambda: SKETCH.forward_pair(NO_ROWS, X)),
    ("SKETCH.forward_pair, y is None", lambda: SKETCH.forward_pair(X, None)),
    ("SKETCH.forward_tensor, factors: no rows", lambda: SKETCH.forward_tensor(NO_ROWS, X)),
    ("SKETCH.forward_tensor, y is one row", lambda: SKETCH.forward_tensor(X, ROW)),
    ("SPHERICAL.polynomial, x is sparse", lambda: SPHERICAL.polynomial(SPARSE, Z)),
    ("SPHERICAL.polynomial, y is sparse", lambda: SPHERICAL.polynomial(Z, SPARSE)),
    ("TENSOR.variance_bound, x is sparse", lambda: TENSOR.variance_bound(SPARSE, X)),
    ("TENSOR.variance_bound, y is sparse", lambda: TENSOR.variance_bound(X, SPARSE)),
    ("Matern, nu is two numbers", lambda: features.Matern(torch.ones(2))),
    ("RationalQuadratic, alpha is complex", lambda: features.RationalQuadratic(1j)),
    ("SpectralMixture, num_mixtures is NaN", lambda: features.SpectralMixture(math.nan)),
    ("PowerWeighted, spectrum is None", lambda: features.PowerWeighted(None, (1,))),
    ("PowerWeighted, powers is neg", lambda: features.PowerWeighted(features.Gaussian(), (-1,))),
    ("TraceMeasure, density is a tensor", lambda: features.TraceMeasure(X, 1, 1.0)),
    ("TraceMeasure, dim is None", lambda: features.TraceMeasure(density, None, 1.0)),
    ("TraceMeasure, proposal_scale is negative", lambda: features.TraceMeasure(density, 1, -1.0)),
    ("Gaussian().draw, width is negative", lambda: features.Gaussian().draw(-1, 3, G)),
    ("Gaussian().draw, dim is a list", lambda: features.Gaussian().draw(4, [8], G)),
    ("Gaussian().draw, generator is a number", lambda: features.Gaussian().draw(4, 3, 0)),
    ("Laplace().draw, width is a list", lambda: features.Laplace().draw([8], 3, G)),
    ("Laplace().draw, dim is negative", lambda: features.Laplace().draw(4, -1, G)),
    ("Laplace().draw, generator is a string", lambda: features.Laplace().draw(4, 3, "a")),
]

DISTRIBUTIONS_CALLS = [
    ("ComplexNormal, loc is a number", lambda: distributions.ComplexNormal(0, EYE)),
    ("ComplexNormal: sparse", lambda: distributions.ComplexNormal(torch.zeros(3, dtype=torch.complex64), SPARSE)),
    ("CN.log_prob, value is a scalar", lambda: CN.log_prob(torch.tensor(1.0))),
    ("CN.plus_noise, noise is an array", lambda: CN.plus_noise(Y.numpy())),
    ("CN.rsample, sample_shape is 1.5", lambda: CN.rsample((1.5,))),
]

MODELS_CALLS = [
    ("a model of an exact kernel", lambda: models.WeightSpaceGP(RBF, GAUSSIAN)),
    ("a model of several likelihoods", lambda: models.WeightSpaceGP(K, gpytorch.likelihoods.BernoulliLikelihood())),
    (
        "a model with a batch of noises",
        lambda: models.WeightSpaceGP(K, GaussianLikelihood(batch_shape=torch.Size([2]))),
    ),
    ("a model with a constant for a mean", lambda: models.WeightSpaceGP(K, GAUSSIAN, 0.0)),
    (
        "a model of tasks with too few",
        lambda: models.WeightSpaceGP(TASKS, MultitaskGaussianLikelihood(num_tasks=3)).condition(X, X[:, :2]),
    ),
    ("a posterior before the fit", lambda: models.WeightSpaceGP(K, GAUSSIAN).posterior(X)),
    ("the evidence before the fit", lambda: models.WeightSpaceGP(K, GAUSSIAN).log_marginal_likelihood()),
    ("functions before the fit", lambda: models.WeightSpaceGP(K, GAUSSIAN).sample_functions(2)),
    ("statistics before the fit", lambda: models.WeightSpaceGP(K, GAUSSIAN).statistics),
    ("least squares before the fit", lambda: models.VectorLeastSquares(K, regularization=1.0).predict(X)),
    ("localized features before the fit", lambda: models.LocalizedMaclaurinGP(RBF, GAUSSIAN, 8).posterior(X)),
    ("localized features of a polynomial", lambda: models.LocalizedMaclaurinGP(POLY, GAUSSIAN, 8)),
    (
        "localized features with known noise",
        lambda: models.LocalizedMaclaurinGP(RBF, FixedNoiseGaussianLikelihood(Y + 1.0), 8),
    ),
    (
        "one least-squares graph is missing",
        lambda: models.VectorLeastSquares(K, regularization=1.0, manifold_regularization=1.0).fit(X, Y),
    ),
    ("neighbors as many as rows", lambda: models.knn_laplacian(X, 12)),
    ("a Laplace approximation of an exact kernel", lambda: models.LaplaceGP(RBF, PROBIT)),
    ("a Laplace approximation of several outputs", lambda: models.LaplaceGP(CURL, PROBIT)),
    ("a Laplace approximation of a Dirichlet likelihood", lambda: models.LaplaceGP(K, DIRICHLET)),
    ("a Laplace approximation of a kink", lambda: models.LaplaceGP(K, gpytorch.likelihoods.LaplaceLikelihood())),
    ("a Laplace approximation with blocks for one function", lambda: models.LaplaceGP(K, PROBIT, hessian=BLOCKS)),
    ("LaplaceGP, likelihood is a string", lambda: models.LaplaceGP(K, "a")),
    ("LaplaceGP, mean is a string", lambda: models.LaplaceGP(K, PROBIT, "a")),
    ("LaplaceGP, hessian is unknown", lambda: models.LaplaceGP(K, PROBIT, hessian="a")),
    ("a mode before the fit", lambda: models.LaplaceGP(K, PROBIT).mode),
    ("labels of a half", lambda: LAPLACE.condition(X, 0.5 * (Y > 0.5))),
    ("LAPLACE.fit, x is sparse", lambda: LAPLACE.condition(SPARSE, Y)),
    ("LAPLACE.fit, x is a generator", lambda: LAPLACE.condition(iter([(X, Y)]))),
    ("LAPLACE.fit, x is empty", lambda: LAPLACE.condition([])),
    ("LAPLACE.fit, start is a string", lambda: LAPLACE.condition(X, Y > 0.5, start="a")),
    ("LAPLACE.fit, start is of another shape", lambda: LAPLACE.condition(X, Y > 0.5, start=X)),
    ("LAPLACE.posterior, x is sparse", lambda: LAPLACE.posterior(SPARSE)),
    ("fit, LaplaceGP with blocks", lambda: rfgp.fit(LAPLACE, X, Y > 0.5, strategy="blocks")),
    ("fit, LaplaceGP with noise", lambda: rfgp.fit(LAPLACE, X, Y > 0.5, noise=Y)),
    ("fit, LaplaceGP without targets", lambda: rfgp.fit(LAPLACE, X)),
    ("WeightSpaceGP, kernel is a string", lambda: models.WeightSpaceGP("a", GAUSSIAN)),
    ("WeightSpaceGP, likelihood is a string", lambda: models.WeightSpaceGP(K, "a")),
    ("WeightSpaceGP, mean is a string", lambda: models.WeightSpaceGP(K, GAUSSIAN, mean="a")),
    ("GP.fit, x is sparse", lambda: GP.condition(SPARSE, Y)),
    ("GP.fit, y is empty", lambda: GP.condition(X, Y[:0])),
    ("GP.fit, noise is infinite", lambda: GP.condition(X, Y, noise=Y * math.inf)),
    ("GP.update, x is sparse", lambda: GP.update(SPARSE, Y)),
    ("GP.update, y is empty", lambda: GP.update(X, Y[:0])),
    ("GP.update, noise is an array", lambda: GP.update(X, Y, noise=Y.numpy())),
    ("GP.posterior, x is sparse", lambda: GP.posterior(SPARSE)),
    ("GP.posterior, operator is a string", lambda: GP.posterior(X, operator="a")),
    ("GP.sample_functions, num_functions is complex", lambda: GP.sample_functions(1j)),
    ("DRAW, x is infinite", lambda: DRAW(INFINITE)),
    ("FIXED.fit, x is sparse", lambda: FIXED.condition(SPARSE, Y)),
    ("FIXED.fit, y is empty", lambda: FIXED.condition(X, Y[:0])),
    ("FIXED.fit, noise is empty", lambda: FIXED.condition(X, Y, noise=Y[:0])),
    ("FIXED.update, x is sparse", lambda: FIXED.update(SPARSE, Y)),
    ("FIXED.update, y is short", lambda: FIXED.update(X, Y[:5])),
    ("FIXED.update, noise is a column", lambda: FIXED.update(X, Y, noise=Y[:, None])),
    ("FIXED.posterior, x is sparse", lambda: FIXED.posterior(SPARSE)),
    ("FIXED.posterior, operator is a string", lambda: FIXED.posterior(X, operator="a")),
    ("FIXED.sample_functions, num_functions is None", lambda: FIXED.sample_functions(None)),
    ("CLASSES.fit, x is sparse", lambda: CLASSES.condition(SPARSE, LABELS)),
    ("CLASSES.fit, y is short", lambda: CLASSES.condition(X, LABELS[:5])),
    ("CLASSES.fit, noise is an array", lambda: CLASSES.condition(X, LABELS, noise=Y.numpy())),
    ("CLASSES.update, x is sparse", lambda: CLASSES.update(SPARSE, LABELS)),
    ("CLASSES.update, y is short", lambda: CLASSES.update(X, LABELS[:5])),
    ("CLASSES.update, noise is a string", lambda: CLASSES.update(X, LABELS, noise="a")),
    ("CLASSES.posterior, x is sparse", lambda: CLASSES.posterior(SPARSE)),
    ("CLASSES.posterior, operator is a tensor", lambda: CLASSES.posterior(X, operator=X)),
    ("CLASSES.sample_functions, num_functions is NaN", lambda: CLASSES.sample_functions(math.nan)),
    ("CLASS_DRAW, x is NaN", lambda: CLASS_DRAW(NANS)),
    ("FIELD.fit, x is sparse", lambda: FIELD.condition(SPARSE, X)),
    ("FIELD.fit, y is sparse", lambda: FIELD.condition(X, SPARSE)),
    ("FIELD.fit, noise is sparse", lambda: FIELD.condition(X, X, noise=Y.to_sparse())),
    ("FIELD.update, x is sparse", lambda: FIELD.update(SPARSE, X)),
    ("FIELD.update, y is NaN", lambda: FIELD.update(X, NANS)),
    ("FIELD.update, noise is a list", lambda: FIELD.update(X, X, noise=[1.0])),
    ("FIELD.posterior, x is sparse", lambda: FIELD.posterior(SPARSE)),
    ("FIELD.posterior, operator is a string", lambda: FIELD.posterior(X, operator="a")),
    ("FIELD.sample_functions, num_functions is zero", lambda: FIELD.sample_functions(0)),
    ("FIELD_DRAW, x is NaN", lambda: FIELD_DRAW(NANS)),
    ("GP.resample, generator is NumPy's", lambda: GP.resample(np.random.default_rng(0))),
    ("LocalizedMaclaurinGP, kernel is None", lambda: models.LocalizedMaclaurinGP(None, GAUSSIAN, 8)),
    ("LocalizedMaclaurinGP, likelihood is None", lambda: models.LocalizedMaclaurinGP(RBF, None, 8)),
    ("LocalizedMaclaurinGP, num_features is a list", lambda: models.LocalizedMaclaurinGP(RBF, GAUSSIAN, [8])),
    ("LocalizedMaclaurinGP, threshold is True", lambda: models.LocalizedMaclaurinGP(RBF, GAUSSIAN, 8, threshold=True)),
    ("LocalizedMaclaurinGP, centers is a number", lambda: models.LocalizedMaclaurinGP(RBF, GAUSSIAN, 8, centers=0)),
    ("LocalizedMaclaurinGP, seed is infinite", lambda: models.LocalizedMaclaurinGP(RBF, GAUSSIAN, 8, seed=math.inf)),
    ("LocalizedMaclaurinGP, seed is a half", lambda: models.LocalizedMaclaurinGP(RBF, GAUSSIAN, 8, seed=1.5)),
    ("LocalizedMaclaurinGP, seed is NaN", lambda: models.LocalizedMaclaurinGP(RBF, GAUSSIAN, 8, seed=math.nan)),
    ("LocalizedMaclaurinGP: a tensor", lambda: models.LocalizedMaclaurinGP(RBF, GAUSSIAN, 8, seed=torch.tensor(1))),
    ("LocalizedMaclaurinGP, seed is True", lambda: models.LocalizedMaclaurinGP(RBF, GAUSSIAN, 8, seed=True)),
    ("LocalizedMaclaurinGP, seed is negative", lambda: models.LocalizedMaclaurinGP(RBF, GAUSSIAN, 8, seed=-1)),
    ("LOCAL.fit, x is sparse", lambda: LOCAL.condition(SPARSE, Y)),
    ("LOCAL.fit, y is empty", lambda: LOCAL.condition(X, Y[:0])),
    ("LOCAL.posterior, x is sparse", lambda: LOCAL.posterior(SPARSE)),
    ("VectorLeastSquares, kernel is a tensor", lambda: models.VectorLeastSquares(X, regularization=0.001)),
    ("VectorLeastSquares, regularization is True", lambda: models.VectorLeastSquares(K, regularization=True)),
    ("VectorLeastS: no rows", lambda: models.VectorLeastSquares(K, regularization=0.001, output_operator=NO_ROWS)),
    ("VectorLeastS: True", lambda: models.VectorLeastSquares(K, regularization=0.001, manifold_regularization=True)),
    ("VectorLeastSquares, solver is a number", lambda: models.VectorLeastSquares(K, regularization=0.001, solver=0)),
    ("VectorLeastSquares: True", lambda: models.VectorLeastSquares(K, regularization=0.001, tolerance=True)),
    ("VectorLeastSquares: complex", lambda: models.VectorLeastSquares(K, regularization=1e-3, max_iterations=1j)),
    ("SQUARES.fit, x is sparse", lambda: SQUARES.fit(SPARSE, Y)),
    ("SQUARES.fit, y is empty", lambda: SQUARES.fit(X, Y[:0])),
    ("SQUARES.fit, unlabeled is sparse", lambda: SQUARES.fit(X, Y, unlabeled=SPARSE)),
    ("SQUARES.fit, laplacian: wrong d", lambda: SQUARES.fit(X, Y, laplacian=WIDE)),
    ("SQUARES.with_regularization, regularization is True", lambda: SQUARES.with_regularization(True, None)),
    ("SQUARES.with_regularization: negative", lambda: SQUARES.with_regularization(1e-3, -1.0)),
    ("SQUARES.predict, x is sparse", lambda: SQUARES.predict(SPARSE)),
    ("SQUARES.predict, operator is a number", lambda: SQUARES.predict(X, operator=0)),
    ("knn_laplacian, x is sparse", lambda: models.knn_laplacian(SPARSE, 2)),
    ("knn_laplacian, neighbors is a list", lambda: models.knn_laplacian(X, [8])),
    ("knn_laplacian, lengthscale is two numbers", lambda: models.knn_laplacian(X, 2, lengthscale=torch.ones(2))),
    ("knn_laplacian, is_normalized is a string", lambda: models.knn_laplacian(X, 2, is_normalized="no")),
    ("task_columns, y is short", lambda: models.task_columns(Y[:5], LABELS, 3)),
    ("task_columns, tasks is meta", lambda: models.task_columns(Y, LABELS.to("meta"), 3)),
    ("task_columns, num_tasks is 2^40", lambda: models.task_columns(Y, LABELS, 2**40)),
    ("task_columns, num_tasks is zero", lambda: models.task_columns(Y, LABELS, 0)),
]

SIMPLEX_CALLS = [
    ("simplex_code, num_classes is 2^40", lambda: simplex.simplex_code(2**40)),
    ("simplex_code, num_classes is a half", lambda: simplex.simplex_code(1.5)),
    ("simplex_code, dtype is integers", lambda: simplex.simplex_code(3, dtype=torch.int64)),
    ("encode, labels is meta", lambda: simplex.encode(LABELS.to("meta"), 3)),
    ("encode, num_classes is True", lambda: simplex.encode(LABELS, True)),
    ("encode, dtype is a string", lambda: simplex.encode(LABELS, 3, dtype="float64")),
    ("decode, values is sparse", lambda: simplex.decode(SPARSE)),
]

LIKELIHOODS_CALLS = [
    ("targets of DirichletClassi: meta", lambda: likelihoods.DirichletClassificationLikelihood(LABELS.to("meta"))),
    ("targets of DirichletClassi: sparse", lambda: likelihoods.DirichletClassificationLikelihood(LABELS.to_sparse())),
    ("DirichletCla: a list", lambda: likelihoods.DirichletClassificationLikelihood(LABELS, alpha_epsilon=[1.0])),
    ("DirichletCla: two", lambda: likelihoods.DirichletClassificationLikelihood(LABELS, learn_additional_noise=2)),
    ("DirichletCla: 2^40", lambda: likelihoods.DirichletClassificationLikelihood(LABELS, num_classes=2**40)),
    ("DirichletCla: labels of 2^40", lambda: likelihoods.DirichletClassificationLikelihood(LABELS + 2**40)),
    ("DirichletCla: infinite", lambda: likelihoods.DirichletClassificationLikelihood(LABELS, num_classes=math.inf)),
    ("DirichletCla dtype: integers", lambda: likelihoods.DirichletClassificationLikelihood(LABELS, dtype=torch.int64)),
    ("dtype of DirichletClassi: a number", lambda: likelihoods.DirichletClassificationLikelihood(LABELS, dtype=0)),
    ("DIRICHLET.set_alpha_epsilon, alpha_epsilon is a list", lambda: DIRICHLET.set_alpha_epsilon([1.0])),
    ("DIRICHLET.set_alpha_epsilon, alpha_epsilon is two numbers", lambda: DIRICHLET.set_alpha_epsilon(torch.ones(2))),
    ("DIRICHLET.class_probabilities, latent is a number", lambda: DIRICHLET.class_probabilities(0)),
    ("DIRICHLET.class_probabilities, latent is a tensor", lambda: DIRICHLET.class_probabilities(X)),
    ("DIRICHLET.cl num_samples: True", lambda: DIRICHLET.class_probabilities(CLASSES.posterior(X), num_samples=True)),
    ("DIRICHLET.cl: NaN", lambda: DIRICHLET.class_probabilities(CLASSES.posterior(X), num_samples=math.nan)),
    ("DIRICHLET.cl generator: a number", lambda: DIRICHLET.class_probabilities(CLASSES.posterior(X), generator=0)),
    ("DIRICHLET.cl generator: a string", lambda: DIRICHLET.class_probabilities(CLASSES.posterior(X), generator="a")),
    ("DIRICHLET.select_alpha_epsilon, model is a tensor", lambda: DIRICHLET.select_alpha_epsilon(X, X, LABELS)),
    ("DIRICHLET.select_alpha_epsilon, model is None", lambda: DIRICHLET.select_alpha_epsilon(None, X, LABELS)),
    ("DIRICHLET.select_alpha_epsilon, x: no rows", lambda: DIRICHLET.select_alpha_epsilon(CLASSES, NO_ROWS, LABELS)),
    ("DIRICHLET.select_alpha_epsilon, x is sparse", lambda: DIRICHLET.select_alpha_epsilon(CLASSES, SPARSE, LABELS)),
    ("DIRICHLET.select_alpha_epsilon, labels is empty", lambda: DIRICHLET.select_alpha_epsilon(CLASSES, X, LABELS[:0])),
    ("DIRICHLET.select_alpha_epsilon, labels is short", lambda: DIRICHLET.select_alpha_epsilon(CLASSES, X, LABELS[:5])),
    ("DIRICHLET.select_alpha_epsilon, grid is 0", lambda: DIRICHLET.select_alpha_epsilon(CLASSES, X, LABELS, grid=0)),
    ("DIRICHLET.select_alpha_epsilon: str", lambda: DIRICHLET.select_alpha_epsilon(CLASSES, X, LABELS, grid=("a",))),
    ("DIRICHLET.se num_samples: a list", lambda: DIRICHLET.select_alpha_epsilon(CLASSES, X, LABELS, num_samples=[8])),
    ("DIRICHLET.select_alpha_epsilon: negative", lambda: DIRICHLET.select_alpha_epsilon(CLASSES, X, LABELS, seed=-1)),
    ("seed of DIRICHLET.selec: too large", lambda: DIRICHLET.select_alpha_epsilon(CLASSES, X, LABELS, seed=2**70)),
    ("DIRICHLET.select_alpha_epsilon: a string", lambda: DIRICHLET.select_alpha_epsilon(CLASSES, X, LABELS, seed="a")),
    ("DIRICHLET.select_alpha_epsilon: a list", lambda: DIRICHLET.select_alpha_epsilon(CLASSES, X, LABELS, seed=[0])),
    ("seed of DIRICHLET.selec: infinite", lambda: DIRICHLET.select_alpha_epsilon(CLASSES, X, LABELS, seed=math.inf)),
    ("DIRICHLET.select_alpha_epsilon: a half", lambda: DIRICHLET.select_alpha_epsilon(CLASSES, X, LABELS, seed=1.5)),
    ("noise of MultitaskFixedN: sparse", lambda: likelihoods.MultitaskFixedNoiseGaussianLikelihood(SPARSE)),
    ("MultitaskFixedNoiseGaussianLikelihood: meta", lambda: likelihoods.MultitaskFixedNoiseGaussianLikelihood(META)),
]

OPERATORS_CALLS = [
    ("Value() / 0", lambda: VALUE / 0),
    ("Value() / 0.0", lambda: VALUE / 0.0),
    ("Value() / False", lambda: VALUE / False),
    ("Value() / NaN", lambda: VALUE / math.nan),
    ("Value() / None", lambda: VALUE / None),
    ("Value() / Value()", lambda: VALUE / VALUE),
    ("1 / Value()", lambda: 1 / VALUE),
    ("Value() + 1", lambda: VALUE + 1),
    ("1 + Value()", lambda: 1 + VALUE),
    ("Value() + None", lambda: VALUE + None),
    ("Value() + 'a'", lambda: VALUE + "a"),
    ("sum of operators from 0", lambda: sum([VALUE, VALUE])),
    ("Value() - 1", lambda: VALUE - 1),
    ("1 - Value()", lambda: 1 - VALUE),
    ("Value() - a class", lambda: VALUE - operators.Gradient),
    ("Value() * 'a'", lambda: VALUE * "a"),
    ("'a' * Value()", lambda: "a" * VALUE),
    ("Value() * NaN", lambda: VALUE * math.nan),
    ("Value() * infinity", lambda: VALUE * math.inf),
    ("Value() * True", lambda: VALUE * True),
    ("Value() * None", lambda: VALUE * None),
    ("Value() * a list", lambda: VALUE * [1.0]),
    ("Value() * two numbers", lambda: VALUE * torch.ones(2)),
    ("Value() * 1j", lambda: VALUE * 1j),
    ("Value() * Value()", lambda: VALUE * VALUE),
    ("Value() @ 2", lambda: VALUE @ 2),
    ("Value() @ None", lambda: VALUE @ None),
    ("2 @ Value()", lambda: 2 @ VALUE),
    ("Stacked of a class", lambda: operators.Stacked(operators.Value)),
    ("Stacked of a list", lambda: operators.Stacked([VALUE])),
    ("Partial of a half", lambda: operators.Partial(0.5)),
    ("Partial of a negative number", lambda: operators.Partial(0, -1)),
    ("Partial of a list", lambda: operators.Partial([0, 1])),
    ("a component that is not there", lambda: operators.Component(2).matrix(2, 2)),
    ("a coordinate that is not there", lambda: operators.Partial(2).matrix(2, 1)),
    ("the vorticity in space", lambda: operators.Vorticity().matrix(3, 3)),
    ("the curl in the plane", lambda: operators.Curl().matrix(2, 2)),
    ("the divergence of a function", lambda: operators.Divergence().matrix(2, 1)),
    ("a rotated gradient of a field", lambda: operators.RotatedGradient().matrix(2, 2)),
    ("the matrix of a potential", lambda: operators.Potential().matrix(2, 2)),
    ("a sum of unequal operators", lambda: (VALUE + operators.Gradient()).matrix(2, 1)),
    ("Component, index is True", lambda: operators.Component(True)),
    ("Partial, coordinates is negative", lambda: operators.Partial(-1)),
    ("Stacked, operators is None", lambda: operators.Stacked(None)),
    ("Component(0).matrix, input_dim is infinite", lambda: operators.Component(0).matrix(math.inf, 1)),
    ("Component(0).matrix, components is a list", lambda: operators.Component(0).matrix(2, [8])),
    ("Gradient().matrix, input_dim is a list", lambda: operators.Gradient().matrix([8], 1)),
    ("Gradient().matrix, components is two numbers", lambda: operators.Gradient().matrix(2, torch.tensor([1, 2]))),
    ("Divergence().symbol, w is a number", lambda: operators.Divergence().symbol(0, 2)),
    ("Divergence().symbol: two numbers", lambda: operators.Divergence().symbol(torch.rand(4, 2), torch.tensor([1, 2]))),
    ("Potential().symbol, w is None", lambda: operators.Potential().symbol(None, 2)),
    ("Potential().symbol: two numbers", lambda: operators.Potential().symbol(torch.rand(4, 2), torch.tensor([1, 2]))),
    ("Gradient().of_constant, constants is a string", lambda: operators.Gradient().of_constant("a", 2)),
    ("Gradient().of_constant, input_dim is True", lambda: operators.Gradient().of_constant(torch.ones(1), True)),
]

SELECTION_CALLS = [
    ("rank_methods, kernel is a number", lambda: selection.rank_methods(0, 4, X, methods=["fourier"])),
    ("rank_methods, kernel is a tensor", lambda: selection.rank_methods(X, 4, X, methods=["fourier"])),
    ("rank_methods, ARD of another dimension", lambda: selection.rank_methods(RBFKernel(ard_num_dims=9), 8, X)),
    ("best_method, ARD of another dimension", lambda: selection.best_method(RBFKernel(ard_num_dims=9), 8, X)),
    (
        "suggest_num_features, ARD of another dimension",
        lambda: selection.suggest_num_features(RBFKernel(ard_num_dims=9), X),
    ),
    ("rank_methods, num_features is a string", lambda: selection.rank_methods(RBF, "8", X)),
    ("rank_methods, num_features is 10^12", lambda: selection.rank_methods(RBF, 10**12, X)),
    ("rank_methods, num_features is a half", lambda: selection.rank_methods(RBF, 1.5, X)),
    ("rank_methods, train_inputs is meta", lambda: selection.rank_methods(RBF, 4, META)),
    ("rank_methods, train_inputs is sparse", lambda: selection.rank_methods(RBF, 4, SPARSE)),
    ("rank_methods, methods is a tensor", lambda: selection.rank_methods(RBF, 4, X, methods=X)),
    ("rank_methods, methods is empty", lambda: selection.rank_methods(RBF, 4, X, methods=[])),
    ("rank_methods, seed is NaN", lambda: selection.rank_methods(RBF, 4, X, seed=math.nan)),
    ("rank_methods, seed is a tensor", lambda: selection.rank_methods(RBF, 4, X, seed=torch.tensor(1))),
    ("rank_methods, seed is True", lambda: selection.rank_methods(RBF, 4, X, seed=True)),
    ("rank_methods, seed is negative", lambda: selection.rank_methods(RBF, 4, X, seed=-1)),
    ("rank_methods, seed is a string", lambda: selection.rank_methods(RBF, 4, X, seed="a")),
    ("rank_methods, seed is a list", lambda: selection.rank_methods(RBF, 4, X, seed=[0])),
    ("best_method, kernel is None", lambda: selection.best_method(None, 4, X[:4])),
    ("best_method, kernel is a string", lambda: selection.best_method("a", 4, X[:4])),
    ("best_method, num_features is a half", lambda: selection.best_method(RBF, 1.5, X[:4])),
    ("best_method, num_features is zero", lambda: selection.best_method(RBF, 0, X[:4])),
    ("best_method, train_inputs is sparse", lambda: selection.best_method(RBF, 4, SPARSE)),
    ("best_method, train_inputs is meta", lambda: selection.best_method(RBF, 4, META)),
    ("best_method, seed is a list", lambda: selection.best_method(RBF, 4, X[:4], seed=[0])),
    ("best_method, seed is infinite", lambda: selection.best_method(RBF, 4, X[:4], seed=math.inf)),
    ("best_method, seed is a half", lambda: selection.best_method(RBF, 4, X[:4], seed=1.5)),
    ("best_method, seed is NaN", lambda: selection.best_method(RBF, 4, X[:4], seed=math.nan)),
    ("best_method, seed is a tensor", lambda: selection.best_method(RBF, 4, X[:4], seed=torch.tensor(1))),
    ("best_method, seed is True", lambda: selection.best_method(RBF, 4, X[:4], seed=True)),
    ("suggest_num_features, kernel is None", lambda: selection.suggest_num_features(None, X, 0.5)),
    ("suggest_num_features, kernel is a string", lambda: selection.suggest_num_features("a", X, 0.5)),
    ("suggest_num_features, train_inputs is sparse", lambda: selection.suggest_num_features(RBF, SPARSE, 0.5)),
    ("suggest_num_features, train_inputs is meta", lambda: selection.suggest_num_features(RBF, META, 0.5)),
    ("suggest_num_features, tolerance is a list", lambda: selection.suggest_num_features(RBF, X, [1.0])),
    ("suggest_num_features, tolerance is two numbers", lambda: selection.suggest_num_features(RBF, X, torch.ones(2))),
    ("suggest_num_features, method is a number", lambda: selection.suggest_num_features(RBF, X, 0.5, method=0)),
    ("suggest_num_features, method is a list", lambda: selection.suggest_num_features(RBF, X, 0.5, method=[])),
    ("suggest_num_features, seed is negative", lambda: selection.suggest_num_features(RBF, X, 0.5, seed=-1)),
    ("suggest_num_features, seed is too large", lambda: selection.suggest_num_features(RBF, X, 0.5, seed=2**70)),
    ("suggest_num_features, seed is a string", lambda: selection.suggest_num_features(RBF, X, 0.5, seed="a")),
    ("suggest_num_features, seed is a list", lambda: selection.suggest_num_features(RBF, X, 0.5, seed=[0])),
    ("suggest_num_features, seed is infinite", lambda: selection.suggest_num_features(RBF, X, 0.5, seed=math.inf)),
    ("suggest_num_features, seed is a half", lambda: selection.suggest_num_features(RBF, X, 0.5, seed=1.5)),
    ("predicted_error, kernel is a tensor", lambda: selection.predicted_error(X, X)),
    ("predicted_error, kernel is None", lambda: selection.predicted_error(None, X)),
    ("predicted_error, x is sparse", lambda: selection.predicted_error(K, SPARSE)),
    ("predicted_error, x is meta", lambda: selection.predicted_error(K, META)),
    ("predicted_error, seed is negative", lambda: selection.predicted_error(K, X, seed=-1)),
    ("predicted_error, seed is too large", lambda: selection.predicted_error(K, X, seed=2**70)),
    ("predicted_error, seed is a string", lambda: selection.predicted_error(K, X, seed="a")),
    ("predicted_error, seed is a list", lambda: selection.predicted_error(K, X, seed=[0])),
    ("predicted_error, seed is infinite", lambda: selection.predicted_error(K, X, seed=math.inf)),
    ("predicted_error, seed is a half", lambda: selection.predicted_error(K, X, seed=1.5)),
]

ALLOCATION_CALLS = [
    ("optimized_maclaurin, x is sparse", lambda: allocation.optimized_maclaurin(SPARSE, 12, COEFFICIENTS)),
    ("optimized_maclaurin, num_features is a half", lambda: allocation.optimized_maclaurin(X, 1.5, COEFFICIENTS)),
    ("optimized_maclaurin, coefficients is booleans", lambda: allocation.optimized_maclaurin(X, 12, Y > 0.5)),
    ("optimized_maclaurin: a string", lambda: allocation.optimized_maclaurin(X, 12, COEFFICIENTS, function="a")),
    ("optimized_ma: a string", lambda: allocation.optimized_maclaurin(X, 12, COEFFICIENTS, is_gaussian="no")),
    ("optimized_maclaurin, sketch is a number", lambda: allocation.optimized_maclaurin(X, 12, COEFFICIENTS, sketch=0)),
    ("optimized_maclaurin, form is None", lambda: allocation.optimized_maclaurin(X, 12, COEFFICIENTS, form=None)),
    ("optimized_maclaurin: infinite", lambda: allocation.optimized_maclaurin(X, 12, COEFFICIENTS, min_degree=math.inf)),
    ("optimized_ma num_pairs: a string", lambda: allocation.optimized_maclaurin(X, 12, COEFFICIENTS, num_pairs="8")),
    ("allocate, x is sparse", lambda: allocation.allocate(SPARSE, 12, COEFFICIENTS)),
    ("allocate, num_features is zero", lambda: allocation.allocate(X, 0, COEFFICIENTS)),
    ("allocate, coefficients is sparse", lambda: allocation.allocate(X, 12, Y.to_sparse())),
    ("allocate, function is a string", lambda: allocation.allocate(X, 12, COEFFICIENTS, function="a")),
    ("allocate, is_gaussian is two", lambda: allocation.allocate(X, 12, COEFFICIENTS, is_gaussian=2)),
    ("allocate, sketch is foo", lambda: allocation.allocate(X, 12, COEFFICIENTS, sketch="foo")),
    ("allocate, form is None", lambda: allocation.allocate(X, 12, COEFFICIENTS, form=None)),
    ("allocate, min_degree is negative", lambda: allocation.allocate(X, 12, COEFFICIENTS, min_degree=-1)),
    ("allocate, num_pairs is a half", lambda: allocation.allocate(X, 12, COEFFICIENTS, num_pairs=1.5)),
    ("allocate, generator is a number", lambda: allocation.allocate(X, 12, COEFFICIENTS, generator=0)),
    ("random_maclaurin, input_dim is infinite", lambda: allocation.random_maclaurin(math.inf, 12, COEFFICIENTS)),
    ("random_maclaurin, num_features is NaN", lambda: allocation.random_maclaurin(3, math.nan, COEFFICIENTS)),
    ("random_maclaurin, coefficients is booleans", lambda: allocation.random_maclaurin(3, 12, Y > 0.5)),
    ("random_maclaurin, ratio is complex", lambda: allocation.random_maclaurin(3, 12, COEFFICIENTS, ratio=1j)),
    ("random_maclaurin: None", lambda: allocation.random_maclaurin(3, 12, COEFFICIENTS, is_gaussian=None)),
    ("random_maclaurin, sketch is a list", lambda: allocation.random_maclaurin(3, 12, COEFFICIENTS, sketch=[])),
    ("random_maclaurin, form is a number", lambda: allocation.random_maclaurin(3, 12, COEFFICIENTS, form=0)),
    ("random_maclaurin, generator is a number", lambda: allocation.random_maclaurin(3, 12, COEFFICIENTS, generator=0)),
]

BOUNDS_CALLS = [
    ("Minh, input_dim is 0", lambda: bounds.minh_bound(**MINH | {"input_dim": 0})),
    ("Minh, input_dim is '3'", lambda: bounds.minh_bound(**MINH | {"input_dim": "3"})),
    ("Minh, diameter is -1.0", lambda: bounds.minh_bound(**MINH | {"diameter": -1.0})),
    ("Minh, slope is math.nan", lambda: bounds.minh_bound(**MINH | {"slope": math.nan})),
    ("Minh, slope is None", lambda: bounds.minh_bound(**MINH | {"slope": None})),
    ("Minh, largest_norm is 0.0", lambda: bounds.minh_bound(**MINH | {"largest_norm": 0.0})),
    ("Minh, num_features is 7", lambda: bounds.minh_bound(**MINH).failure_probability(7, 0.1)),
    ("Minh, num_features is 1.5", lambda: bounds.minh_bound(**MINH).failure_probability(1.5, 0.1)),
    ("Minh, epsilon is math.inf", lambda: bounds.minh_bound(**MINH).failure_probability(100, math.inf)),
    ("Minh, epsilon is True", lambda: bounds.minh_bound(**MINH).failure_probability(100, True)),
    ("Brault, input_dim is None", lambda: bounds.brault_bounded_bound(**BRAULT | {"input_dim": None})),
    ("Brault, diameter is 'a'", lambda: bounds.brault_bounded_bound(**BRAULT | {"diameter": "a"})),
    ("Brault, slope is 0.0", lambda: bounds.brault_bounded_bound(**BRAULT | {"slope": 0.0})),
    ("Brault, variance is -1.0", lambda: bounds.brault_bounded_bound(**BRAULT | {"variance": -1.0})),
    (
        "Brault, largest_error is math.nan",
        lambda: bounds.brault_bounded_bound(**BRAULT | {"largest_error": math.nan}),
    ),
    (
        "Brault, intrinsic_dim is 0.5",
        lambda: bounds.brault_bounded_bound(**BRAULT | {"intrinsic_dim": 0.5}),
    ),
    ("Brault, num_features is 0", lambda: bounds.brault_bounded_bound(**BRAULT).failure_probability(0, 0.1)),
    ("Brault, epsilon is [0.1]", lambda: bounds.brault_bounded_bound(**BRAULT).failure_probability(100, [0.1])),
    ("curl_free_constants, input_dim is a string", lambda: bounds.curl_free_constants("8", 1.0)),
    ("curl_free_constants, lengthscale is zero", lambda: bounds.curl_free_constants(3, 0.0)),
    ("curl_free_constants, bounded is two", lambda: bounds.curl_free_constants(3, 1.0, bounded=2)),
    ("divergence_free_constants, input_dim is zero", lambda: bounds.divergence_free_constants(0, 1.0)),
    ("divergence_free_constants: two numbers", lambda: bounds.divergence_free_constants(3, torch.ones(2))),
    ("divergence_free_constants, bounded is a string", lambda: bounds.divergence_free_constants(3, 1.0, bounded="no")),
    ("decomposable_constants, coregionalization is meta", lambda: bounds.decomposable_constants(META, 1.0)),
    ("decomposable_constants, mean_norm is True", lambda: bounds.decomposable_constants(EYE, True)),
    ("decomposable_constants, variance is a string", lambda: bounds.decomposable_constants(EYE, 1.0, variance="a")),
    ("derivative_n: empty", lambda: bounds.derivative_bound((), (0, 0), diameter=1.0)),
    ("derivative_n: None", lambda: bounds.derivative_bound((1, 0), None, diameter=1.0)),
    ("fourier_variance, kernel is sparse", lambda: bounds.fourier_variance(EYE.to_sparse(), torch.tensor([0.5]))),
    ("fourier_variance, kernel_at_double is None", lambda: bounds.fourier_variance(torch.tensor([0.5]), None)),
    ("fourier_bound, num_features is True", lambda: bounds.fourier_bound().failure_probability(True, 0.1)),
    ("fourier_bound, epsilon is a string", lambda: bounds.fourier_bound().failure_probability(100, "a")),
    ("fourier_bound, variance is complex", lambda: bounds.fourier_bound(variance=1j)),
    ("fourier_bound, epsilon is infinite", lambda: bounds.fourier_bound().num_features(math.inf, 0.05)),
    ("fourier_bound, delta is True", lambda: bounds.fourier_bound().num_features(0.1, True)),
    ("fourier_bound, variance is sparse", lambda: bounds.fourier_bound(EYE.to_sparse())),
    ("operator_fourier_variance: obj", lambda: bounds.operator_fourier_variance(RBF, torch.tensor([0.5]), EYE)),
    ("operator_fourier_variance: a", lambda: bounds.operator_fourier_variance(torch.tensor([0.5]), "a", EYE)),
    ("operator_fou: meta", lambda: bounds.operator_fourier_variance(torch.tensor([0.5]), torch.tensor([0.5]), META)),
    ("rademacher_bound, x is sparse", lambda: bounds.rademacher_bound(SPARSE, X, degree=2)),
    ("rademacher_bound, y is sparse", lambda: bounds.rademacher_bound(X, SPARSE, degree=2)),
    ("rademacher_bound, degree is a half", lambda: bounds.rademacher_bound(X, X, degree=1.5)),
    ("rademacher_bound, epsilon is infinite", lambda: bounds.rademacher_bound(X, X, 2).num_features(math.inf, 0.05)),
]

SAMPLING_CALLS = [
    ("rademacher, shape is neg", lambda: sampling.rademacher((-1,), G)),
    ("rademacher, generator is a number", lambda: sampling.rademacher((3,), 0)),
    ("fourth_roots, shape is half", lambda: sampling.fourth_roots((1.5,), G)),
    ("fourth_roots, generator is NumPy's", lambda: sampling.fourth_roots((3,), np.random.default_rng(0))),
    ("gaussian, shape is a", lambda: sampling.gaussian("a", G)),
    ("gaussian, generator is NumPy's", lambda: sampling.gaussian((3,), np.random.default_rng(0))),
    ("complex_gaussian, shape is a", lambda: sampling.complex_gaussian("a", G)),
    ("complex_gaussian, generator is a number", lambda: sampling.complex_gaussian((3,), 0)),
    ("uniform, shape is neg", lambda: sampling.uniform((-1,), G)),
    ("uniform, generator is a number", lambda: sampling.uniform((3,), 0)),
    ("sobol, size is zero", lambda: sampling.sobol(0, 3, G)),
    ("sobol, dim is too large", lambda: sampling.sobol(4, 30000, G)),
    ("sobol, generator is NumPy's", lambda: sampling.sobol(4, 3, np.random.default_rng(0))),
    ("chi, degrees is two numbers", lambda: sampling.chi(torch.ones(2), (3,), G)),
    ("chi, shape is None", lambda: sampling.chi(2.0, None, G)),
    ("chi, generator is a number", lambda: sampling.chi(2.0, (3,), 0)),
    ("orthogonal_directions, size is zero", lambda: sampling.orthogonal_directions(0, 3, G)),
    ("orthogonal_directions, dim is None", lambda: sampling.orthogonal_directions(4, None, G)),
    ("orthogonal_directions: NumPy's", lambda: sampling.orthogonal_directions(4, 3, np.random.default_rng(0))),
    ("shuffled_copies, size is two numbers", lambda: sampling.shuffled_copies(torch.tensor([1, 2]), 3, G)),
    ("shuffled_copies, length is complex", lambda: sampling.shuffled_copies(4, 1j, G)),
    ("shuffled_copies, generator is a number", lambda: sampling.shuffled_copies(4, 3, 0)),
    ("stacked_permutations, size is zero", lambda: sampling.stacked_permutations(0, 3, G)),
    ("stacked_permutations, length is zero", lambda: sampling.stacked_permutations(4, 0, G)),
    ("stacked_permutations, generator is a string", lambda: sampling.stacked_permutations(4, 3, "a")),
]

LINALG_CALLS = [
    ("hadamard, order is two numbers", lambda: linalg.hadamard(torch.tensor([1, 2]))),
    ("hadamard, order is complex", lambda: linalg.hadamard(1j)),
    ("hadamard, dtype is integers", lambda: linalg.hadamard(4, dtype=torch.int64)),
    ("hadamard, dtype is a number", lambda: linalg.hadamard(4, dtype=0)),
    ("fwht, x is a number", lambda: linalg.fwht(0)),
    ("fwht, x is a scalar", lambda: linalg.fwht(torch.tensor(1.0))),
    ("fwht, dim is 1.5", lambda: linalg.fwht(torch.rand(4), dim=1.5)),
    ("fwht, dim is None", lambda: linalg.fwht(torch.rand(4), dim=None)),
    ("next_power_of_two, n is a string", lambda: linalg.next_power_of_two("8")),
    ("next_power_of_two, n is a half", lambda: linalg.next_power_of_two(1.5)),
    ("gram, features is None", lambda: linalg.gram(None, Y[:, None])),
    ("gram, features is a string", lambda: linalg.gram("a", Y[:, None])),
    ("gram, targets is sparse", lambda: linalg.gram(X, SPARSE)),
    ("gram, targets is meta", lambda: linalg.gram(X, META)),
    ("gram, weights is complex", lambda: linalg.gram(X, Y[:, None], weights=Y.cfloat())),
    ("gram, weights is short", lambda: linalg.gram(X, Y[:, None], weights=Y[:5])),
    ("gram, product_dtype is integers", lambda: linalg.gram(X, Y[:, None], product_dtype=torch.int64)),
    ("gram, product_dtype is a number", lambda: linalg.gram(X, Y[:, None], product_dtype=0)),
    ("cholesky, matrix is a number", lambda: linalg.cholesky(0)),
    ("cholesky, matrix is a scalar", lambda: linalg.cholesky(torch.tensor(1.0))),
    ("log_determinant, factor: wrong d", lambda: linalg.log_determinant(WIDE)),
    ("log_determinant, factor is infinite", lambda: linalg.log_determinant(INFINITE)),
    ("log_determin matrix: complex", lambda: linalg.log_determinant_and_quadratic(COMPLEX, torch.ones(3, 1).double())),
    ("log_determin matrix: one row", lambda: linalg.log_determinant_and_quadratic(ROW, torch.ones(3, 1).double())),
    ("log_determin cross: a scalar", lambda: linalg.log_determinant_and_quadratic(EYE.double(), torch.tensor(1.0))),
    ("log_determinant_and_quadratic, cross is None", lambda: linalg.log_determinant_and_quadratic(EYE.double(), None)),
]

STATISTICS_CALLS = [
    ("GramStatistics, num_features is two numbers", lambda: inference.GramStatistics(torch.tensor([1, 2]), 1, 1)),
    ("GramStatistics, num_features is complex", lambda: inference.GramStatistics(1j, 1, 1)),
    ("GramStatistics, num_features is None", lambda: inference.GramStatistics(None, 1, 1)),
    ("GramStatistics, num_features is a string", lambda: inference.GramStatistics("8", 1, 1)),
    ("GramStatistics, num_features is a half", lambda: inference.GramStatistics(1.5, 1, 1)),
    ("GramStatistics, num_targets is a string", lambda: inference.GramStatistics(3, "8", 1)),
    ("GramStatistics, num_targets is a half", lambda: inference.GramStatistics(3, 1.5, 1)),
    ("GramStatistics, num_targets is zero", lambda: inference.GramStatistics(3, 0, 1)),
    ("GramStatistics, num_targets is negative", lambda: inference.GramStatistics(3, -1, 1)),
    ("GramStatistics, num_targets is True", lambda: inference.GramStatistics(3, True, 1)),
    ("GramStatistics, num_groups is zero", lambda: inference.GramStatistics(3, 1, 0)),
    ("GramStatistics, num_groups is negative", lambda: inference.GramStatistics(3, 1, -1)),
    ("GramStatistics, num_groups is True", lambda: inference.GramStatistics(3, 1, True)),
    ("GramStatistics, num_groups is NaN", lambda: inference.GramStatistics(3, 1, math.nan)),
    ("GramStatistics, num_groups is infinite", lambda: inference.GramStatistics(3, 1, math.inf)),
    ("GramStatistics, is_complex is None", lambda: inference.GramStatistics(3, 1, 1, is_complex=None)),
    ("GramStatistics, is_complex is two", lambda: inference.GramStatistics(3, 1, 1, is_complex=2)),
    ("GramStatistics, is_complex is a string", lambda: inference.GramStatistics(3, 1, 1, is_complex="no")),
    ("GramStatistics: None", lambda: inference.GramStatistics(3, 1, 1, has_complex_targets=None)),
    ("GramStatistics, has_complex_targets is two", lambda: inference.GramStatistics(3, 1, 1, has_complex_targets=2)),
    ("GramStatistics: a string", lambda: inference.GramStatistics(3, 1, 1, has_complex_targets="no")),
    ("STATISTICS.merge, other is a tensor", lambda: STATISTICS.merge(X)),
    ("STATISTICS.merge, other is None", lambda: STATISTICS.merge(None)),
    ("STATISTICS.merge, other is a string", lambda: STATISTICS.merge("a")),
    ("STATISTICS.merge, other is a number", lambda: STATISTICS.merge(0)),
    ("GramStatistics.concatenate, parts is empty", lambda: inference.GramStatistics.concatenate([])),
    ("GramStatistics.concatenate, parts is a number", lambda: inference.GramStatistics.concatenate(0)),
    ("GramStatistics.concatenate, parts is None inside", lambda: inference.GramStatistics.concatenate([None])),
    ("GramStatistics.concatenate, parts is a tensor", lambda: inference.GramStatistics.concatenate(X)),
    ("GramStatistics.concatenate, parts is None", lambda: inference.GramStatistics.concatenate(None)),
]

PLOTS_CALLS = [
    ("figure, rows is True", lambda: plots.figure(True, 1)),
    ("figure, columns is infinite", lambda: plots.figure(1, math.inf)),
    ("figure, width is None", lambda: plots.figure(1, 1, width=None)),
    ("figure, height is True", lambda: plots.figure(1, 1, height=True)),
    ("comparison, curves is None", lambda: plots.comparison(None)),
    ("comparison, exact is complex", lambda: plots.comparison({"a": plots.Curve([1, 2], [1, 2])}, exact=1j)),
    ("comparison, log_x is complex", lambda: plots.comparison({"a": plots.Curve([1, 2], [1, 2])}, log_x=1j)),
    ("comparison, ax is a number", lambda: plots.comparison({"a": plots.Curve([1, 2], [1, 2])}, ax=0)),
    ("vector_field, points: wrong d", lambda: plots.vector_field(WIDE, torch.rand(9, 2))),
    ("vector_field, velocity is booleans", lambda: plots.vector_field(torch.rand(9, 2), BOOLEAN)),
    ("vector_field, variance is a number", lambda: plots.vector_field(torch.rand(9, 2), torch.rand(9, 2), variance=0)),
    ("vector_field, limits is rev", lambda: plots.vector_field(torch.rand(9, 2), torch.rand(9, 2), limits=(2, 1))),
    ("vector_field, density is a list", lambda: plots.vector_field(torch.rand(9, 2), torch.rand(9, 2), density=[1.0])),
    ("vector_field, ax is a tensor", lambda: plots.vector_field(torch.rand(9, 2), torch.rand(9, 2), ax=X)),
    ("scalar_field, points is complex", lambda: plots.scalar_field(COMPLEX, torch.rand(9))),
    ("scalar_field, values is short", lambda: plots.scalar_field(torch.rand(9, 2), Y[:5])),
    ("scalar_field, levels is neg", lambda: plots.scalar_field(torch.rand(9, 2), torch.rand(9), levels=-1)),
    ("scalar_field, limits is one", lambda: plots.scalar_field(torch.rand(9, 2), torch.rand(9), limits=(1,))),
    ("scalar_field, colors is a tensor", lambda: plots.scalar_field(torch.rand(9, 2), torch.rand(9), colors=X)),
]

DATASETS_CALLS = [
    ("a data set with task foo", lambda: dataset(task="foo")),
    ("a data set with scaling foo", lambda: dataset(scaling="foo")),
    (
        "a data set of classes without their number",
        lambda: dataset(task="classification", y_train=LABELS, y_test=LABELS),
    ),
    ("a regression with classes", lambda: dataset(num_classes=3, y_train=LABELS, y_test=LABELS)),
    ("a data set of constants", lambda: dataset(y_train=torch.ones(12).double())),
    ("a data set with names for two outputs", lambda: dataset(outputs=("a", "b"))),
    ("a data set with inputs of different d", lambda: dataset(x_test=WIDE.double())),
    ("a study of a field of one output", lambda: study.run(DATA, kernel="helmholtz")),
    ("a study of a frame without a target", lambda: study.run([[1.0, 2.0]])),
    ("a study of a target of a data set", lambda: study.run(DATA, "y")),
    ("a study in a number", lambda: study.run(DATA, out=5)),
    ("a study that is resumed by a word", lambda: study.run(DATA, resume="yes")),
    ("load of a study that is not there", lambda: study.load("nowhere")),
    ("a study of a kernel that is none", lambda: study.run(DATA, kernel="polynomial:0")),
    ("a study of a method that is none", lambda: study.run(DATA, methods=["foo"])),
    ("a study of no methods", lambda: study.run(DATA, methods=[])),
    ("a study of a string of methods", lambda: study.run(DATA, methods="fourier")),
    ("a study of one number of features", lambda: study.run(DATA, num_features=8)),
    ("the output of a data set with one", lambda: datasets.load("diabetes", output="y")),
    ("a data set in a directory that is not there", lambda: datasets.load("yacht", "/nonexistent")),
    ("wind from a directory that is not there", lambda: datasets.load_wind("/nonexistent")),
    ("a window with its borders swapped", lambda: WIND.window((50.0, 20.0), (-60.0, -20.0))),
    ("a window with a pole", lambda: WIND.window((20.0, 90.0), (-60.0, -20.0))),
    ("a window without points", lambda: WIND.window((20.1, 20.2), (-60.0, -20.0))),
    ("labels for a simplex of fewer classes", lambda: simplex.encode(LABELS, 2)),
    ("a simplex of one class", lambda: simplex.simplex_code(1)),
    ("no values of alpha_epsilon", lambda: DIRICHLET.select_alpha_epsilon(CLASSES, X, LABELS, grid=())),
    ("alpha_epsilon for another model", lambda: DIRICHLET.select_alpha_epsilon(GP, X, LABELS)),
    ("no draws for class probabilities", lambda: DIRICHLET.class_probabilities(CLASSES.posterior(X), num_samples=0)),
    ("class probabilities of a regression", lambda: DIRICHLET.class_probabilities(GP.posterior(X))),
    ("negative noise variances", lambda: likelihoods.MultitaskFixedNoiseGaussianLikelihood(-torch.ones(12, 2))),
    ("the noise of a normal distribution", lambda: KNOWN_NOISE.marginal(NORMAL)),
    ("load, name is list", lambda: datasets.load(["diabetes"])),
    ("load, data_dir is 0", lambda: datasets.load("diabetes", data_dir=0.5)),
    ("load, output is 9", lambda: datasets.load("diabetes", output=9)),
    ("load_wind, data_dir is list", lambda: datasets.load_wind([])),
    ("WIND.window, lat is one", lambda: WIND.window((1.0,), (-60.0, -20.0))),
    ("WIND.window, lon is None", lambda: WIND.window((20.0, 50.0), None)),
    ("WIND.window, projection is None", lambda: WIND.window((20.0, 50.0), (-60.0, -20.0), projection=None)),
]

STUDY_CALLS = [
    ("exact_kernel, name is a number", lambda: study.exact_kernel(0)),
    ("default_methods, kernel is foo", lambda: study.default_methods("foo")),
    ("scale_inputs, train is booleans", lambda: scale_inputs(BOOLEAN, X, "unit")),
    ("scale_inputs, test: wrong d", lambda: scale_inputs(X, WIDE, "unit")),
    ("scale_inputs, scaling is a list", lambda: scale_inputs(X, X, [])),
    ("run, dataset is None", lambda: study.run(None)),
    ("run, kernel is a tensor", lambda: study.run(DATA, kernel=X)),
    ("run, methods is a number", lambda: study.run(DATA, methods=0)),
    ("run, num_features is 5", lambda: study.run(DATA, num_features=5)),
    ("run, num_seeds is None", lambda: study.run(DATA, num_seeds=None)),
    ("run, num_seeds is a string", lambda: study.run(DATA, num_seeds="8")),
    ("run, num_seeds is a half", lambda: study.run(DATA, num_seeds=1.5)),
    ("run, num_seeds is zero", lambda: study.run(DATA, num_seeds=0)),
    ("run, num_seeds is negative", lambda: study.run(DATA, num_seeds=-1)),
    ("run, num_seeds is True", lambda: study.run(DATA, num_seeds=True)),
    ("run, exact_limit is a list", lambda: study.run(DATA, exact_limit=[8])),
    ("run, scaling is a list", lambda: study.run(DATA, scaling=[])),
    ("run, progress is a string", lambda: study.run(DATA, progress="no")),
]

SUMS_CALLS = [
    ("update, x is None", lambda: STATISTICS.update(None, Y[:, None])),
    ("update, x is a string", lambda: STATISTICS.update("a", Y[:, None])),
    ("update, x is a list", lambda: STATISTICS.update([1.0], Y[:, None])),
    ("update, x is an array", lambda: STATISTICS.update(ARRAY, Y[:, None])),
    ("update, x is integers", lambda: STATISTICS.update(INTEGERS, Y[:, None])),
    ("update, x is NaN", lambda: STATISTICS.update(NANS, Y[:, None])),
    ("update, x is sparse", lambda: STATISTICS.update(SPARSE, Y[:, None])),
    ("update, x is meta", lambda: STATISTICS.update(META, Y[:, None])),
    ("update, x is complex", lambda: STATISTICS.update(COMPLEX, Y[:, None])),
    ("update, x is one row", lambda: STATISTICS.update(ROW, Y[:, None])),
    ("update, x is wrong d", lambda: STATISTICS.update(WIDE, Y[:, None])),
    ("update, x is infinite", lambda: STATISTICS.update(INFINITE, Y[:, None])),
    ("update, x is booleans", lambda: STATISTICS.update(BOOLEAN, Y[:, None])),
    ("update, x is a number", lambda: STATISTICS.update(0, Y[:, None])),
    ("update, x is a scalar", lambda: STATISTICS.update(torch.tensor(1.0), Y[:, None])),
    ("update, y is None", lambda: STATISTICS.update(X, None)),
    ("update, y is a string", lambda: STATISTICS.update(X, "a")),
    ("update, y is a list", lambda: STATISTICS.update(X, [1.0])),
    ("update, y is an array", lambda: STATISTICS.update(X, ARRAY)),
    ("update, y is integers", lambda: STATISTICS.update(X, INTEGERS)),
    ("update, y is NaN", lambda: STATISTICS.update(X, NANS)),
    ("update, y is no rows", lambda: STATISTICS.update(X, NO_ROWS)),
    ("update, y is sparse", lambda: STATISTICS.update(X, SPARSE)),
    ("update, y is meta", lambda: STATISTICS.update(X, META)),
    ("update, y is complex", lambda: STATISTICS.update(X, COMPLEX)),
    ("update, y is one row", lambda: STATISTICS.update(X, ROW)),
    ("update, y is wrong d", lambda: STATISTICS.update(X, WIDE)),
    ("update, y is infinite", lambda: STATISTICS.update(X, INFINITE)),
    ("update, y is booleans", lambda: STATISTICS.update(X, BOOLEAN)),
    ("update, y is a number", lambda: STATISTICS.update(X, 0)),
    ("update, y is a scalar", lambda: STATISTICS.update(X, torch.tensor(1.0))),
    ("update, weights is a string", lambda: STATISTICS.update(X, Y[:, None], weights="a")),
    ("update, weights is a list", lambda: STATISTICS.update(X, Y[:, None], weights=[1.0])),
    ("update, weights is an array", lambda: STATISTICS.update(X, Y[:, None], weights=Y.numpy())),
    ("update, weights is NaN", lambda: STATISTICS.update(X, Y[:, None], weights=Y * math.nan)),
    ("update, weights is empty", lambda: STATISTICS.update(X, Y[:, None], weights=Y[:0])),
    ("update, weights is sparse", lambda: STATISTICS.update(X, Y[:, None], weights=Y.to_sparse())),
    ("update, weights is meta", lambda: STATISTICS.update(X, Y[:, None], weights=Y.to("meta"))),
    ("update, weights is complex", lambda: STATISTICS.update(X, Y[:, None], weights=Y.cfloat())),
    ("update, weights is short", lambda: STATISTICS.update(X, Y[:, None], weights=Y[:5])),
    ("update, weights is a column", lambda: STATISTICS.update(X, Y[:, None], weights=Y[:, None])),
    ("update, weights is integers", lambda: STATISTICS.update(X, Y[:, None], weights=LABELS)),
    ("update, weights is a number", lambda: STATISTICS.update(X, Y[:, None], weights=0)),
    ("update, weights is infinite", lambda: STATISTICS.update(X, Y[:, None], weights=Y * math.inf)),
    ("update, weights is booleans", lambda: STATISTICS.update(X, Y[:, None], weights=Y > 0.5)),
    ("update, log_noise is a string", lambda: STATISTICS.update(X, Y[:, None], log_noise="a")),
    ("update, log_noise is a list", lambda: STATISTICS.update(X, Y[:, None], log_noise=[1.0])),
    ("update, log_noise is an array", lambda: STATISTICS.update(X, Y[:, None], log_noise=Y.numpy())),
    ("update, log_noise is NaN", lambda: STATISTICS.update(X, Y[:, None], log_noise=Y * math.nan)),
    ("update, log_noise is empty", lambda: STATISTICS.update(X, Y[:, None], log_noise=Y[:0])),
    ("update, log_noise is sparse", lambda: STATISTICS.update(X, Y[:, None], log_noise=Y.to_sparse())),
    ("update, log_noise is meta", lambda: STATISTICS.update(X, Y[:, None], log_noise=Y.to("meta"))),
    ("update, log_noise is complex", lambda: STATISTICS.update(X, Y[:, None], log_noise=Y.cfloat())),
    ("update, log_noise is short", lambda: STATISTICS.update(X, Y[:, None], log_noise=Y[:5])),
    ("update, log_noise is a column", lambda: STATISTICS.update(X, Y[:, None], log_noise=Y[:, None])),
    ("update, log_noise is integers", lambda: STATISTICS.update(X, Y[:, None], log_noise=LABELS)),
    ("update, log_noise is a number", lambda: STATISTICS.update(X, Y[:, None], log_noise=0)),
    ("update, log_noise is infinite", lambda: STATISTICS.update(X, Y[:, None], log_noise=Y * math.inf)),
    ("update, log_noise is booleans", lambda: STATISTICS.update(X, Y[:, None], log_noise=Y > 0.5)),
    ("update, groups is a string", lambda: STATISTICS.update(X, Y[:, None], groups="a")),
    ("update, groups is a list", lambda: STATISTICS.update(X, Y[:, None], groups=[0, 1])),
    ("update, groups is an array", lambda: STATISTICS.update(X, Y[:, None], groups=LABELS.numpy())),
    ("update, groups is floats", lambda: STATISTICS.update(X, Y[:, None], groups=Y)),
    ("update, groups is negative", lambda: STATISTICS.update(X, Y[:, None], groups=LABELS - 1)),
    ("update, groups is too large", lambda: STATISTICS.update(X, Y[:, None], groups=LABELS + 1)),
    ("update, groups is booleans", lambda: STATISTICS.update(X, Y[:, None], groups=LABELS > 0)),
    ("update, groups is short", lambda: STATISTICS.update(X, Y[:, None], groups=LABELS[:5])),
    ("update, groups is meta", lambda: STATISTICS.update(X, Y[:, None], groups=LABELS.to("meta"))),
    ("update, groups is sparse", lambda: STATISTICS.update(X, Y[:, None], groups=LABELS.to_sparse())),
    ("update, groups is empty", lambda: STATISTICS.update(X, Y[:, None], groups=LABELS[:0])),
    ("update, groups is complex", lambda: STATISTICS.update(X, Y[:, None], groups=LABELS.cfloat())),
    ("update, product_dtype is a string", lambda: STATISTICS.update(X, Y[:, None], product_dtype="float64")),
    ("update, product_dtype is integers", lambda: STATISTICS.update(X, Y[:, None], product_dtype=torch.int64)),
    ("update, product_dtype is a number", lambda: STATISTICS.update(X, Y[:, None], product_dtype=0)),
    ("subtract, x is None", lambda: STATISTICS.subtract(None)),
    ("subtract, x is a string", lambda: STATISTICS.subtract("a")),
    ("subtract, x is a number", lambda: STATISTICS.subtract(0)),
    ("subtract, x is a tensor", lambda: STATISTICS.subtract(X)),
    ("subtract, x is a class", lambda: STATISTICS.subtract(RBFKernel)),
    ("from_state_dict, x is None", lambda: inference.GramStatistics.from_state_dict(None)),
    ("from_state_dict, x is a string", lambda: inference.GramStatistics.from_state_dict("a")),
    ("from_state_dict, x is a number", lambda: inference.GramStatistics.from_state_dict(0)),
    ("from_state_dict, x is a tensor", lambda: inference.GramStatistics.from_state_dict(X)),
    ("from_state_dict, x is a class", lambda: inference.GramStatistics.from_state_dict(RBFKernel)),
    ("load, x is a", lambda: inference.GramStatistics.load("/tmp")),
    ("load, x is 0", lambda: inference.GramStatistics.load(0.5)),
    ("load, x is none", lambda: inference.GramStatistics.load(None)),
]

COMPLEX_LIKELIHOOD_CALLS = [
    ("ComplexGaussianLikelihood, x is None", lambda: likelihoods.ComplexGaussianLikelihood()(None)),
    ("ComplexGaussianLikelihood, x is a string", lambda: likelihoods.ComplexGaussianLikelihood()("a")),
    ("ComplexGaussianLikelihood, x is a number", lambda: likelihoods.ComplexGaussianLikelihood()(0)),
    ("ComplexGaussianLikelihood, x is a class", lambda: likelihoods.ComplexGaussianLikelihood()(RBFKernel)),
    ("ComplexGaussianLikelihood, x is real", lambda: likelihoods.ComplexGaussianLikelihood()(NORMAL)),
]

FIT_CALLS = [
    ("fit, m is None", lambda: rfgp.fit(None, X, Y, progress=False)),
    ("fit, m is a string", lambda: rfgp.fit("a", X, Y, max_evaluations=2, progress=False)),
    ("fit, m is a number", lambda: rfgp.fit(0, X, Y, max_evaluations=2, progress=False)),
    ("fit, m is a tensor", lambda: rfgp.fit(X, X, Y, max_evaluations=2, progress=False)),
    ("fit, m is a class", lambda: rfgp.fit(RBFKernel, X, Y, max_evaluations=2, progress=False)),
    ("Auto, initialize is a string", lambda: rfgp.training.Auto(initialize="no")),
    ("Blocks, initialize is None", lambda: rfgp.training.Blocks(initialize=None)),
    ("LeaveOut, initialize is two", lambda: rfgp.training.LeaveOut(initialize=2)),
    ("fit, progress is a string", lambda: rfgp.fit(GP, X, Y, max_evaluations=2, progress="no")),
    ("fit, progress is two", lambda: rfgp.fit(GP, X, Y, max_evaluations=2, progress=2)),
]

PRODUCT_DTYPE_CALLS = [
    ("WeightSpaceGP, product_dtype is a string", lambda: models.WeightSpaceGP(K, GAUSSIAN, product_dtype="float64")),
    ("WeightSpaceGP, product_dtype is integers", lambda: models.WeightSpaceGP(K, GAUSSIAN, product_dtype=torch.int64)),
    ("WeightSpaceGP, product_dtype is a number", lambda: models.WeightSpaceGP(K, GAUSSIAN, product_dtype=0)),
]

SAVING_CALLS = [
    ("save, model is a list", lambda: rfgp.save([GP], "/tmp/never")),
    ("save, model is an ExactGP", lambda: rfgp.save(EXACT, "/tmp/never")),
    ("save, path is a number", lambda: rfgp.save(GP, 0.5)),
    ("save, path is a folder", lambda: rfgp.save(GP, "/tmp")),
    ("save, with_rows is a number", lambda: rfgp.save(GP, "/tmp/never", with_rows=2)),
    ("load, path is None", lambda: rfgp.load(None)),
    ("load, path is a folder", lambda: rfgp.load("/tmp")),
    ("load, path is a file of Python", lambda: rfgp.load(__file__)),
    ("load, classes is not of classes", lambda: rfgp.load(__file__, classes=["RBFKernel"])),
]

HUGE = 2**70
UNSIGNED = LABELS.to(torch.uint64)
HEIGHT = {"model": GP, "x": X, "y": Y, "new_x": X}
LANDMARKS = rfgp.approximate(RBFKernel(), 4, method="landmarks", train_inputs=X.double())
NEAR = models.WeightSpaceGP(LANDMARKS, GaussianLikelihood(), block_size=4, num_neighbors=3).double()
FAR = torch.full((2, 3), 1e200, dtype=torch.float64)
NEAR.condition(X.double(), Y.double())
BO = botorch.WeightSpaceModel(X.double(), Y.double()[:, None], num_features=8, seed=0)
REGRESSOR = sklearn.RandomFeatureGPRegressor(num_features=8, random_state=0).fit(X.double().numpy(), Y.double().numpy())

ORDINARY_CALLS = [
    ("register_sketch, name is bytes", lambda: features.register_sketch(b"name")),
    ("register_sketch, name is empty", lambda: features.register_sketch("")),
    ("register_sketch, name is auto", lambda: features.register_sketch("auto")),
    ("register_sketch, name has a form", lambda: features.register_sketch("mine:real")),
    ("register_sketch, name is a method", lambda: features.register_sketch("landmarks")),
    ("approximate, num_features is huge", lambda: rfgp.approximate(RBFKernel(), HUGE, input_dim=3)),
    ("approximate, num_features has 400 digits", lambda: rfgp.approximate(RBFKernel(), 10**400, input_dim=3)),
    ("split_conformal, level has 400 digits", lambda: conformal.split_conformal(GP, X, Y, 10**400)),
    ("split_conformal, model is a tensor", lambda: conformal.split_conformal(X, X, Y)),
    ("split_conformal, y is booleans", lambda: conformal.split_conformal(GP, X, Y > 0.5)),
    ("split_conformal, normalize is a tensor", lambda: conformal.split_conformal(GP, X, Y, normalize=X)),
    ("jackknife_plus, new_x has batches", lambda: conformal.jackknife_plus(**HEIGHT | {"new_x": X.reshape(2, 6, 3)})),
    ("LABELS of uint64", lambda: CLASSES.condition(X, UNSIGNED)),
    ("rank_methods, x has no columns", lambda: selection.rank_methods(RBFKernel(), 8, X[:, :0])),
    ("suggest_num_features, x has no columns", lambda: selection.suggest_num_features(RBFKernel(), X[:, :0])),
    ("certify, new_x has batches", lambda: certificates.certify(GP, X, Y, X.reshape(2, 6, 3))),
    ("boxes, no columns", lambda: observations.boxes(X[:, :0], X[:, :0])),
    ("NegativeBinomialLikelihood, batch_shape", lambda: likelihoods.NegativeBinomialLikelihood(1j)),
    ("NegativeBinomialLikelihood, prior", lambda: likelihoods.NegativeBinomialLikelihood(dispersion_prior="a")),
    ("NegativeBinomialLikelihood, constraint", lambda: likelihoods.NegativeBinomialLikelihood((), None, 5)),
    ("HeteroscedasticSoftmaxLikelihood, classes", lambda: likelihoods.HeteroscedasticSoftmaxLikelihood(2.5)),
    ("HeteroscedasticSoftmaxLikelihood, prior", lambda: likelihoods.HeteroscedasticSoftmaxLikelihood(2, "a")),
    ("ComplexGaussianLikelihood, batch_shape", lambda: likelihoods.ComplexGaussianLikelihood(batch_shape=5)),
    ("ComplexGaussianLikelihood, prior", lambda: likelihoods.ComplexGaussianLikelihood(b"a")),
    ("ComplexGaussianLikelihood, constraint", lambda: likelihoods.ComplexGaussianLikelihood(None, X)),
    ("AdvectedKernel, velocity_prior", lambda: kernels.AdvectedKernel(2, velocity_prior=math.inf)),
    ("AdvectedKernel, spread_constraint", lambda: kernels.AdvectedKernel(2, spread_constraint=[])),
    ("LogVarianceLikelihood, num_functions is text", lambda: likelihoods.LogVarianceLikelihood("8")),
    ("SlidingWindow, model is None", lambda: streams.SlidingWindow(None, 5)),
    ("Forgetting, model is None", lambda: streams.Forgetting(None, 0.9)),
    ("LengthscaleBank, factors is None", lambda: streams.LengthscaleBank(streams.SlidingWindow(GP, 5), None)),
    ("predict_map, progress is a tensor", lambda: maps.predict_map(GP, X, progress=X)),
    ("predict_map, out is a class", lambda: maps.predict_map(GP, X, out=dict)),
    ("predict_map, executor is a number", lambda: maps.predict_map(GP, X, executor=0.5)),
    ("WeightSpaceGP, keep_data is a tensor", lambda: models.WeightSpaceGP(K, GAUSSIAN, keep_data=X)),
    ("WeightSpaceModel, kernel is a tensor", lambda: botorch.WeightSpaceModel(X, Y[:, None], kernel=X)),
    ("WeightSpaceModel, outcome_transform", lambda: botorch.WeightSpaceModel(X, Y[:, None], outcome_transform=1j)),
    ("WeightSpaceModel, input_transform", lambda: botorch.WeightSpaceModel(X, Y[:, None], input_transform=[1.0])),
    ("BO.subset_output, a number", lambda: BO.subset_output(0.5)),
    ("BO.subset_output, text", lambda: BO.subset_output("a")),
    ("BO.subset_output, floats", lambda: BO.subset_output([0.0])),
    ("BO.posterior, output_indices is a number", lambda: BO.posterior(X.double(), output_indices=0.5)),
    ("BO.posterior, output_indices is a tensor", lambda: BO.posterior(X.double(), output_indices=X)),
    ("BO.posterior, posterior_transform", lambda: BO.posterior(X.double(), posterior_transform=0)),
    ("BO.condition, X is None", lambda: BO.condition_on_observations(None, Y.double()[:, None])),
    ("BO.condition, Y is a list", lambda: BO.condition_on_observations(X.double(), [1.0])),
    ("BO.condition, Y is complex", lambda: BO.condition_on_observations(X.double(), Y[:, None].to(torch.complex128))),
    ("PathwiseFeatureMap, kernel is a number", lambda: botorch.PathwiseFeatureMap(0, 3)),
    ("PathwiseFeatureMap, input_dim is text", lambda: botorch.PathwiseFeatureMap(K, "a")),
    ("REGRESSOR.sample_y, n_samples is text", lambda: REGRESSOR.sample_y(ARRAY, "a")),
    ("REGRESSOR.sample_y, n_samples is negative", lambda: REGRESSOR.sample_y(ARRAY, -1)),
    ("row_chunks, no columns", lambda: linalg.row_chunks(10, 0)),
    ("row_chunks, text", lambda: linalg.row_chunks("a", 8)),
    ("compare, first is a mapping", lambda: study.compare({}, None)),
    ("study.load, path is a number", lambda: study.load(0.5)),
    ("study.run, methods is not hashable", lambda: study.run(DATA, methods=[["fourier"]])),
    ("study.run, drop is None", lambda: study.run(DATA, drop=None)),
    ("read_archive, path is a number", lambda: datasets.read_archive(0.5, "y")),
    ("tables.read, separator is a list", lambda: tables.read("a.csv", separator=[])),
    ("CsvSource, separator is not ASCII", lambda: data.CsvSource(__file__, "a", delimiter="\u00a7")),
    ("NEAR.posterior, x is too far away", lambda: NEAR.posterior(FAR)),
    ("verdict, facts is a number", lambda: verdict(0)),
    ("merge, other is a number", lambda: data.ColumnMoments.of(X).merge(HUGE)),
    ("over_compact_set, pointwise", lambda: bounds.over_compact_set(0, input_dim=2, diameter=1.0, slope=1.0)),
    ("PosteriorPoints, variance is a tensor", lambda: models.PosteriorPoints(LAPLACE)(X, X)),
    ("characteristic, w is a number", lambda: sensitivity.Uniform(0.0, 1.0).characteristic(0.5)),
    ("calibration_curve, levels is a number", lambda: diagnostics.calibration_curve(PREDICTED, Y, math.inf)),
    ("exceedance, threshold is text", lambda: sensitivity.propagate(GP, X, num_functions=3).exceedance("a")),
    ("legend, target is a number", lambda: plots.legend(0, [])),
    ("ComplexNormal, not Hermitian", lambda: distributions.ComplexNormal(CN.loc, torch.triu(torch.ones(5, 5)))),
    ("GP.load_state_dict, a path", lambda: GP.load_state_dict("state.pt")),
    ("LAPLACE.load_state_dict, None", lambda: LAPLACE.load_state_dict(None)),
    ("predict_map, lists in out", lambda: maps.predict_map(GP, X, {"mean": [0.0] * 12, "variance": [0.0] * 12})),
    ("ArraySource, x is None", lambda: data.ArraySource(None)),
    ("Standardize, numbers", lambda: data.Standardize(0.0, 1.0)),
    ("Standardize, negative std", lambda: data.Standardize(X.mean(0), -X.std(0))),
    ("Standardize, lengths differ", lambda: data.Standardize(X.mean(0), X.std(0)[:2])),
    ("Standardize, not finite", lambda: data.Standardize(NANS[0], X.std(0))),
    ("Standardize, other columns", lambda: data.Standardize(WIDE[0], WIDE[0])(X, Y)),
    ("Standardize, labels as targets", lambda: data.Standardize(X[0], X[1], Y[0], Y[1])(X, LABELS)),
    ("Standardize, other targets", lambda: data.Standardize(X[0], X[1], X[2], X[3])(X, Y)),
    ("MappedSource, a tensor comes back", lambda: list(data.MappedSource(TABLE, lambda x, y: x))),
    ("MappedSource, rows are left out", lambda: list(data.MappedSource(TABLE, lambda x, y: (x[:5], y[:5])))),
    ("MappedSource, nothing comes back", lambda: list(data.MappedSource(TABLE, lambda x, y: None))),
    ("sample, widths differ", lambda: data.sample([(X, Y), (WIDE, Y)], 5)),
    ("SlidingWindow.update, y is None", lambda: streams.SlidingWindow(GP, 5).update(X, None)),
    ("mmd, ard_num_dims of other inputs", lambda: two_sample.mmd(X, X, PLANE)),
    ("mmd, active_dims of other inputs", lambda: two_sample.mmd(X, X, RBFKernel(active_dims=[7]))),
    ("exact_posterior, ard_num_dims", lambda: diagnostics.exact_posterior(PLANE, GAUSSIAN, X, Y, X)),
    ("exact_posterior, noise that is learned", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, X, Y, X, noise=Y)),
    ("certified_posterior, ard_num_dims", lambda: certificates.certified_posterior(PLANE, GAUSSIAN, X, Y)),
    ("log_determinant, ard_num_dims", lambda: certificates.log_determinant(PLANE, GAUSSIAN, X)),
    ("certify, some of the rows", lambda: certificates.certify(GP, X[:9], Y[:9], X)),
    ("LocalizedMaclaurinGP.fit, ard_num_dims", lambda: models.LocalizedMaclaurinGP(PLANE, GAUSSIAN, 8).condition(X, Y)),
    ("load, classes is a class", lambda: rfgp.load("model.pt", classes=RBFKernel)),
    ("load, classes is None", lambda: rfgp.load("model.pt", classes=None)),
    ("load, into is a path", lambda: rfgp.load("model.pt", into="other.pt")),
    ("load, into is a class", lambda: rfgp.load("model.pt", into=models.WeightSpaceGP)),
    ("Temperature, zero", lambda: diagnostics.Temperature(0.0)),
    ("Temperature, odds", lambda: diagnostics.Temperature(2.0)(3.0 * PROBABILITIES)),
    ("VarianceScale, negative", lambda: diagnostics.VarianceScale(-1.0)),
    ("crps, counts", lambda: diagnostics.crps(torch.distributions.Poisson(Y), Y)),
    ("regression_mnll, heavy tails", lambda: diagnostics.regression_mnll(torch.distributions.StudentT(4.0, Y), Y)),
    ("calibration_curve, no levels", lambda: diagnostics.calibration_curve(PREDICTED, Y, [])),
    ("compare_to_exact, seed is a generator", lambda: diagnostics.compare_to_exact(KEPT, X, seed=G)),
    ("jackknife_plus, seed is a generator", lambda: conformal.jackknife_plus(GP, X, Y, X, seed=G)),
    ("approximate, a map of other inputs", lambda: rfgp.approximate(RBF, 8, input_dim=4, method=FOURIER)),
    ("suggest_num_features, percents", lambda: selection.suggest_num_features(RBF, X, 5, method="fourier")),
    ("elbo, fewer rows than given", lambda: VARIATIONAL.elbo(X, Y, num_data=5)),
    ("Stacked, no operators", lambda: operators.Stacked()),
    ("leave_group_out, labels of other rows", lambda: GP.leave_group_out(X, Y, LABELS[:9])),
    ("LaplaceKernel, ard_num_dims of other inputs", lambda: kernels.LaplaceKernel(ard_num_dims=2)(X)),
    ("AdvectedKernel, ard_num_dims of other inputs", lambda: kernels.AdvectedKernel(2, ard_num_dims=2)(X)),
    ("softmax kernel, ard_num_dims", lambda: kernels.ExponentialDotProductKernel(ard_num_dims=2)(X)),
    ("approximate, more features than memory", lambda: rfgp.approximate(RBF, 10**12, input_dim=3)),
    ("approximate, more signs than memory", lambda: rfgp.approximate(POLY, 10**12, input_dim=3, method="rademacher")),
    ("GP.sample_functions, more than memory", lambda: GP.sample_functions(10**12)),
    ("fit, epochs of a WeightSpaceGP", lambda: rfgp.fit(GP, X, Y, strategy=rfgp.training.Minibatches(epochs=3))),
    ("fit, num_data of an ExactGP", lambda: rfgp.fit(EXACT, strategy=rfgp.training.Minibatches(num_data=12))),
    ("GP.downdate, more rows than there are", lambda: GP.downdate(torch.cat([X, X]), torch.cat([Y, Y]))),
    ("sets, probabilities of other classes", lambda: conformal.ClassConditionalSets(EYE, LABELS[:3]).sets(EYE[:, :2])),
]

SECTIONS = {
    "ordinary": ORDINARY_CALLS,
    "approximate": APPROXIMATE_CALLS,
    "kernels": KERNELS_CALLS,
    "features": FEATURES_CALLS,
    "diagnostics": DIAGNOSTICS_CALLS,
    "distributions": DISTRIBUTIONS_CALLS,
    "models": MODELS_CALLS,
    "likelihoods": LIKELIHOODS_CALLS,
    "simplex": SIMPLEX_CALLS,
    "operators": OPERATORS_CALLS,
    "selection": SELECTION_CALLS,
    "allocation": ALLOCATION_CALLS,
    "bounds": BOUNDS_CALLS,
    "sampling": SAMPLING_CALLS,
    "linalg": LINALG_CALLS,
    "saving": SAVING_CALLS,
    "statistics": STATISTICS_CALLS,
    "plots": PLOTS_CALLS,
    "datasets": DATASETS_CALLS,
    "study": STUDY_CALLS,
    "sums": SUMS_CALLS,
    "Complex likelihood": COMPLEX_LIKELIHOOD_CALLS,
    "fit": FIT_CALLS,
    "product_dtype": PRODUCT_DTYPE_CALLS,
}
CALLS = [pytest.param(call, id=f"{section}: {name}") for section, calls in SECTIONS.items() for name, call in calls]


def refusal(call):
    """The exception of a bad call, which rfgp has to raise by a raise statement of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((ValueError, TypeError)) as caught:
            call()
    last = caught.value.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    assert code.co_filename.startswith(ROOT), f"raised in {code.co_filename}, not in rfgp: {caught.value!r}"
    assert dis.opname[code.co_code[last.tb_lasti]].startswith(("RAISE", "RERAISE")), (
        f"not raised by us: {caught.value!r}"
    )
    return caught.value


@pytest.mark.parametrize("call", CALLS)
def test_a_bad_call_is_refused_with_advice(call):
    message = str(refusal(call))
    assert MESSAGE.search(message), f"expected 'expected ..., got ...; do ...', got {message!r}"


def test_the_table_has_no_call_twice():
    names = [name for calls in SECTIONS.values() for name, _ in calls]
    assert len(set(names)) == len(names) >= 450


def state():
    """What the shared objects predict and hold, bit for bit."""
    parts = {f"{name}": model.posterior(X) for name, model in MODELS.items()}
    result = {f"{name}.{kind}": getattr(parts[name], kind) for name in parts for kind in ("mean", "variance")}
    result |= {
        f"{name} matrix": kernel(X).to_dense() for name, kernel in {"K": K, "tasks": TASKS, "curl": CURL}.items()
    }
    result |= {f"{i} of maps": feature_map(Z) for i, feature_map in enumerate((FOURIER, SKETCH, CTR, SRHT, MACLAURIN))}
    result |= {f"statistics {name}": value for name, value in STATISTICS.state_dict().items()}
    result |= {f"likelihood {name}": value for name, value in DIRICHLET.state_dict().items() if torch.is_tensor(value)}
    return {"squares": SQUARES.predict(X), "exact": EXACT(X + 1.0).mean} | result


MODELS = {"scalar": GP, "fixed": FIXED, "classes": CLASSES, "field": FIELD, "local": LOCAL}


def calls_on(name):
    """The bad calls in whose names an object of the table stands, as in "GP.fit, x is None"."""
    return [call for calls in SECTIONS.values() for label, call in calls if label.startswith((f"{name}.", f"{name}, "))]


@pytest.mark.parametrize(
    "name", ["GP", "FIXED", "CLASSES", "FIELD", "LOCAL", "SQUARES", "DIRICHLET", "STATISTICS", "K", "TASKS", "FOURIER"]
)
@torch.no_grad()
def test_what_is_refused_changes_nothing(name):
    calls = calls_on(name)
    assert calls
    before = state()
    for call in calls:
        refusal(call)
    after = state()
    assert [key for key, value in before.items() if not torch.equal(value, after[key])] == []


@pytest.mark.parametrize("call", [FOURIER, CURL.features, GP.posterior, SQUARES.predict])
def test_a_single_row_is_told_to_be_unsqueezed_in_front(call):
    assert "unsqueeze(0) for a single row" in str(refusal(lambda: call(ROW)))


def test_a_single_row_that_was_made_a_column_is_told_so():
    assert "unsqueeze(0) for a single row of 3 numbers" in str(refusal(lambda: FOURIER(ROW.unsqueeze(-1))))


def test_one_column_may_be_either():
    assert "unsqueeze(0) for a single row, or x.unsqueeze(-1) for a single column" in str(refusal(lambda: SERIES(ROW)))
