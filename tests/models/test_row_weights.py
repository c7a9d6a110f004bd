"""Weights of rows divide the noise of every likelihood: equal to dense algebra, and to known noise."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood

import rfgp
from rfgp.likelihoods import DirichletClassificationLikelihood, MultitaskFixedNoiseGaussianLikelihood
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
MISSING = SEVERAL.masked_fill(torch.rand(SEVERAL.shape, generator=GENERATOR, dtype=torch.float64) < 0.3, torch.nan)


def scalar_kernel(num_features=10):
    return rfgp.approximate(
        ScaleKernel(RBFKernel(ard_num_dims=2)), num_features, method="landmarks", train_inputs=X, seed=0
    )


def task_kernel():
    torch.manual_seed(0)
    return rfgp.approximate(MultitaskKernel(RBFKernel(), 3, rank=2), 10, method="landmarks", train_inputs=X, seed=0)


def task_likelihood(rank):
    torch.manual_seed(1)
    likelihood = MultitaskGaussianLikelihood(3, rank=rank, has_global_noise=not rank)
    if rank:
        likelihood.task_noise_covar_factor.data = 0.5 * torch.randn(3, rank) + torch.eye(3)[:, :rank]
    return likelihood


def gaussian():
    likelihood = GaussianLikelihood()
    likelihood.noise = 0.07
    return likelihood


def close(one, other, bound=1e-9):
    assert (one - other).abs().max() <= bound * other.abs().max()


def check_alike(one, other):
    for name in ("mean", "covariance_matrix"):
        close(getattr(one.posterior(NEW), name), getattr(other.posterior(NEW), name))
    close(one.log_marginal_likelihood(), other.log_marginal_likelihood())


@pytest.mark.parametrize("block_size", [None, 8])
def test_gaussian_noise_is_divided(block_size):
    kernel = scalar_kernel()
    model = WeightSpaceGP(kernel, gaussian(), block_size=block_size).condition(X, Y, weights=WEIGHTS)
    known = WeightSpaceGP(kernel, FixedNoiseGaussianLikelihood(torch.ones(24)), block_size=block_size)
    known.condition(X, Y, 0.07 / WEIGHTS)
    check_alike(model, known)
    close(model.leave_one_out(X, Y, weights=WEIGHTS).mean, known.leave_one_out(X, Y, 0.07 / WEIGHTS).mean)
    lengths = [each.covar_module.exact_kernel.base_kernel.raw_lengthscale for each in (model, known)]
    slopes = [
        torch.autograd.grad(each.log_marginal_likelihood(), length)[0]
        for each, length in zip((model, known), lengths, strict=True)
    ]
    close(*slopes, 1e-8)
    slid = WeightSpaceGP(kernel, gaussian(), block_size=block_size).condition(X[:20], Y[:20], weights=WEIGHTS[:20])
    if block_size is None:
        check_alike(slid.update(X[20:], Y[20:], weights=WEIGHTS[20:]), known)


def test_known_noise_is_divided():
    noise = 0.01 + 0.1 * X[:, 0]
    first, second = (WeightSpaceGP(scalar_kernel(), FixedNoiseGaussianLikelihood(noise)) for _ in range(2))
    check_alike(first.condition(X, Y, weights=WEIGHTS), second.condition(X, Y, noise / WEIGHTS))


@pytest.mark.parametrize("y", [SEVERAL, MISSING], ids=["complete", "missing"])
def test_noise_of_several_outputs_is_divided(y):
    kernel, likelihood = task_kernel(), task_likelihood(0)
    model = WeightSpaceGP(kernel, likelihood).condition(X, y, weights=WEIGHTS)
    noise = (likelihood.task_noises + likelihood.noise).detach() / WEIGHTS.unsqueeze(-1)
    known = WeightSpaceGP(kernel, MultitaskFixedNoiseGaussianLikelihood(noise))
    check_alike(model, known.condition(X, y, noise))


@pytest.mark.parametrize("y", [SEVERAL, MISSING], ids=["complete", "missing"])
def test_correlated_noise_is_divided(y):
    kernel, likelihood = task_kernel(), task_likelihood(3)
    model = WeightSpaceGP(kernel, likelihood).condition(X, y, weights=WEIGHTS)
    is_in = ~torch.isnan(y).flatten()
    noise = torch.kron(torch.diag(1.0 / WEIGHTS), likelihood.task_noise_covar)[is_in][:, is_in]
    with torch.no_grad():
        cross, matrix = kernel(NEW, X).to_dense()[:, is_in], kernel(X).to_dense()[is_in][:, is_in]
        total, targets = matrix + noise, y.flatten()[is_in]
        mean = cross @ torch.linalg.solve(total, targets)
        density = torch.distributions.MultivariateNormal(torch.zeros_like(targets), total).log_prob(targets)
    close(model.posterior(NEW).mean.flatten(), mean)
    close(model.log_marginal_likelihood(), density)


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


@pytest.mark.parametrize("kind", ["gaussian", "labels"])
def test_weight_two_is_two_rows(kind):
    likelihood = gaussian() if kind == "gaussian" else DirichletClassificationLikelihood(num_classes=2)
    y = Y if kind == "gaussian" else (Y > 0.5).long()
    kernel, twice = scalar_kernel(), torch.where(torch.arange(24) < 7, 2.0, 1.0)
    once = WeightSpaceGP(kernel, likelihood).condition(X, y, weights=twice)
    both = WeightSpaceGP(kernel, likelihood).condition(torch.cat([X, X[:7]]), torch.cat([y, y[:7]]))
    for name in ("mean", "covariance_matrix"):
        close(getattr(once.posterior(NEW), name), getattr(both.posterior(NEW), name))


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
