"""Transforms of targets: their slopes and inverses, their moments, and which one is chosen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributions import LogNormal, Normal

from rfgp.study.tables.choices import Trials
from rfgp.study.tables.target_transform import Logarithm, TransformedNormal, candidates
from rfgp.training.timing import NEVER, Deadline

Y = torch.linspace(0.5, 9.0, 30, dtype=torch.float64)


POSITIVE, SHARES = Y.exp(), Y / 10.0


@pytest.mark.parametrize(
    "transform", [*candidates(POSITIVE, POSITIVE), *candidates(SHARES, SHARES)], ids=lambda one: one.kind
)
def test_inverse_and_slope(transform):
    y = SHARES.clone().requires_grad_()
    z = transform.forward(y)
    assert torch.allclose(transform.inverse(z), y, rtol=1e-10)
    (slope,) = torch.autograd.grad(z.sum(), y)
    assert torch.allclose(transform.log_slope(y), slope.log(), atol=1e-10)


def test_the_moments_and_quantiles_of_a_logarithm():
    latent = Normal(torch.tensor([0.0, 1.0]).double(), torch.tensor([0.5, 0.1]).double())
    made, exact = TransformedNormal(latent, [Logarithm()]), LogNormal(latent.mean, latent.stddev)
    y = torch.tensor([0.3, 4.0]).double()
    assert torch.allclose(made.mean, exact.mean, rtol=1e-8) and torch.allclose(made.stddev, exact.stddev, rtol=1e-6)
    assert torch.allclose(made.log_prob(y), exact.log_prob(y))
    assert torch.allclose(made.icdf(torch.tensor(0.1)), exact.icdf(torch.tensor(0.1)))


def test_a_skewed_target_gets_a_logarithm_and_a_normal_one_nothing():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.uniform(size=(150, 1)))
    normal = torch.sin(6.0 * x[:, 0]) + 0.3 * torch.from_numpy(rng.normal(size=150))
    y, zero = torch.stack([(1.5 * normal).exp(), normal], dim=-1), torch.zeros(1, 2, dtype=torch.float64)
    chosen = Trials(NEVER).transforms(x, y, "matern32", y)
    assert [one.kind for one in chosen] == ["log", "none"]
    assert Trials(Deadline.after(0.0)).transforms(x, y, "matern32", y) == ()
    others = Trials(NEVER).transforms(x, y, "matern32", torch.cat([y, zero]))
    assert all(bool(transform.allows(zero).all()) for transform in others), "a held-out zero has no logarithm"


def test_targets_that_a_transform_does_not_allow_have_no_density():
    normal = Normal(torch.zeros(3).double(), torch.ones(3).double(), validate_args=False)
    density = TransformedNormal(normal, [Logarithm()]).log_prob(torch.tensor([1.0, 0.0, -1.0]).double())
    assert density[0].isfinite() and density[1:].tolist() == [-torch.inf] * 2
