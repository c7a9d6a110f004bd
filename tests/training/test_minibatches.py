"""Training of variational models, and of weight-space models from loaders."""

from __future__ import annotations

import math
import warnings

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    LaplaceLikelihood,
    SoftmaxLikelihood,
    StudentTLikelihood,
)
from gpytorch.means import ConstantMean
from torch.utils.data import DataLoader, TensorDataset

import rfgp
from rfgp.approximation import LandmarkKernel
from rfgp.models import WeightSpaceGP, WeightSpaceVariationalGP
from rfgp.training import Auto, Minibatches
from rfgp.training.bound import BoundObjective
from rfgp.training.minibatches import RowBatches

pytestmark = pytest.mark.usefixtures("float64_default")

WIDTH = 32


def rows(count=80, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 2, generator=generator)
    return x, torch.sin(2.0 * x.sum(-1)) + 0.1 * torch.randn(count, generator=generator)


def kernel(method="auto"):
    known = {"train_inputs": rows()[0]} if method == "landmarks" else {"input_dim": 2}
    return rfgp.approximate(ScaleKernel(RBFKernel()), WIDTH, method=method, seed=0, **known)


def model_of(likelihood, method="auto", **options):
    return WeightSpaceVariationalGP(kernel(method), likelihood, ConstantMean(), **options)


def labels(y, seed=2):
    noise = torch.randn(len(y), generator=torch.Generator().manual_seed(seed))
    return (y + 0.3 * noise > 0.0).double()


@pytest.mark.smoke
@pytest.mark.parametrize("method", ["auto", "landmarks"])
@pytest.mark.long("hundreds of epochs")
def test_bound_of_gaussian_rows_ends_where_the_evidence_does(method):
    """For landmarks it is the variational bound of the exact kernel."""
    x, y = rows()
    exact = WeightSpaceGP(
        kernel(method), GaussianLikelihood(), ConstantMean(), residual="vfe" if method == "landmarks" else "none"
    )
    wanted = rfgp.fit(exact, x, y, strategy="evidence")
    model = model_of(GaussianLikelihood(), method)
    found = rfgp.fit(model, x, y)
    assert found.converged
    assert abs(found.log_marginal_likelihood - wanted.log_marginal_likelihood) < 1e-5
    torch.testing.assert_close(model.posterior(x).mean, exact.posterior(x).mean, rtol=1e-4, atol=1e-4)
    assert not model.training and set(found.parameters) == set(wanted.parameters)


@pytest.mark.parametrize("make", [BernoulliLikelihood, StudentTLikelihood, LaplaceLikelihood])
def test_gradient_of_the_best_bound_is_that_of_differences(make):
    x, y = rows(60)
    model = model_of(make())
    objective = BoundObjective(model, x, labels(y) if make is BernoulliLikelihood else y)
    objective.evidence().backward()
    parameter = next(p for name, p in model.covar_module.named_parameters() if "lengthscale" in name)
    values = []
    for sign in (1.0, -1.0):
        with torch.no_grad():
            parameter.add_(1e-4 * sign)
            values.append(objective.evidence())
            parameter.sub_(1e-4 * sign)
    # GPyTorch's log normal cdf is an approximation, whose gradient is not exactly that of its value
    tolerance = 1e-3 if make is BernoulliLikelihood else 1e-4
    torch.testing.assert_close(parameter.grad.sum(), (values[0] - values[1]) / 2e-4, rtol=tolerance, atol=1e-4)


@pytest.mark.parametrize("make", [LaplaceLikelihood, StudentTLikelihood])
def test_starts_of_regression_do_not_depend_on_units(make):
    """The noise starts from the variance of the targets, and so the bound of the start moves by the log of the unit."""
    x, y = rows(60)
    bounds = [rfgp.fit(model_of(make()), x, targets, max_evaluations=1) for targets in (y, 1e4 * y + 1e6)]
    first, second = (found.log_marginal_likelihood for found in bounds)
    assert abs(first - len(x) * math.log(1e4) - second) < 1e-4


@pytest.mark.parametrize("make", [BernoulliLikelihood, StudentTLikelihood])
def test_all_rows_beat_every_distribution_that_a_gradient_finds(make):
    """The bound that training reports is not below that of GPyTorch's own training of the weights from there."""
    x, y = rows(40)
    targets = labels(y) if make is BernoulliLikelihood else y
    model = model_of(make())
    found = rfgp.fit(model, x, targets, max_evaluations=10)
    objective = gpytorch.mlls.VariationalELBO(model.likelihood, model, num_data=len(x))
    model.train()
    optimizer = torch.optim.Adam(model.variational_parameters(), lr=1e-3)
    for _ in range(50):
        optimizer.zero_grad()
        loss = -objective(model(x), targets)
        loss.backward()
        optimizer.step()
    assert float(-loss.detach()) * len(x) <= found.log_marginal_likelihood + 1e-7


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.long("hundreds of epochs")
def test_minibatches_come_near_the_bound_of_all_rows(covariance):
    x, y = rows(200)
    best = rfgp.fit(model_of(BernoulliLikelihood()), x, labels(y), max_evaluations=40).log_marginal_likelihood
    model = model_of(BernoulliLikelihood(), covariance=covariance)
    loader = DataLoader(TensorDataset(x, labels(y)), 45, shuffle=True, generator=torch.Generator().manual_seed(0))
    found = rfgp.fit(model, loader, strategy=Minibatches(epochs=30 if covariance == "full" else 150))
    assert len(found.trace) == (30 if covariance == "full" else 150)
    assert found.evaluations == 5 * len(found.trace)
    assert found.log_marginal_likelihood > found.trace[0]
    assert found.log_marginal_likelihood > best - (2.0 if covariance == "full" else 40.0)
    assert "minibatches" in found.stages[0].name and "epochs" in str(found)


def test_minibatches_of_classes_learn_them():
    x, y = rows(300)
    classes = (y > -0.5).long() + (y > 0.5)
    model = model_of(SoftmaxLikelihood(num_classes=3, mixing_weights=False))
    found = rfgp.fit(model, x, classes, strategy=Minibatches(epochs=20))
    new, values = rows(300, seed=5)
    probabilities = model.likelihood(model.posterior(new)).probs.mean(0)
    wrong = probabilities.argmax(-1) != (values > -0.5).long() + (values > 0.5)
    assert float(wrong.double().mean()) < 0.15
    assert found.log_marginal_likelihood > -len(x) * 0.6


@pytest.mark.parametrize(
    "options", [{"max_evaluations": 30}, {"strategy": Minibatches(epochs=10)}], ids=["all rows", "minibatches"]
)
@pytest.mark.long("hundreds of epochs")
def test_learned_landmarks_raise_the_bound_above_that_of_fixed_ones(options):
    """They are the inducing points of GPyTorch's sparse variational model."""
    x, _ = rows()
    y = labels(x.square().sum(-1) - 1.4)
    found = {}
    for learn in (False, True):
        kernel = ScaleKernel(LandmarkKernel(RBFKernel(), x[:5], learn=learn))
        model = WeightSpaceVariationalGP(kernel, BernoulliLikelihood())
        found[learn] = rfgp.fit(model, x, y, **options).log_marginal_likelihood
        assert learn != torch.equal(kernel.base_kernel.landmarks, x[:5])
    assert found[True] > found[False] + 5.0


def test_parameters_that_require_no_gradients_stay():
    x, y = rows(100)
    for strategy in (Auto(initialize=False), Minibatches(epochs=3, initialize=False)):
        model = model_of(BernoulliLikelihood())
        for part in (model.covar_module, model.mean_module):
            part.requires_grad_(False)
        before = [p.clone() for p in (*model.covar_module.parameters(), *model.mean_module.parameters())]
        prior = model.elbo(x, labels(y)).detach()
        found = rfgp.fit(model, x, labels(y), strategy=strategy)
        after = [*model.covar_module.parameters(), *model.mean_module.parameters()]
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        assert found.log_marginal_likelihood > float(prior)


def test_a_loader_gives_the_evidence_of_all_its_rows():
    x, y = rows()
    batches = list(zip(x.split(50), y.split(50), strict=True))
    found, wanted = (WeightSpaceGP(kernel(), GaussianLikelihood(), ConstantMean()) for _ in range(2))
    of_loader = rfgp.fit(found, batches, max_evaluations=25)
    of_rows = rfgp.fit(wanted, x, y, strategy="evidence", max_evaluations=25)
    assert of_loader.log_marginal_likelihood == pytest.approx(of_rows.log_marginal_likelihood, rel=1e-8)
    torch.testing.assert_close(found.posterior(x).mean, wanted.posterior(x).mean, rtol=1e-5, atol=1e-6)


def test_a_loader_may_carry_noise():
    x, y = rows()
    noise = 0.01 + 0.05 * x[:, 0].square()
    batches = list(zip(x.split(50), y.split(50), noise.split(50), strict=True))
    model = WeightSpaceGP(kernel(), FixedNoiseGaussianLikelihood(noise), ConstantMean())
    wanted = WeightSpaceGP(kernel(), FixedNoiseGaussianLikelihood(noise), ConstantMean())
    found = rfgp.fit(model, batches, max_evaluations=20)
    of_rows = rfgp.fit(wanted, x, y, noise=noise, max_evaluations=20)
    assert found.log_marginal_likelihood == pytest.approx(of_rows.log_marginal_likelihood, rel=1e-6)


def test_batches_have_every_row_once_and_sizes_that_differ_by_one():
    x, y = torch.arange(23.0).unsqueeze(-1), torch.arange(23.0)
    loader = RowBatches(x, y, 5)
    first, second = list(loader), list(loader)
    for batches in (first, second):
        assert sorted(torch.cat([b for _, b in batches]).tolist()) == y.tolist()
        assert {len(b) for _, b in batches} <= {4, 5} and all(torch.equal(a[:, 0], b) for a, b in batches)
    assert not all(torch.equal(a[1], b[1]) for a, b in zip(first, second, strict=True))


X, Y = (part.double() for part in rows(40))
B = (Y > 0).double()
BAD = {
    "iterator": (lambda model: rfgp.fit(model, iter([(X, B)])), "used up"),
    "empty": (lambda model: rfgp.fit(model, []), "at least one batch"),
    "labels": (lambda model: rfgp.fit(model, [(X, B), (X, Y)]), "expected labels 0 and 1"),
    "noise": (lambda model: rfgp.fit(model, X, B, noise=B + 1.0), "expected no noise"),
    "noise in batches": (lambda model: rfgp.fit(model, [(X, B, B + 1.0)]), "got noise too"),
    "strategy": (lambda model: rfgp.fit(model, X, B, strategy="blocks"), "expected strategy"),
    "loader and strategy": (lambda model: rfgp.fit(model, [(X, B)], strategy="evidence"), "leave strategy out"),
    "epochs": (lambda model: rfgp.fit(model, X, B, strategy=Minibatches(epochs=0)), "epochs"),
    "num_data": (lambda model: rfgp.fit(model, [(X, B)], strategy=Minibatches(num_data=-1)), "num_data"),
    "y": (lambda model: rfgp.fit(model, [(X, B)], B), "batches alone"),
    "no y": (lambda model: rfgp.fit(model, X), "y"),
    "rows": (lambda model: rfgp.fit(model, X, B[:3]), "one per row"),
    "nothing": (lambda model: rfgp.fit(model), "tensors x and y"),
    "dtype": (lambda model: rfgp.fit(model, [(X.float(), B)]), "dtype"),
}
BAD_LOADERS = {
    "strategy": (lambda model: rfgp.fit(model, [(X, Y)], strategy="subset"), 'strategy="evidence"'),
    "y": (lambda model: rfgp.fit(model, [(X, Y)], Y), "beside"),
    "iterator": (lambda model: rfgp.fit(model, iter([(X, Y)])), "used up"),
    "pairs": (lambda model: rfgp.fit(model, [X]), "expected batches"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_data_leave_a_variational_model_as_it_was(name):
    model = model_of(BernoulliLikelihood())
    before = {key: value.clone() for key, value in model.state_dict().items()}
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call(model)
    after = model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(after[key], value) for key, value in before.items())


@pytest.mark.parametrize("name", BAD_LOADERS)
def test_bad_loaders_leave_a_weight_space_model_as_it_was(name):
    model = WeightSpaceGP(kernel(), GaussianLikelihood())
    before = {key: value.clone() for key, value in model.state_dict().items()}
    call, message = BAD_LOADERS[name]
    with pytest.raises(ValueError, match=message):
        call(model)
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0.0, atol=0.0, equal_nan=True)


def sorted_table(count=6000):
    """Rows in the order of their first column: the first ones are far from typical."""
    x, y = rows(count)
    order = x[:, 0].argsort()
    return x[order], 3.0 * x[order, 0] + y[order]


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (WeightSpaceGP, {"max_evaluations": 1}),
        (WeightSpaceVariationalGP, {"strategy": Minibatches(epochs=1)}),
        (WeightSpaceVariationalGP, {"strategy": Minibatches(epochs=1, num_data=6000)}),
    ],
)
def test_starts_of_a_sorted_table_are_those_of_all_rows(make, options):
    """Means of 2,000 of the 6,000 rows, in standard errors; the first rows are a standard deviation away."""
    x, y = sorted_table()
    model = make(kernel(), GaussianLikelihood(), ConstantMean())
    rfgp.fit(model, rfgp.data.ArraySource(x, y, batch_size=500), **options)
    center = next(part.center for part in model.covar_module.modules() if getattr(part, "center", None) is not None)
    error = x.std(0) * math.sqrt((1.0 - 1.0 / 3.0) / 2000)
    assert (((center - x.mean(0)) / error).abs() < 4.0).all()
