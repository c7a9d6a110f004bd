"""Bad calls over the whole public API: each is refused by rfgp itself, which says what it expected, got and advises.

Arguments that are bad on their own are generated, from the table of public signatures. What is bad by what it goes with
is listed here.
"""

import contextlib
import copy
import dataclasses
import dis
import importlib
import inspect
import math
import os
import re
import resource
import warnings

import gpytorch
import pytest
import torch
from argument_kinds import is_tried
from gpytorch.kernels import AdditiveKernel, MaternKernel, ProductKernel, RBFKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from hypothesis import HealthCheck, Phase, given, settings
from problems import ExactModel
from reference_pages import EXTENDING, INTERNAL, packages
from signatures import APPROXIMATED as K
from signatures import CLASSES as LABELS
from signatures import (
    CLASSIFIER,
    COMPLEX_NORMAL,
    COMPLEX_SKETCH,
    CURL,
    DATA,
    DIRICHLET,
    EXACT,
    EYE,
    FIXED,
    GP,
    LAPLACE,
    MAPS,
    NORMAL,
    OPTIMIZER,
    SHARES,
    SIGNATURES,
    SKETCH,
    SQUARES,
    TABLE,
    X,
    Y,
)
from torch.distributions import Normal

import rfgp
from rfgp import (
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
from rfgp.approximation import selection, with_features
from rfgp.diagnostics import bounds, certificates, conformal, sensitivity, two_sample
from rfgp.models.least_squares import simplex
from rfgp.study import datasets, plots, tables
from rfgp.study.scaling import scale_inputs
from rfgp.study.verdict import verdict

ROOT = os.path.dirname(rfgp.__file__)
MESSAGE = re.compile(r"expected .+[,;] got .+[;:] \S+ \S.*", re.DOTALL)
MEMORY = 3 * 2**30
"""Bytes that a call may take beyond those of the process."""
pytestmark = pytest.mark.filterwarnings("ignore")


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


def check_refused(call):
    message = str(refusal(call))
    assert MESSAGE.search(message), f"expected 'expected ..., got ...; do ...', got {message!r}"


@pytest.fixture(scope="module", autouse=True)
def confined(tmp_path_factory):
    """A folder with a saved model, and no more than ``MEMORY`` bytes beside those that the process has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as pages:
        taken = int(pages.read().split()[0]) * resource.getpagesize()
    with contextlib.chdir(tmp_path_factory.mktemp("calls")):
        rfgp.save(GP, "model.pt")
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, hard))
        yield
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


# Generated from the table of signatures


def owner_of(signature):
    """The object whose method a signature is of; None for functions, classes and their class methods."""
    owner = getattr(signature.function, "__self__", None)
    return None if isinstance(owner, type) else owner


def states(signature):
    """What the objects in a call hold: their tensors, modes and rows."""
    found = []
    for value in (owner_of(signature), *(kind.good for kind in signature.kinds.values())):
        if hasattr(value, "state_dict"):
            state = {name: part for name, part in value.state_dict().items() if torch.is_tensor(part)}
            found.append((state, getattr(value, "training", None), list(getattr(value, "training_data", []))))
    return copy.deepcopy(found)


def same(found, wanted):
    """Whether nested containers have the same entries, bit for bit."""
    if isinstance(wanted, torch.Tensor):
        return torch.equal(found.nan_to_num(), wanted.nan_to_num())
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return found == wanted


def of_signatures(slow=()):
    """A case for each line of the table; the slow ones run weekly."""
    marks = {name: [pytest.mark.long("takes seconds")] for name in slow}
    return [
        pytest.param(signature, id=f"{i} {signature}", marks=marks.get(str(signature), ()))
        for i, signature in enumerate(SIGNATURES)
    ]


@pytest.mark.every_case
@pytest.mark.parametrize("signature", of_signatures(slow=["run", "rank_methods"]))
def test_good_arguments_are_good(signature):
    """So that bad ones are refused for what they are."""
    arguments = {name: kind.good for name, kind in signature.kinds.items()}
    owner, arguments = copy.deepcopy((owner_of(signature), arguments))
    function = signature.function if owner is None else getattr(owner, signature.function.__name__)
    function(**arguments)


def refuses(signature, name, examples):
    """Check that bad values of one argument are refused, beside good ones of the others."""
    good = {other: kind.good for other, kind in signature.kinds.items()}

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(bad=signature.kinds[name].bad())
    def is_refused(bad):
        check_refused(lambda: signature.function(**good | {name: bad}))

    is_refused()


@pytest.mark.every_case
@pytest.mark.parametrize("signature", of_signatures())
@pytest.mark.parametrize("examples", [8, pytest.param(100, marks=pytest.mark.long("more values"))])
def test_bad_arguments_are_refused_and_change_nothing(signature, examples):
    before = states(signature)
    for name, kind in signature.kinds.items():
        if is_tried(kind):
            refuses(signature, name, examples)
    assert same(states(signature), before)


FREE_OF_BAD_CALLS = {
    "made by functions of the package": {
        *(
            "CertifiedPosterior",
            "FunctionPath",
            "FunctionSamples",
            "Mixture",
            "NormalMixture",
            "ParameterAverage",
            "SplitConformal",
            "TableModel",
            "Training",
        ),
        *("split", "unclamped"),
    },
    "take a density of one's own": {"most_probable", "parameter_draws"},
    "GPyTorch's arguments alone, with GPyTorch's checks": {
        *("ExponentialDotProductKernel", "LaplaceKernel", "LeaveOneOutPseudoLikelihood"),
        *("MultitaskMultivariateNormal", "MultivariateNormal"),
    },
    "scikit-learn checks these in tests/sklearn/test_estimators.py": {
        *("RandomFeatureGPClassifier", "RandomFeatureGPCountRegressor", "RandomFeatureGPRegressor"),
        *("RandomFeatures", "TableEncoder"),
    },
    "bad calls need files, processes or a training, and are listed below or beside their other tests": {
        *(
            "ArrowSource",
            "CompositeLikelihood",
            "CsvSource",
            "ParquetSource",
            "Shard",
            "broadcast",
            "condition",
            "compare",
            "load",
        ),
        *("load_wind", "read", "read_archive", "uncertainty"),
    },
    "listed below, or in tests/study/plots": {
        *("ComplexNormal", "calibration", "convergence", "coverage_by_level", "estimates", "legend", "literal"),
        *("main_effects", "pit_histogram", "predictions", "shapley_bars", "sobol_bars"),
    },
}
"""Public names without a line in the table, and why."""


def is_checked(value):
    """Whether a public object takes arguments that it checks; what others return, and what is abstract, does not."""
    is_result = isinstance(value, type) and (issubclass(value, tuple) or dataclasses.is_dataclass(value))
    if not callable(value) or is_result or inspect.isabstract(value):
        return False
    kinds = {parameter.kind for parameter in inspect.signature(value).parameters.values()}
    return bool(kinds - {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})


def test_every_public_name_has_a_line():
    lines = [signature.function for signature in SIGNATURES]
    silent = set()
    for package in packages():
        module = importlib.import_module(f"rfgp.{package.removeprefix('rfgp.')}")
        if package.removeprefix("rfgp.") not in INTERNAL:
            names = set(module.__all__).difference(EXTENDING.get(module.__name__, ()))
            silent |= {
                name for name in names if is_checked(getattr(module, name)) and getattr(module, name) not in lines
            }
    assert silent == set().union(*FREE_OF_BAD_CALLS.values())


# What is bad by what it goes with

RBF, PLANE, GAUSSIAN = RBFKernel(), RBFKernel(ard_num_dims=2), GaussianLikelihood()
PROBIT, VALUE = gpytorch.likelihoods.BernoulliLikelihood(), operators.Value()
SERIES = features.FourierSeries(torch.tensor([[0], [1]]), torch.tensor([0.5, 0.5]))
NANS, ROW, WIDE = X * math.nan, X[0], torch.ones(12, 4)


def dataset(**changes):
    return dataclasses.replace(DATA, **changes)


def near_model():
    kernel = rfgp.approximate(RBFKernel(), 4, method="landmarks", train_inputs=X.double())
    model = models.WeightSpaceGP(kernel, GaussianLikelihood(), block_size=4, num_neighbors=3).double()
    return model.condition(X.double(), Y.double())


def regressor():
    return sklearn.RandomFeatureGPRegressor(num_features=8, random_state=0).fit(X.double().numpy(), Y.double().numpy())


LISTED = [
    ("observations that are none", lambda: rfgp.training.CompositeLikelihood(None, LABELS.reshape(6, 2))),
    ("labels of uint64", lambda: CLASSIFIER.condition(X, LABELS.to(torch.uint64))),
    ("approximate, a map of another kernel", lambda: rfgp.approximate(RBF, 8, method=SKETCH)),
    ("approximate, dimensions that disagree", lambda: rfgp.approximate(RBF, 8, input_dim=4, train_inputs=X)),
    ("approximate, ARD of another dimension", lambda: rfgp.approximate(RBFKernel(ard_num_dims=3), 8, input_dim=4)),
    ("approximate, active_dims beyond", lambda: rfgp.approximate(RBFKernel(active_dims=[5]), 8, input_dim=3)),
    ("approximate, an unsupported kernel", lambda: rfgp.approximate(gpytorch.kernels.ArcKernel(RBF), 8)),
    ("an ExactGP, NaN", lambda: EXACT(NANS).mean),
    ("an ExactGP, another dtype", lambda: EXACT(X.double() + 1.0).mean),
    ("an ExactGP trained with the wrong d", lambda: ExactModel(WIDE, Y, GAUSSIAN, K).eval()(WIDE + 1.0).mean),
    (
        "an ExactGP in training with the wrong d",
        lambda: ExactModel(w := torch.rand(12, 4), Y, GAUSSIAN, K).train()(w).covariance_matrix,
    ),
    ("the divergence at other points", lambda: diagnostics.kl_divergence(NORMAL, Normal(Y[:5], Y[:5] + 1.0))),
    (
        "the divergence of a variance of zero",
        lambda: diagnostics.kl_divergence(Normal(Y, 0.0 * Y, validate_args=False), NORMAL),
    ),
    ("the divergence without targets", lambda: diagnostics.kl_to_exact(GP, X, train_inputs=X)),
    ("the divergence without inputs", lambda: diagnostics.kl_to_exact(GP, X, train_targets=Y)),
    ("noisy=True for classes", lambda: diagnostics.kl_to_exact(CLASSIFIER, X, noisy=True)),
    ("complex targets for a real likelihood", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, X, Y.cfloat(), X)),
    (
        "the score of a variance of zero",
        lambda: diagnostics.regression_mnll(Normal(Y, 0.0 * Y, validate_args=False), Y),
    ),
    ("kl_to_exact, train_inputs is None", lambda: diagnostics.kl_to_exact(GP, X, train_inputs=None, train_targets=Y)),
    ("kl_to_exact, train_targets is None", lambda: diagnostics.kl_to_exact(GP, X, train_inputs=X, train_targets=None)),
    ("exact_posterior: integers", lambda: diagnostics.exact_posterior(RBF, FIXED.likelihood, X, Y, X, noise=LABELS)),
    ("exact_posterior: a number", lambda: diagnostics.exact_posterior(RBF, FIXED.likelihood, X, Y, X, noise=0)),
    ("exact_posterior: booleans", lambda: diagnostics.exact_posterior(RBF, FIXED.likelihood, X, Y, X, noise=Y > 0.5)),
    ("K called with a dictionary", lambda: K({})),
    ("K called with a tuple", lambda: K((X, X))),
    ("K, x1 and x2 of different d", lambda: K(X, WIDE)),
    ("K, wrong d, diagonal", lambda: K(WIDE, diag=True)),
    ("K, last_dim_is_batch", lambda: K(X, last_dim_is_batch=True).to_dense()),
    ("an output operator of a scalar kernel", lambda: K.output_factor(operators.Gradient())),
    ("a curl-free kernel of Matern 1/2", lambda: kernels.CurlFreeKernel(MaternKernel(nu=0.5))),
    ("a curl-free kernel of polynomials", lambda: kernels.CurlFreeKernel(gpytorch.kernels.PolynomialKernel(2))),
    ("a divergence-free field on a line", lambda: kernels.DivergenceFreeKernel(RBF)(X[:, :1]).to_dense()),
    ("skewed inputs below the skewness", lambda: kernels.SkewedChiSquaredKernel()(X - 5.0).to_dense()),
    ("an asymmetric covariance", lambda: kernels.ConstantCovariance(torch.rand(3, 3))),
    ("a singular covariance", lambda: kernels.ConstantCovariance(torch.zeros(2, 2))),
    ("negative similarities", lambda: kernels.GraphLaplacianCovariance(-EYE)),
    ("an odd number of columns in pairs", lambda: rfgp.approximate(RBF, 7, input_dim=3, method="fourier")),
    ("a complex form of linear features", lambda: rfgp.approximate(RBF, 8, method="linear:complex", input_dim=3)),
    ("a kernel product with the same weights", lambda: with_features(ProductKernel(K, K))),
    ("a sum of scalar kernel and field", lambda: with_features(AdditiveKernel(K, CURL))),
    ("with_features, a sum with an exact part", lambda: with_features(AdditiveKernel(K, RBFKernel()))),
    ("FourierSeries, orders is a number", lambda: features.FourierSeries(0, torch.tensor([0.5, 0.5]))),
    ("SERIES, args is NaN", lambda: SERIES(NANS)),
    ("SERIES.target, x is meta", lambda: SERIES.target(X.to("meta"), X[:, :1])),
    ("SERIES.target, y is a number", lambda: SERIES.target(X[:, :1], 0)),
    ("SERIES.moments, x is an array", lambda: SERIES.moments(X.numpy(), X[:, :1])),
    ("SERIES.moments, y is NaN", lambda: SERIES.moments(X[:, :1], NANS)),
    ("COMPLEX_SKETCH.planes, x is sparse", lambda: COMPLEX_SKETCH.planes(X.to_sparse())),
    ("PowerWeighted, powers is neg", lambda: features.PowerWeighted(features.Gaussian(), (-1,))),
    ("ComplexNormal, loc is a number", lambda: likelihoods.ComplexNormal(0, EYE)),
    (
        "ComplexNormal: sparse",
        lambda: likelihoods.ComplexNormal(torch.zeros(3, dtype=torch.complex64), EYE.to_sparse()),
    ),
    ("a model of an exact kernel", lambda: models.WeightSpaceGP(RBF, GAUSSIAN)),
    ("a model of several likelihoods", lambda: models.WeightSpaceGP(K, gpytorch.likelihoods.BernoulliLikelihood())),
    (
        "a model with a batch of noises",
        lambda: models.WeightSpaceGP(K, GaussianLikelihood(batch_shape=torch.Size([2]))),
    ),
    ("a posterior before the fit", lambda: models.WeightSpaceGP(K, GAUSSIAN).posterior(X)),
    ("the evidence before the fit", lambda: models.WeightSpaceGP(K, GAUSSIAN).log_marginal_likelihood()),
    ("functions before the fit", lambda: models.WeightSpaceGP(K, GAUSSIAN).sample_functions(2)),
    ("statistics before the fit", lambda: models.WeightSpaceGP(K, GAUSSIAN).statistics),
    ("least squares before the fit", lambda: models.VectorLeastSquares(K, regularization=1.0).predict(X)),
    ("localized features before the fit", lambda: models.LocalizedMaclaurinGP(RBF, GAUSSIAN, 8).posterior(X)),
    (
        "localized features of a polynomial",
        lambda: models.LocalizedMaclaurinGP(gpytorch.kernels.PolynomialKernel(2), GAUSSIAN, 8),
    ),
    (
        "localized features with known noise",
        lambda: models.LocalizedMaclaurinGP(RBF, FixedNoiseGaussianLikelihood(Y + 1.0), 8),
    ),
    (
        "one least-squares graph is missing",
        lambda: models.VectorLeastSquares(K, regularization=1.0, manifold_regularization=1.0).fit(X, Y),
    ),
    ("a Laplace approximation of an exact kernel", lambda: models.LaplaceGP(RBF, PROBIT)),
    ("a Laplace approximation of several outputs", lambda: models.LaplaceGP(CURL, PROBIT)),
    ("a Laplace approximation of a Dirichlet likelihood", lambda: models.LaplaceGP(K, DIRICHLET)),
    ("a Laplace approximation of a kink", lambda: models.LaplaceGP(K, gpytorch.likelihoods.LaplaceLikelihood())),
    (
        "a Laplace approximation with blocks for one function",
        lambda: models.LaplaceGP(K, PROBIT, hessian="block_diagonal"),
    ),
    ("a mode before the fit", lambda: models.LaplaceGP(K, PROBIT).mode),
    ("exposure of labels", lambda: LAPLACE.condition(X, Y > 0.5, exposure=Y + 1.0)),
    ("fit, exposure of a regression", lambda: rfgp.fit(GP, X, Y, exposure=Y + 1.0)),
    (
        "exposure of another number of rows",
        lambda: rfgp.likelihoods.PoissonLikelihood()(Y, exposure=torch.ones(3)),
    ),
    ("no exposure", lambda: rfgp.likelihoods.PoissonLikelihood()(Y, exposure=torch.zeros_like(Y))),
    ("fit, LaplaceGP without targets", lambda: rfgp.fit(LAPLACE, X)),
    ("task_columns, num_tasks is 2^40", lambda: models.task_columns(Y, LABELS, 2**40)),
    ("simplex_code, num_classes is 2^40", lambda: simplex.simplex_code(2**40)),
    ("DirichletCla: 2^40", lambda: likelihoods.DirichletClassificationLikelihood(LABELS, num_classes=2**40)),
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
    ("Partial, coordinates is negative", lambda: operators.Partial(-1)),
    ("Stacked, operators is None", lambda: operators.Stacked(None)),
    ("rank_methods, ARD of another dimension", lambda: selection.rank_methods(RBFKernel(ard_num_dims=9), 8, X)),
    ("best_method, ARD of another dimension", lambda: selection.best_method(RBFKernel(ard_num_dims=9), 8, X)),
    (
        "suggest_num_features, ARD of another dimension",
        lambda: selection.suggest_num_features(RBFKernel(ard_num_dims=9), X),
    ),
    ("rank_methods, num_features is 10^12", lambda: selection.rank_methods(RBF, 10**12, X)),
    ("rank_methods, methods is a tensor", lambda: selection.rank_methods(RBF, 4, X, methods=X)),
    ("rank_methods, methods is empty", lambda: selection.rank_methods(RBF, 4, X, methods=[])),
    ("Minh, num_features is 7", lambda: bounds.minh_bound(3, 1.0, 1.0, 1.0).failure_probability(7, 0.1)),
    ("fourier_bound, variance is complex", lambda: bounds.fourier_bound(variance=1j)),
    ("fourier_bound, variance is sparse", lambda: bounds.fourier_bound(EYE.to_sparse())),
    ("gram, weights is complex", lambda: linalg.gram(X, Y[:, None], weights=Y.cfloat())),
    ("gram, weights is short", lambda: linalg.gram(X, Y[:, None], weights=Y[:5])),
    (
        "log_determin matrix: complex",
        lambda: linalg.log_determinant_and_quadratic(X.cfloat(), torch.ones(3, 1).double()),
    ),
    ("log_determin matrix: one row", lambda: linalg.log_determinant_and_quadratic(ROW, torch.ones(3, 1).double())),
    ("log_determin cross: a scalar", lambda: linalg.log_determinant_and_quadratic(EYE.double(), torch.tensor(1.0))),
    ("log_determinant_and_quadratic, cross is None", lambda: linalg.log_determinant_and_quadratic(EYE.double(), None)),
    ("scalar_field, colors is a tensor", lambda: plots.scalar_field(torch.rand(9, 2), torch.rand(9), colors=X)),
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
    ("a study of a target of a data set", lambda: study.run(DATA, "y")),
    ("a study in a number", lambda: study.run(DATA, out=5)),
    ("a study that is resumed by a word", lambda: study.run(DATA, resume="yes")),
    ("load of a study that is not there", lambda: study.load("nowhere")),
    ("the output of a data set with one", lambda: datasets.load("diabetes", output="y")),
    ("wind from a directory that is not there", lambda: datasets.load_wind("/nonexistent")),
    ("alpha_epsilon for another model", lambda: DIRICHLET.select_alpha_epsilon(GP, X, LABELS)),
    ("class probabilities of a regression", lambda: DIRICHLET.class_probabilities(GP.posterior(X))),
    (
        "the noise of a normal distribution",
        lambda: likelihoods.MultitaskFixedNoiseGaussianLikelihood(torch.ones(12, 2)).marginal(NORMAL),
    ),
    ("load, data_dir is 0", lambda: datasets.load("diabetes", data_dir=0.5)),
    ("load, output is 9", lambda: datasets.load("diabetes", output=9)),
    ("load_wind, data_dir is list", lambda: datasets.load_wind([])),
    ("scale_inputs, train is booleans", lambda: scale_inputs(X > 0.5, X, "unit")),
    ("scale_inputs, test: wrong d", lambda: scale_inputs(X, WIDE, "unit")),
    ("scale_inputs, scaling is a list", lambda: scale_inputs(X, X, [])),
    ("load, x is a", lambda: inference.GramStatistics.load("/tmp")),
    ("load, x is 0", lambda: inference.GramStatistics.load(0.5)),
    ("load, x is none", lambda: inference.GramStatistics.load(None)),
    ("ComplexGaussianLikelihood, x is real", lambda: likelihoods.ComplexGaussianLikelihood()(NORMAL)),
    ("save, model is an ExactGP", lambda: rfgp.save(EXACT, "/tmp/never")),
    ("save, path is a folder", lambda: rfgp.save(GP, "/tmp")),
    ("load, path is a folder", lambda: rfgp.load("/tmp")),
    ("load, path is a file of Python", lambda: rfgp.load(__file__)),
    ("register_sketch, name is bytes", lambda: features.register_sketch(b"name")),
    ("register_sketch, name is empty", lambda: features.register_sketch("")),
    ("register_sketch, name is auto", lambda: features.register_sketch("auto")),
    ("register_sketch, name has a form", lambda: features.register_sketch("mine:real")),
    ("register_sketch, name is a method", lambda: features.register_sketch("landmarks")),
    ("split_conformal, y is booleans", lambda: conformal.split_conformal(GP, X, Y > 0.5)),
    ("jackknife_plus, new_x has batches", lambda: conformal.jackknife_plus(GP, X, Y, X.reshape(2, 6, 3))),
    ("certify, new_x has batches", lambda: certificates.certify(GP, X, Y, X.reshape(2, 6, 3))),
    ("OPTIMIZER.subset_output, floats", lambda: OPTIMIZER.subset_output([0.0])),
    ("regressor().sample_y, n_samples is text", lambda: regressor().sample_y(X.numpy(), "a")),
    ("regressor().sample_y, n_samples is negative", lambda: regressor().sample_y(X.numpy(), -1)),
    ("row_chunks, no columns", lambda: linalg.row_chunks(10, 0)),
    ("row_chunks, text", lambda: linalg.row_chunks("a", 8)),
    ("compare, first is a mapping", lambda: study.compare({}, None)),
    ("study.run, drop is None", lambda: study.run(DATA, drop=None)),
    ("read_archive, path is a number", lambda: datasets.read_archive(0.5, "y")),
    ("tables.read, separator is a list", lambda: tables.read("a.csv", separator=[])),
    ("CsvSource, separator is not ASCII", lambda: data.CsvSource(__file__, "a", delimiter="\u00a7")),
    (
        "NEAR.posterior, x is too far away",
        lambda: near_model().posterior(torch.full((2, 3), 1e200, dtype=torch.float64)),
    ),
    ("verdict, facts is a number", lambda: verdict(0)),
    ("merge, other is a number", lambda: data.ColumnMoments.of(X).merge(2**70)),
    ("PosteriorPoints, variance is a tensor", lambda: models.PosteriorPoints(LAPLACE)(X, X)),
    ("characteristic, w is a number", lambda: sensitivity.Uniform(0.0, 1.0).characteristic(0.5)),
    ("exceedance, threshold is text", lambda: sensitivity.propagate(GP, X, num_functions=3).exceedance("a")),
    ("legend, target is a number", lambda: plots.legend(0, [])),
    (
        "ComplexNormal, not Hermitian",
        lambda: likelihoods.ComplexNormal(COMPLEX_NORMAL.loc, torch.triu(torch.ones(5, 5))),
    ),
    ("GP.load_state_dict, a path", lambda: GP.load_state_dict("state.pt")),
    ("LAPLACE.load_state_dict, None", lambda: LAPLACE.load_state_dict(None)),
    ("ArraySource, x is None", lambda: data.ArraySource(None)),
    ("Standardize, other columns", lambda: data.Standardize(WIDE[0], WIDE[0])(X, Y)),
    ("Standardize, labels as targets", lambda: data.Standardize(X[0], X[1], Y[0], Y[1])(X, LABELS)),
    ("Standardize, other targets", lambda: data.Standardize(X[0], X[1], X[2], X[3])(X, Y)),
    ("MappedSource, a tensor comes back", lambda: list(data.MappedSource(TABLE, lambda x, y: x))),
    ("MappedSource, rows are left out", lambda: list(data.MappedSource(TABLE, lambda x, y: (x[:5], y[:5])))),
    ("MappedSource, nothing comes back", lambda: list(data.MappedSource(TABLE, lambda x, y: None))),
    ("sample, widths differ", lambda: data.sample([(X, Y), (WIDE, Y)], 5)),
    ("mmd, ard_num_dims of other inputs", lambda: two_sample.mmd(X, X, PLANE)),
    ("mmd, active_dims of other inputs", lambda: two_sample.mmd(X, X, RBFKernel(active_dims=[7]))),
    ("exact_posterior, ard_num_dims", lambda: diagnostics.exact_posterior(PLANE, GAUSSIAN, X, Y, X)),
    ("exact_posterior, noise that is learned", lambda: diagnostics.exact_posterior(RBF, GAUSSIAN, X, Y, X, noise=Y)),
    ("certified_posterior, ard_num_dims", lambda: certificates.certified_posterior(PLANE, GAUSSIAN, X, Y)),
    ("log_determinant, ard_num_dims", lambda: certificates.log_determinant(PLANE, GAUSSIAN, X)),
    ("LocalizedMaclaurinGP.fit, ard_num_dims", lambda: models.LocalizedMaclaurinGP(PLANE, GAUSSIAN, 8).condition(X, Y)),
    ("Temperature, odds", lambda: diagnostics.Temperature(2.0)(3.0 * SHARES)),
    ("crps, counts", lambda: diagnostics.crps(torch.distributions.Poisson(Y), Y)),
    ("regression_mnll, heavy tails", lambda: diagnostics.regression_mnll(torch.distributions.StudentT(4.0, Y), Y)),
    ("approximate, a map of other inputs", lambda: rfgp.approximate(RBF, 8, input_dim=4, method=MAPS[0])),
    ("suggest_num_features, percents", lambda: selection.suggest_num_features(RBF, X, 5, method="fourier")),
    ("Stacked, no operators", lambda: operators.Stacked()),
    ("LaplaceKernel, ard_num_dims of other inputs", lambda: kernels.LaplaceKernel(ard_num_dims=2)(X)),
    ("AdvectedKernel, ard_num_dims of other inputs", lambda: kernels.AdvectedKernel(2, ard_num_dims=2)(X)),
    ("softmax kernel, ard_num_dims", lambda: kernels.ExponentialDotProductKernel(ard_num_dims=2)(X)),
    ("approximate, more features than memory", lambda: rfgp.approximate(RBF, 10**12, input_dim=3)),
    ("GP.sample_functions, more than memory", lambda: GP.sample_functions(10**12)),
]
CALLS = [pytest.param(call, id=name) for name, call in LISTED]


@pytest.mark.every_case
@pytest.mark.parametrize("call", CALLS)
def test_a_bad_call_is_refused_with_advice(call):
    check_refused(call)


@pytest.mark.parametrize("call", [MAPS[0], CURL.features, GP.posterior, SQUARES.predict])
def test_a_single_row_is_told_to_be_unsqueezed_in_front(call):
    assert "unsqueeze(0) for a single row" in str(refusal(lambda: call(ROW)))


def test_a_single_row_that_was_made_a_column_is_told_so():
    assert "unsqueeze(0) for a single row of 3 numbers" in str(refusal(lambda: MAPS[0](ROW.unsqueeze(-1))))


def test_one_column_may_be_either():
    assert "unsqueeze(0) for a single row, or x.unsqueeze(-1) for a single column" in str(refusal(lambda: SERIES(ROW)))
