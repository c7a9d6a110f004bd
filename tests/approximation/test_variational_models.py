"""Kernels with features in GPyTorch's variational models have the exact prior variance, and equal dense algebra."""

import copy

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import AdditiveKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.variational import CholeskyVariationalDistribution, UnwhitenedVariationalStrategy, VariationalStrategy

import rfgp

pytestmark = pytest.mark.usefixtures("float64_default")
INDUCING, JITTER = 8, 1e-4


def inputs():
    x = 3.0 * torch.rand(20, 2, generator=torch.Generator().manual_seed(0))
    return x, torch.cat([x[:5], 3.0 * torch.rand(INDUCING - 5, 2, generator=torch.Generator().manual_seed(1))])


def landmarks(kernel, x):
    return rfgp.approximate(kernel, 6, method="landmarks", train_inputs=x, seed=0)


KERNELS = {
    "landmarks": lambda x: landmarks(ScaleKernel(MaternKernel(nu=1.5)), x),
    "scaled later": lambda x: ScaleKernel(landmarks(MaternKernel(nu=0.5), x)),
    "sum": lambda x: landmarks(RBFKernel(), x) + rfgp.approximate(ScaleKernel(RBFKernel()), 8, input_dim=2, seed=0),
    "GPyTorch's sum": lambda x: AdditiveKernel(landmarks(RBFKernel(), x), landmarks(MaternKernel(nu=0.5), x)),
    "grid": lambda x: rfgp.approximate(MaternKernel(nu=1.5), 25, method="fourier_grid", train_inputs=x),
    "random": lambda x: rfgp.approximate(RBFKernel(), 64, input_dim=2, seed=0),
}


class Model(gpytorch.models.ApproximateGP):
    def __init__(self, kernel, points, strategy):
        distribution = CholeskyVariationalDistribution(len(points), mean_init_std=0.5)
        super().__init__(strategy(self, points, distribution, jitter_val=JITTER))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def low_rank(kernel, x):
    """The matrix of features and the exact variances, by the leaves."""
    if isinstance(kernel, rfgp.approximation.FeatureKernel):
        features, missing = kernel.features(x), kernel.residual_variance(x)
        return features @ features.mT, torch.zeros(len(x)) if missing is None else missing
    if isinstance(kernel, ScaleKernel):
        return tuple(kernel.outputscale * part for part in low_rank(kernel.base_kernel, x))
    return tuple(map(sum, zip(*(low_rank(part, x) for part in kernel.kernels), strict=True)))


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("strategy", [VariationalStrategy, UnwhitenedVariationalStrategy])
@pytest.mark.parametrize("name", KERNELS)
def test_matrices_have_what_the_features_leave_over(name, strategy, is_training):
    torch.manual_seed(0)
    x, points = inputs()
    kernel = KERNELS[name](x)
    with torch.no_grad():
        matrix, missing = low_rank(kernel, torch.cat([points, x]))
        every = torch.cat([points, x])
        prior = matrix + (every[:, None] == every).all(-1) * missing
    model = copy.deepcopy(Model(kernel, points, strategy)).train()
    model.variational_strategy.variational_params_initialized.fill_(1)
    distribution = model.variational_strategy._variational_distribution
    distribution.variational_mean.data = torch.randn(INDUCING)
    distribution.chol_variational_covar.data = 0.3 * torch.randn(INDUCING, INDUCING).tril() + torch.eye(INDUCING)
    model.train(is_training)
    found = model(x)
    inner, cross = prior[:INDUCING, :INDUCING] + JITTER * torch.eye(INDUCING), prior[:INDUCING, INDUCING:]
    root = torch.linalg.cholesky(inner) if strategy is VariationalStrategy else torch.eye(INDUCING)
    spread = root @ distribution.chol_variational_covar.tril()
    weights = torch.linalg.solve(inner, cross)
    wanted = prior[INDUCING:, INDUCING:] + weights.mT @ (spread @ spread.mT - inner) @ weights
    assert torch.allclose(found.mean, weights.mT @ root @ distribution.variational_mean, atol=1e-6)
    assert torch.allclose(found.variance, wanted.diagonal(), atol=3.0 * JITTER)
    if not is_training:
        assert torch.allclose(found.covariance_matrix, wanted, atol=3.0 * JITTER)
    assert torch.allclose(model.covar_module(x, diag=True), prior[INDUCING:, INDUCING:].diagonal())
    assert torch.allclose(model.covar_module(x, points).to_dense(), prior[INDUCING:, :INDUCING])


def test_prior_variances_are_exact_and_have_gradients():
    x, points = inputs()
    exact = ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2))
    model = Model(landmarks(exact, x), points, VariationalStrategy)
    assert torch.allclose(model.covar_module(x).to_dense().diagonal(), exact(x, diag=True))
    objective = gpytorch.mlls.VariationalELBO(gpytorch.likelihoods.GaussianLikelihood(), model, num_data=len(x))
    objective(model(x), x.sum(-1)).backward()
    assert bool((model.covar_module.base_kernel.raw_lengthscale.grad != 0).all())
    likelihood = gpytorch.likelihoods.BernoulliLikelihood()
    own = rfgp.models.WeightSpaceVariationalGP(landmarks(ScaleKernel(RBFKernel()), x), likelihood)
    assert not own.covar_module.includes_residual
    assert not landmarks(RBFKernel(), x).includes_residual
