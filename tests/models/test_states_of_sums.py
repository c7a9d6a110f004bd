"""What sums depend on is part of their record, and of states what is beside the parts of a model."""

import pytest
import torch
from gpytorch.kernels import MaternKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood, GaussianLikelihood

import rfgp
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")

X = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def kernel(method):
    return rfgp.approximate(MaternKernel(nu=1.5), 9, method=method, train_inputs=X, seed=0)


@pytest.mark.parametrize(("method", "name"), [("landmarks", "landmarks"), ("fourier_grid", "spacing")])
def test_sums_of_other_buffers_are_not_used(method, name):
    model = WeightSpaceGP(kernel(method), GaussianLikelihood()).condition(X, X.sum(-1))
    (buffer,) = (value for key, value in model.covar_module.named_buffers() if key.endswith(name))
    kept = buffer.clone()
    buffer.mul_(1.01)
    with pytest.raises(ValueError, match="the statistics were computed"):
        model.posterior(X[:2])
    buffer.copy_(kept)
    assert bool(torch.isfinite(model.posterior(X[:2]).mean).all())


def test_states_have_the_noise_of_labels_where_there_is_one():
    labels = torch.arange(30) % 3
    saved, other = (
        WeightSpaceGP(kernel("landmarks"), DirichletClassificationLikelihood(labels, alpha_epsilon=alpha), None)
        for alpha in (0.02, 0.3)
    )
    other.load_state_dict(saved.condition(X, labels).state_dict())
    assert other.likelihood.alpha_epsilon == pytest.approx(0.02)
    plain, twin = (WeightSpaceGP(kernel("landmarks"), GaussianLikelihood()) for _ in range(2))
    twin.load_state_dict(plain.condition(X, X.sum(-1)).state_dict())
    assert not hasattr(twin.likelihood, "alpha_epsilon")
    torch.testing.assert_close(twin.posterior(X).mean, plain.posterior(X).mean)
