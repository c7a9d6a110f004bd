"""The square-root form of the posterior of the weights, against the normal equations of all rows."""

import pytest
import torch

from rfgp.inference import KroneckerPosterior, OutputFactor, WeightPosterior
from rfgp.inference.posterior.square_root import SquareRootPosterior

N, D, T = 20, 6, 3


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def of_rows(features, y, noise=0.3):
    return SquareRootPosterior.of(
        WeightPosterior(features.mT @ features / noise, features.mT @ y / noise),
        OutputFactor.kronecker(torch.ones(1, 1, dtype=torch.float64), D),
    )


def moments(posterior, x):
    rows = posterior.root_at(x)
    return posterior.mean_at(x), rows @ rows.mT


def noise_blocks(*shape, noise=0.3):
    return torch.full((*shape, 1, 1), noise, dtype=torch.float64)


@pytest.mark.parametrize("count", [1, 4, 600])
def test_conditioning_is_a_fit_to_all_rows(count):
    old, new, y, z, x = draw(N, D), draw(count, D, seed=1), draw(N, 1, seed=2), draw(count, 1, seed=3), draw(5, D)
    found = of_rows(old, y).conditioned(new, z.reshape(1, count, 1), noise_blocks(1, count))
    wanted = of_rows(torch.cat([old, new]), torch.cat([y, z]))
    for a, b in zip(moments(found, x), moments(wanted, x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_batches_share_the_root():
    old, new, y, z, x = draw(N, D), draw(4, 2, D, seed=1), draw(N, 1, seed=2), draw(3, 4, 1, 2, 1, seed=3), draw(5, D)
    known = of_rows(old, y)
    found = known.conditioned(new, z, noise_blocks(4, 1, 2))
    assert found.root is known.root
    mean, covariance = moments(found, x)
    assert mean.shape == (3, 4, 1, 5, 1) and covariance.shape == (4, 1, 5, 5)
    for i in range(3):
        for j in range(4):
            wanted = of_rows(torch.cat([old, new[j]]), torch.cat([y, z[i, j, 0]]))
            torch.testing.assert_close((mean[i, j], covariance[j]), moments(wanted, x), rtol=1e-10, atol=1e-12)


def test_batches_can_be_conditioned_again():
    old, y, x = draw(N, D), draw(N, 1, seed=2), draw(4, 5, D)
    first, second = draw(4, 2, D, seed=1), draw(3, D, seed=5)
    known = of_rows(old, y).conditioned(first, draw(4, 1, 2, 1, seed=3), noise_blocks(4, 1, 2))
    found = moments(known.conditioned(second, draw(1, 3, 1, seed=4), noise_blocks(1, 3)), x)
    for j in range(4):
        features = torch.cat([old, first[j], second])
        wanted = of_rows(features, torch.cat([y, draw(4, 1, 2, 1, seed=3)[j, 0], draw(3, 1, seed=4)]))
        torch.testing.assert_close((found[0][j], found[1][j]), moments(wanted, x[j]), rtol=1e-10, atol=1e-12)


def test_correlated_outputs_with_correlated_noise():
    root, old, new = draw(T, 2, seed=7), draw(N, D), draw(4, D, seed=1)
    noise = (lambda a: a @ a.mT + torch.eye(T, dtype=torch.float64))(draw(T, T, seed=8))
    y, z, x = draw(N, T, seed=2), draw(4, T, seed=3), draw(5, D, seed=4)
    factor = OutputFactor.kronecker(root, D)

    def posterior(features, targets):
        precise = torch.linalg.solve(noise, root)
        return KroneckerPosterior(
            features.mT @ features, (features.mT @ targets @ precise).reshape(-1, 1), root.mT @ precise
        )

    known = SquareRootPosterior.of(posterior(old, y), factor)
    found = known.conditioned(new, z.unsqueeze(0), noise.expand(1, 4, T, T))
    both = torch.cat([old, new]), torch.cat([y, z])
    wanted = SquareRootPosterior.of(posterior(*both), factor)
    torch.testing.assert_close(moments(found, x), moments(wanted, x), rtol=1e-10, atol=1e-12)
    chosen = found.select([2, 0])
    rows = torch.tensor([2, 0])
    index = (3 * torch.arange(5)[:, None] + rows).reshape(-1)
    mean, covariance = moments(found, x)
    torch.testing.assert_close(moments(chosen, x), (mean[..., rows], covariance[:, index][..., index]))


def test_draws_have_the_moments():
    new, z = draw(4, 2, D, seed=1), draw(4, 1, 2, 1, seed=3)
    posterior = of_rows(draw(N, D), draw(N, 1, seed=2)).conditioned(new, z, noise_blocks(4, 1, 2))
    torch.manual_seed(0)
    count, x = 20_000, draw(3, D, seed=6)
    values = torch.einsum("qn,sbmtn->sbmqt", x, posterior.draws(count) - posterior.mean_weights)[:, :, 0, :, 0]
    wanted = moments(posterior, x)[1][:, 0]
    found = torch.einsum("sbq,sbp->bqp", values, values) / count
    variance = wanted.diagonal(dim1=-2, dim2=-1)
    error = ((variance[..., :, None] * variance[..., None, :] + wanted.square()) / count).sqrt()
    assert ((found - wanted).abs() < 5 * error).all()


def test_noise_has_to_be_positive():
    posterior = of_rows(draw(N, D), draw(N, 1))
    with pytest.raises(ValueError, match="positive definite"):
        posterior.conditioned(draw(1, D), draw(1, 1, 1), noise_blocks(1, 1, noise=-1.0))
