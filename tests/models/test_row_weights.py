"""Weights of rows divide the noise of labels, are seen in training, and are checked; see tests/contract for others."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood

import rfgp
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP
from rfgp.training import Evidence, Subset

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
]
GENERATOR = torch.Generator().manual_seed(3)
X = torch.rand(24, 2, generator=GENERATOR, dtype=torch.float64)
NEW = torch.rand(5, 2, generator=GENERATOR, dtype=torch.float64)
Y = torch.sin(6.0 * X[:, 0]) + X[:, 1]
WEIGHTS = 0.2 + 3.0 * torch.rand(24, generator=GENERATOR, dtype=torch.float64)
SEVERAL = torch.stack([Y, Y.square() - 1.0, X[:, 1]], dim=-1)


def scalar_kernel(num_features=10):
    return rfgp.approximate(
        ScaleKernel(RBFKernel(ard_num_dims=2)), num_features, method="landmarks", train_inputs=X, seed=0
    )


def task_kernel():
    torch.manual_seed(0)
    return rfgp.approximate(MultitaskKernel(RBFKernel(), 3, rank=2), 10, method="landmarks", train_inputs=X, seed=0)


def gaussian():
    likelihood = GaussianLikelihood()
    likelihood.noise = 0.07
    return likelihood


def close(one, other, bound=1e-9):
    assert (one - other).abs().max() <= bound * other.abs().max()


@pytest.mark.parametrize("num_classes", [3, 40])
def test_noise_of_labels_is_divided(num_classes):
    labels = torch.randint(num_classes, (24,), generator=torch.Generator().manual_seed(0))
    kernel = scalar_kernel()
    likelihood = DirichletClassificationLikelihood(num_classes=num_classes, dtype=torch.float64)
    model = WeightSpaceGP(kernel, likelihood).condition(X, labels, weights=WEIGHTS)
    stated = gpytorch.likelihoods.DirichletClassificationLikelihood(
        labels, likelihood.alpha_epsilon, dtype=torch.float64
    )
    noise, targets = stated.noise_covar.noise / WEIGHTS, stated.transformed_targets
    with torch.no_grad():
        matrix, cross = kernel(X).to_dense(), kernel(NEW, X).to_dense()
        total = matrix + torch.diag_embed(noise)
        mean = (cross @ torch.linalg.solve(total, targets.unsqueeze(-1))).squeeze(-1)
        normal = torch.distributions.MultivariateNormal(torch.zeros_like(targets), total)
        close(model.posterior(NEW).mean, mean)
        close(model.log_marginal_likelihood(), normal.log_prob(targets).sum())
    left = WeightSpaceGP(kernel, likelihood).condition(X[1:], labels[1:], weights=WEIGHTS[1:]).posterior(X[:1])
    close(model.leave_one_out(X, labels, weights=WEIGHTS).mean[:, 0], left.mean[:, 0], 1e-8)


@pytest.mark.parametrize("strategy", [Evidence(initialize=False), Subset(initialize=False)], ids=["evidence", "subset"])
@pytest.mark.parametrize("kind", ["gaussian", "labels", "several"])
def test_training_sees_weights(kind, strategy):
    """A row of tiny weight changes nothing, whatever its target."""
    y = {"gaussian": Y, "labels": (Y > 0.5).long(), "several": SEVERAL}[kind].clone()
    likelihoods = {"gaussian": GaussianLikelihood, "several": lambda: MultitaskGaussianLikelihood(3)}
    make = likelihoods.get(kind, lambda: DirichletClassificationLikelihood(num_classes=2, dtype=torch.float64))
    weights, wrong = torch.where(torch.arange(24) == 11, 1e-9, 1.0), y.clone()
    wrong[11] = 1 - wrong[11] if kind == "labels" else wrong[11] + 1.0
    found = []
    for targets in (y, wrong):
        model = WeightSpaceGP(task_kernel() if kind == "several" else scalar_kernel(), make())
        rfgp.fit(model, X, targets, weights=weights, strategy=strategy, max_evaluations=5, progress=False)
        with torch.no_grad():
            found.append(model.posterior(NEW).mean)
    close(*found, 1e-4)


def test_weights_are_checked():
    model = WeightSpaceGP(scalar_kernel(), gaussian())
    for weights, match in ((torch.zeros(24), "leave rows of weight zero out"), (torch.ones(23), "one per row")):
        with pytest.raises(ValueError, match=match):
            model.condition(X, Y, weights=weights)
    with pytest.raises(ValueError, match=r"expected a torch\.Tensor for x beside weights"):
        model.condition([(X, Y)], weights=WEIGHTS)
    assert model.conditioned is None
    model.condition(X, Y, weights=WEIGHTS).downdate(X[:4], Y[:4], weights=WEIGHTS[:4])
