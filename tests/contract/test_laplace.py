"""LaplaceGP on landmarks, alone, in blocks and with neighbors, equals dense algebra with the prior it stands for."""

import copy
from functools import partial

import dense_laplace as dense
import numpy as np
import pytest
import torch
from contract import LOCAL, SETTINGS, Model
from gpytorch.likelihoods import BernoulliLikelihood, SoftmaxLikelihood, StudentTLikelihood
from gpytorch.means import ConstantMean

from rfgp.likelihoods import (
    HeteroscedasticSoftmaxLikelihood,
    NegativeBinomialLikelihood,
    PoissonLikelihood,
    SeveralFunctionsLikelihood,
)
from rfgp.models import LaplaceGP

pytestmark = [pytest.mark.usefixtures("float64_default"), pytest.mark.every_case]
CLASSES = 3


def student():
    likelihood = StudentTLikelihood()
    likelihood.initialize(deg_free=4.0, noise=0.1)
    return likelihood


def overdispersed():
    likelihood = NegativeBinomialLikelihood()
    likelihood.dispersion = 0.3
    return likelihood


def noisy_softmax():
    likelihood = HeteroscedasticSoftmaxLikelihood(num_classes=CLASSES)
    likelihood.noise, likelihood.noise_scale = 0.2, 1.5
    return likelihood


class NormalOfTwo(SeveralFunctionsLikelihood):
    """Numbers whose mean is the first function, and whose log variance is the second one: a likelihood of a user."""

    def __init__(self):
        super().__init__(num_functions=2)

    def forward(self, f, *args, **kwargs):
        return torch.distributions.Normal(f[..., 0], (0.5 * f[..., 1]).exp())


def labels(y):
    return torch.bucketize(y.contiguous(), torch.tensor([-0.5, 0.5]).to(y))


# By name: the likelihood, its targets, and the derivatives of its log density.
LIKELIHOODS = {
    "probit": (BernoulliLikelihood, lambda y: (y > 0.0).double(), dense.probit),
    "counts": (PoissonLikelihood, lambda y: (3.0 * y.abs()).round(), dense.poisson),
    "overdispersed": (
        overdispersed,
        lambda y: (3.0 * y.abs()).round(),
        partial(dense.negative_binomial, dispersion=0.3),
    ),
    "student": (student, lambda y: y, partial(dense.student_t, degrees=4.0, noise=0.1)),
    "softmax": (
        lambda: SoftmaxLikelihood(num_classes=CLASSES, mixing_weights=False),
        labels,
        partial(dense.softmax, num_classes=CLASSES),
    ),
    "noisy softmax": (noisy_softmax, labels, partial(dense.noisy_softmax, noise=0.2, scale=1.5)),
    "normal of two": (NormalOfTwo, lambda y: y, dense.normal_of_two),
}
CASES = [(name, settings) for name in LIKELIHOODS for settings in ("plain", *LOCAL)]
CASES.remove(("normal of two", "neighbors"))  # as the other likelihood of several functions
each = pytest.mark.parametrize(("name", "settings"), CASES)


def problem(name, settings):
    """A model without rows, its rows, and points."""
    case = Model("landmarks", "gaussian", settings, "complete")
    x, y, _ = case.rows()
    mean = ConstantMean()
    mean.constant = 0.2
    make, targets, _ = LIKELIHOODS[name]
    return LaplaceGP(case.case.approximated(x), make(), mean, **SETTINGS[settings]), x, targets(y), case.inputs()[1]


def result(model, name, settings, x, y, xs):
    """The dense result, by the prior of rows and points for every latent function."""
    case = Model("landmarks", "gaussian", settings, "complete")
    with torch.no_grad():
        prior = case.prior(model, torch.cat([x, xs]), len(x)).numpy()
    count, rows = model.latent.num_functions, len(x)
    blocks = [np.kron(np.eye(count), part) for part in (prior[:rows, :rows], prior[rows:, :rows], prior[rows:, rows:])]
    means = [np.full(count * size, 0.2) for size in (rows, len(xs))]
    step = partial(LIKELIHOODS[name][2], y=y.numpy())
    last = partial(step, is_expected=True) if isinstance(model.likelihood, SeveralFunctionsLikelihood) else step
    return dense.laplace(step, blocks[0], means[0], blocks[1], blocks[2], means[1], final=last)


def close(found, wanted, relative=1e-6):
    wanted = torch.as_tensor(wanted)
    assert float((found.detach() - wanted).abs().max()) <= relative * max(1.0, float(wanted.abs().max()))


@each
def test_evidence_means_and_covariances_between_points(name, settings):
    """Of several functions neighbors give covariances at single points alone."""
    model, x, y, xs = problem(name, settings)
    wanted = result(model, name, settings, x, y, xs)
    found = model.condition(x, y).posterior(xs)
    close(model.log_marginal_likelihood(), wanted.evidence)
    count = len(wanted.mean) // len(xs)
    order = np.arange(count * len(xs)).reshape(count, len(xs)).T.flatten()  # by points, as GPyTorch has them
    close(found.mean.flatten(), wanted.mean[order])
    covariance = torch.as_tensor(wanted.covariance[order][:, order])
    close(found.variance.flatten(), covariance.diagonal())
    same = torch.arange(len(order)) // count
    is_known = (same[:, None] == same) | (settings != "neighbors") | (count == 1)
    close(found.covariance_matrix * is_known, covariance * is_known)


@each
def test_copies_states_and_rows_that_come(name, settings):
    model, x, y, xs = problem(name, settings)
    model.condition(x, y)
    again = problem(name, settings)[0]
    again.load_state_dict(model.state_dict())
    for other in (copy.deepcopy(model), again):
        assert torch.equal(other.posterior(xs).mean, model.posterior(xs).mean)
        assert torch.equal(other.posterior(xs).variance, model.posterior(xs).variance)
    if settings in LOCAL:
        parts = problem(name, settings)[0].condition(x[:12], y[:12]).update(x[12:], y[12:])
        close(parts.posterior(xs).mean, model.posterior(xs).mean.detach())
        close(parts.log_marginal_likelihood(), model.log_marginal_likelihood().detach())
