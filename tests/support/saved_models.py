"""Fitted models of every kind, what they predict, and their way through a file."""

import copy
import functools
import warnings

import gpytorch
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    SoftmaxLikelihood,
)
from gpytorch.means import ConstantMean
from output_problems import output_kernel, output_rows
from problems import INPUTS, model_for, polynomial, regression_rows, rows_for

import rfgp
from rfgp import models
from rfgp.averaging import AveragedGP, AveragedGPClassifier
from rfgp.inference.noise.class_labels import MANY_CLASSES
from rfgp.likelihoods import DirichletClassificationLikelihood, PoissonLikelihood
from rfgp.sklearn.forest import forest_baseline

ROWS, MANY = 40, max(10, MANY_CLASSES)


def landmarks(x, count=8):
    """A kernel with landmarks that are no rows."""
    inner = 0.9 * x[:count] + 0.1 * x[count : 2 * count]
    return ScaleKernel(rfgp.approximation.LandmarkKernel(MaternKernel(nu=1.5), inner))


def in_blocks(**options):
    x, y = regression_rows(ROWS)
    settings = {"block_size": 10, "num_neighbors": 5} | options
    return models.WeightSpaceGP(landmarks(x), GaussianLikelihood(), ConstantMean(), **settings).condition(x, y)


def scalar(kind, **options):
    return model_for(kind, **options).condition(*rows_for(kind, ROWS))


def many_classes():
    x, _ = regression_rows(2 * ROWS)
    likelihood = DirichletClassificationLikelihood(num_classes=MANY)
    return models.WeightSpaceGP(polynomial(), likelihood).condition(x, torch.arange(2 * ROWS) % MANY)


def with_residual(residual):
    x, y = regression_rows(ROWS)
    return models.WeightSpaceGP(landmarks(x), GaussianLikelihood(), residual=residual).condition(x, y)


def a_mixture():
    kernel = polynomial(method="rademacher:real")
    return models.WeightSpaceGP(kernel, GaussianLikelihood(), num_draws=3).condition(*regression_rows(ROWS))


def with_known_noise():
    x, y = regression_rows(ROWS)
    likelihood = FixedNoiseGaussianLikelihood(0.1 + torch.rand(ROWS), learn_additional_noise=True)
    return models.WeightSpaceGP(polynomial(), likelihood, keep_data=True).condition(x, y)


def localized():
    x, y = regression_rows(ROWS)
    model = models.LocalizedMaclaurinGP(ScaleKernel(RBFKernel()), GaussianLikelihood(), num_features=10)
    return model.condition(x, y)


def laplace(likelihood, targets):
    x, y = regression_rows(ROWS)
    return models.LaplaceGP(polynomial(), likelihood).condition(x, targets(y))


def heteroscedastic():
    kernels = [rfgp.approximate(ScaleKernel(RBFKernel()), 16, input_dim=INPUTS, seed=seed) for seed in (0, 1)]
    return models.HeteroscedasticGP(*kernels).condition(*regression_rows(ROWS))


def variational():
    x, y = regression_rows(ROWS)
    model = models.WeightSpaceVariationalGP(polynomial(), BernoulliLikelihood(), ConstantMean())
    model.natural_step(x, (y > 0.0).to(y.dtype))
    return model.eval()


def squares(**options):
    kernel = output_kernel("helmholtz")
    return models.VectorLeastSquares(kernel, regularization=1e-3, **options).fit(*output_rows("helmholtz", ROWS))


def trained():
    exact = ScaleKernel(RBFKernel(ard_num_dims=INPUTS))
    exact.register_prior("scale_prior", gpytorch.priors.GammaPrior(2.0, 3.0), lambda m: m.outputscale)
    likelihood = GaussianLikelihood(noise_prior=gpytorch.priors.GammaPrior(1.1, 0.5))
    model = models.WeightSpaceGP(rfgp.approximate(exact, 16, input_dim=INPUTS, seed=0), likelihood)
    rfgp.fit(model, *regression_rows(ROWS), max_evaluations=3, progress=False)
    return model


def averaged():
    """Its landmarks are the training rows."""
    x, y = (part.double() for part in regression_rows(ROWS))
    kernel = ScaleKernel(rfgp.approximation.LandmarkKernel(MaternKernel(nu=1.5).double(), x)).double()
    model = models.WeightSpaceGP(kernel, GaussianLikelihood().double())
    return rfgp.fit(model, x, y, strategy="average", max_evaluations=5, progress=False).average


@functools.cache
def of_few_rows():
    """One of its members has a forest."""
    return AveragedGP(*(part.double() for part in regression_rows(ROWS)), functools.partial(forest_baseline, seed=0))


@functools.cache
def of_few_labels():
    x, y = regression_rows(ROWS)
    return AveragedGPClassifier(x.double(), (y > 0.0).long())


MODELS = {
    "gaussian": lambda: scalar("gaussian"),
    "complex features": lambda: scalar("gaussian", form="complex"),
    "complex targets": lambda: scalar("complex"),
    "class labels": lambda: scalar("dirichlet"),
    "many classes": many_classes,
    "known noise": with_known_noise,
    "bound": lambda: with_residual("vfe"),
    "noise of rows": lambda: with_residual("fitc"),
    "mixture": a_mixture,
    "blocks": lambda: in_blocks(num_neighbors=None),
    "neighbors": in_blocks,
    "localized": localized,
    "two classes": lambda: laplace(BernoulliLikelihood(), lambda y: y > 0.0),
    "counts": lambda: laplace(PoissonLikelihood(), lambda y: (3.0 * y.abs()).round()),
    "softmax": lambda: laplace(SoftmaxLikelihood(2, 3), lambda y: (y > 0.0).long() + (y > 0.5).long()),
    "heteroscedastic": heteroscedastic,
    "variational": variational,
    "least squares": squares,
    "least squares by L-BFGS": lambda: squares(solver="lbfgs"),
    "trained": trained,
    "few rows": lambda: copy.deepcopy(of_few_rows()),
    "few labels": lambda: copy.deepcopy(of_few_labels()),
}
WITH_ROWS = ("many classes", "blocks", "neighbors", "localized", "few rows", "few labels")


def predictions(model, seed=5):
    """What a model predicts at new inputs: all tensors that have to be those of the saved model."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(model, models.VectorLeastSquares):
        return [model.predict(torch.randn(7, 2, generator=generator)), model.weights]
    x = torch.randn(7, INPUTS, generator=generator)
    if isinstance(model, AveragedGPClassifier):
        left_out = model.leave_one_out(model.x, model.y)
        return [model.predictive(x).probs, left_out.probs, model.log_marginal_likelihood()]
    if isinstance(model, AveragedGP):
        found, left_out = model.predictive(x), model.leave_one_out(model.x, model.y)
        drawn = model.draw_functions(1, generator)[0](x)
        values = [found.mean, found.variance, found.icdf(0.9), left_out.mean, left_out.variance, drawn]
        return [*values, model.log_marginal_likelihood()]
    with torch.no_grad():
        found = model.posterior(x)
    values = [found.mean, found.variance]
    if hasattr(found, "covariance_matrix") and not isinstance(found, torch.distributions.Normal):
        values.append(found.covariance_matrix.detach())
    if hasattr(model, "sample_functions"):
        torch.manual_seed(seed)
        values.append(model.sample_functions(3)(x))
    if hasattr(model, "noise_variance"):
        values.append(model.noise_variance(x))
    if hasattr(model, "log_marginal_likelihood"):
        is_without = model.covar_module.is_complex and not torch.is_complex(found.mean)
        values += [] if is_without else [model.log_marginal_likelihood()]
    return [value.detach() for value in values]


def assert_same(found, wanted):
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)


def through_a_file(model, path, **options):
    """The model that :func:`rfgp.load` makes of a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rfgp.save(model, path, **options)
    return rfgp.load(path)
