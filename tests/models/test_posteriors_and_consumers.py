"""Every kind of posterior with everything that takes one: each is right, or refused in words."""

import pytest
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    GaussianLikelihood,
    MultitaskGaussianLikelihood,
    SoftmaxLikelihood,
    StudentTLikelihood,
)

import rfgp
from rfgp.inference.posterior.square_root import SquareRootPosterior
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.models import LaplaceGP, WeightSpaceGP, WeightSpaceVariationalGP

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the", "ignore:Converting a tensor"),
]
ROWS, MANY, DRAWS = 80, 40, 4000
X = torch.rand(ROWS, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
NEW = torch.rand(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def kernel(base=None, method="auto"):
    exact = ScaleKernel(RBFKernel()) if base is None else base
    return rfgp.approximate(exact, 8, input_dim=2, seed=0, method=method)


def classes(count, method="auto"):
    y = torch.arange(ROWS) % count
    return WeightSpaceGP(kernel(method=method), DirichletClassificationLikelihood(num_classes=count)).condition(X, y), y


def one(**options):
    y = torch.sin(3 * X).sum(-1)
    return WeightSpaceGP(kernel(), GaussianLikelihood(), **options).condition(X, y), y


def several():
    y = torch.stack([torch.sin(X[:, 0]), torch.cos(X[:, 1])], -1)
    exact = MultitaskKernel(RBFKernel(), num_tasks=2)
    return WeightSpaceGP(kernel(exact), MultitaskGaussianLikelihood(num_tasks=2)).condition(X, y), y


def laplace(likelihood, y):
    return LaplaceGP(kernel(), likelihood).condition(X, y), y


def variational():
    y = torch.sin(3 * X).sum(-1)
    model = WeightSpaceVariationalGP(kernel(), GaussianLikelihood())
    model.natural_step(X, y)
    return model.eval(), y


POSTERIORS = {
    "weights": one,
    "mixture": lambda: one(num_draws=2),
    "few classes": lambda: classes(3),
    "many classes": lambda: classes(MANY),
    "many classes, complex": lambda: classes(MANY, "fourier:complex"),
    "Kronecker": several,
    "Laplace, one function": lambda: laplace(StudentTLikelihood(), torch.sin(3 * X).sum(-1)),
    "Laplace, two classes": lambda: laplace(BernoulliLikelihood(), (torch.arange(ROWS) % 2).double()),
    "Laplace, classes": lambda: laplace(SoftmaxLikelihood(num_classes=3, mixing_weights=False), torch.arange(ROWS) % 3),
    "variational": variational,
}


def by_row(values, model):
    """Values (N, T) of T functions or classes at N points, as maps have them."""
    is_classes = values.dim() > 1 and values.shape[-1] == len(NEW) != getattr(model, "num_outputs", 0)
    return values.mT if is_classes else values


def check_covariance(model, y):
    found, first, last = model.posterior(NEW), torch.tensor([0, 2]), torch.tensor([4, 2])
    dense = found.covariance_matrix
    diagonal = dense.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(diagonal.reshape(found.variance.shape), found.variance, rtol=1e-6, atol=1e-9)
    entries = found.lazy_covariance_matrix[..., first, last]
    torch.testing.assert_close(entries, dense[..., first, last], rtol=1e-6, atol=1e-9)


def check_samples(model, y):
    torch.manual_seed(0)
    found = model.posterior(NEW)
    draws = model.sample_functions(DRAWS)(NEW).reshape(DRAWS, *found.mean.shape)
    error = (draws.mean(0) - found.mean).abs() / (found.variance / DRAWS).sqrt()
    assert error.max() < 6.0  # of up to 200 values


def check_map(model, y):
    found, summary = model.posterior(NEW), rfgp.predict_map(model, NEW, progress=False)
    for mapped, wanted in ((summary.mean, found.mean), (summary.variance, found.variance)):
        torch.testing.assert_close(mapped, by_row(wanted, model), rtol=1e-8, atol=1e-10)


def check_points(model, y):
    found = model.posterior(NEW)
    points = model.point_predictor()(NEW)
    for value, wanted in ((points.mean, found.mean), (points.variance, found.variance)):
        torch.testing.assert_close(value, by_row(wanted, model).reshape(value.shape), rtol=1e-8, atol=1e-10)


def check_left_out(model, y):
    """The first row, by a fit to the others."""
    found = model.leave_one_out(X, y).mean[..., :1, :] if y.dim() > 1 else model.leave_one_out(X, y).mean[..., :1]
    wanted = model.condition(X[1:], y[1:]).posterior(X[:1]).mean
    torch.testing.assert_close(found.reshape(wanted.shape), wanted, rtol=1e-6, atol=1e-8)


def check_conditioned(model, y):
    found = model.condition(X[:60], y[:60]).update(X[60:], y[60:]).posterior(NEW)
    wanted = model.condition(X, y).posterior(NEW)
    torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(found.variance, wanted.variance, rtol=1e-7, atol=1e-9)


CONSUMERS = {
    "covariance": check_covariance,
    "samples": check_samples,
    "map": check_map,
    "points": check_points,
    "left out": check_left_out,
    "conditioned": check_conditioned,
}
OF_ALL = ("covariance", "map")
"""What takes the posteriors of models that are not sums over rows."""
PAIRS = [
    (name, consumer)
    for name in POSTERIORS
    for consumer in (OF_ALL if name.startswith(("Laplace", "variational")) else CONSUMERS)
]


@pytest.mark.parametrize(("name", "consumer"), PAIRS)
def test_a_posterior_is_right_for_what_takes_it(name, consumer):
    model, y = POSTERIORS[name]()
    with torch.no_grad():
        CONSUMERS[consumer](model, y)


@pytest.mark.parametrize("name", ["weights", "Kronecker", "few classes", "many classes"])
def test_a_root_of_one_posterior(name):
    """Conditioning takes one system; those of classes are several."""
    with torch.no_grad():
        model, _ = POSTERIORS[name]()
        posterior, factor = model.weight_posterior(), model.regression().factor()
        if "classes" in name:
            with pytest.raises(ValueError, match="expected one posterior"):
                SquareRootPosterior.of(posterior, factor)
            return
        root = SquareRootPosterior.of(posterior, factor).root_at(model.covar_module.scalar_features(NEW))
        wanted = posterior.function_variance(model.covar_module.scalar_features(NEW), factor)
        torch.testing.assert_close(root.square().sum(-1).reshape(-1), wanted)
