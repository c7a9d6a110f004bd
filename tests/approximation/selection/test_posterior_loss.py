"""What features lose of the posterior: against dense algebra and simulation, and how it is ranked and searched for."""

from __future__ import annotations

import math
from types import SimpleNamespace

import gpytorch
import pytest
import torch
from gpytorch.kernels import IndexKernel, LinearKernel, MaternKernel, MultitaskKernel, RBFKernel
from problems import scaled

import rfgp
from rfgp.approximation import selection
from rfgp.approximation.landmarks import Landmarks
from rfgp.approximation.selection import PosteriorLoss, best_method, posterior_loss, rank_methods, suggest_num_features
from rfgp.approximation.selection.posterior import PosteriorTest, beyond
from rfgp.diagnostics import exact_posterior, kl_to_exact
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")

NOISE = 0.05


def uniform(num_rows, columns=2, seed=0):
    return torch.rand(num_rows, columns, generator=torch.Generator().manual_seed(seed))


def matern():
    kernel = scaled(MaternKernel(nu=1.5), 2.0)
    kernel.base_kernel.lengthscale = 0.5
    return kernel


METHODS = ("fourier", "landmarks")


@pytest.mark.parametrize("name", METHODS)
def test_the_loss_is_the_mean_divergence_and_coverage_of_simulated_targets(name):
    x, draws = uniform(60), 50
    kernel = rfgp.approximate(matern(), 20, method=name, train_inputs=x, seed=0)
    test = PosteriorTest(x, seed=0, noise=NOISE)
    loss = test.loss(kernel)
    train, held = test.others, test.held_out
    points = torch.cat([held, beyond(held, x)])
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = NOISE * len(train) / len(x)  # a sample of the rows
    with torch.no_grad():
        both = torch.cat([train, points])
        root = torch.linalg.cholesky(kernel.exact_kernel(both).to_dense() + 1e-10 * torch.eye(len(both)))
        generator, divergences, covered = torch.Generator().manual_seed(1), [], []
        for _ in range(draws):
            function = root @ torch.randn(len(both), generator=generator)
            y = function[: len(train)] + math.sqrt(likelihood.noise) * torch.randn(len(train), generator=generator)
            model = WeightSpaceGP(kernel, likelihood).condition(train, y)
            data = {"train_inputs": train, "train_targets": y}
            divergences.append(kl_to_exact(model, points, direction="exact_from_approximate", **data) / len(points))
            posterior = model.posterior(points)
            away = (posterior.mean.real - function[len(train) :]).abs() / posterior.variance.sqrt()
            covered.append((away <= 1.959964).double().mean())
    for values, expected in ((divergences, loss.kl_per_point), (covered, loss.coverage)):
        values = torch.stack(values)
        assert abs(float(values.mean()) - expected) <= 4.0 * float(values.std()) / math.sqrt(draws)


def test_a_sample_tells_what_all_rows_lose():
    """The noise of the sample is that of all rows, by their ratio: the loss of 1,500 rows, within a half."""
    x = uniform(1500)
    for width in (64, 256):
        kernel = rfgp.approximate(matern(), width, method="fourier", input_dim=2, seed=0)
        found = posterior_loss(kernel, x, noise=NOISE)
        whole = PosteriorTest(x, 0, NOISE)
        held = whole.held_out
        exact = selection.posterior._ExactPosterior(
            kernel.exact_kernel, whole.others, torch.cat([held, beyond(held, x)]), NOISE, 1.0
        )
        assert found.kl_per_point == pytest.approx(exact.loss(kernel).kl_per_point, rel=0.5)
        plain = posterior_loss(kernel, x, noise=NOISE * 1500 / 384).kl_per_point  # the noise of one row, for each
        assert plain < 0.6 * found.kl_per_point  # more rows lose more


def test_rows_beyond_those_that_are_given_count():
    x, kernel = uniform(300), rfgp.approximate(matern(), 64, method="fourier", input_dim=2, seed=0)
    few, many = (posterior_loss(kernel, x, num_rows=count) for count in (300, 30_000))
    assert many.kl_per_point > few.kl_per_point and many.coverage < few.coverage
    fewer_digits = rfgp.approximate(matern().float(), 64, method="fourier", input_dim=2, seed=0)
    assert posterior_loss(fewer_digits, x.float()).kl_per_point == pytest.approx(few.kl_per_point, rel=1e-3)


def test_exact_features_lose_nothing():
    x = uniform(40)
    for exact, method in ((LinearKernel(), "linear"), (matern(), "landmarks")):
        (only,) = rank_methods(exact, 40, x, methods=[method])  # 40 landmarks are all rows
        assert only.kl_per_point < 1e-5 and only.coverage == pytest.approx(0.95, abs=1e-4)
        assert only.error.relative_error < 1e-6


def test_landmarks_are_not_held_against_themselves():
    x = uniform(400)
    test = PosteriorTest(x, seed=0)
    assert not (test.held_out[:, None] == test.others).all(-1).any()
    assert len(test.held_out) + len(test.others) == 400
    (only,) = rank_methods(matern(), 100, x, methods=["landmarks"])
    assert only.kl_per_point > 1e-3 and only.error.relative_error > 1e-3 and only.operations == 100 * (2 + 100)
    kernel = rfgp.approximate(matern(), 100, method="landmarks", train_inputs=x, seed=3)
    own = PosteriorTest(x, seed=0, kernel=kernel)
    assert not (own.held_out[:, None] == kernel.maps.landmarks).all(-1).any()
    assert posterior_loss(kernel, x).kl_per_point == pytest.approx(only.kl_per_point, rel=0.5)


def test_few_draws_lose_more_than_what_is_reported():
    """A draw is above the 90% quantile of eight others with a probability of 2/9 at most, a mean with one of a half."""
    x, kernel, above = uniform(40), matern(), []
    for seed in range(16):
        test = PosteriorTest(x, seed)
        found = selection.ranking.candidate_of(kernel, 16, "fourier", x, test, seed, has_error=False)
        seeds = range(100 + 4 * seed, 104 + 4 * seed)
        fresh = [test.loss(rfgp.approximate(kernel, 16, method="fourier", input_dim=2, seed=i)) for i in seeds]
        above.append(sum(loss.kl_per_point > found.kl_per_point for loss in fresh) / 4.0)
    share = torch.tensor(above)
    assert float(share.mean()) < 2.0 / 9.0 + 3.0 * float(share.std()) / 4.0


def test_features_are_not_made_from_the_rows_that_they_are_held_against(monkeypatch):
    x, made_from = uniform(80), []
    make = selection.ranking.approximated

    def record(*args, train_inputs, **kwargs):
        made_from.append(train_inputs)
        return make(*args, train_inputs=train_inputs, **kwargs)

    monkeypatch.setattr(selection.ranking, "approximated", record)
    exact = scaled(RBFKernel(), 1.0).float()
    rank_methods(exact, 16, x.float(), methods=["optimized_maclaurin:real", "landmarks"])
    assert exact.outputscale.dtype == torch.float32
    held = PosteriorTest(x.float(), 0).held_out
    assert len(made_from) >= 8 and not any((held[:, None] == rows).all(-1).any() for rows in made_from)


def test_suggested_numbers_pass_a_test_that_had_no_part_in_the_search():
    x, kernel = uniform(400), RBFKernel()
    kernel.lengthscale = 0.5
    for seed in range(2):
        width = suggest_num_features(kernel, x, kl_per_point=0.6, method="fourier", seed=seed)
        test = PosteriorTest(x, seed + 8)
        draws = [rfgp.approximate(kernel, width, method="fourier", input_dim=2, seed=1000 + i) for i in range(8)]
        assert sum(test.loss(draw).kl_per_point > 0.6 for draw in draws) <= 3


def test_collapsed_variances_show_beyond_the_data():
    exact, x = scaled(RBFKernel(), 1.0), 0.4 * uniform(200) - 0.2
    ranking = {c.method: c for c in rank_methods(exact, 16, x, methods=["fourier", "random_maclaurin:real"])}
    assert all(c.kl_per_point > 0.0 for c in ranking.values())
    assert torch.allclose(beyond(x, x).std(0), 2.0 * x.std(0))


def test_points_beyond_the_data_stay_in_the_domain():
    x = torch.cat([uniform(20), torch.arange(20.0)[:, None] % 3], dim=-1)
    assert torch.equal(beyond(x, x)[:, 2], x[:, 2]) and not torch.allclose(beyond(x, x)[:, :2], x[:, :2])
    sphere = torch.nn.functional.normalize(uniform(20, 3), dim=-1)
    assert torch.allclose(beyond(sphere, sphere).norm(dim=-1), torch.ones(20))


@pytest.mark.parametrize(
    "exact", [lambda: MultitaskKernel(RBFKernel(), num_tasks=3), lambda: RBFKernel(active_dims=[0]) * IndexKernel(2)]
)
def test_many_outputs_have_a_loss(exact):
    x = torch.cat([uniform(50, 1), (uniform(50, 1, 1) > 0.5).double()], dim=-1)
    kernel = exact()
    if not isinstance(kernel, MultitaskKernel):
        kernel.kernels[1].active_dims = torch.tensor([1])
    losses = {c.method: c.kl_per_point for c in rank_methods(kernel, 64, x, methods=["fourier"])}
    assert 0.0 < losses["fourier"] < math.inf


def test_auto_takes_landmarks_where_they_lose_less_and_exact_features_where_there_are_some():
    x = uniform(300)
    assert best_method(matern(), 64, x) == "landmarks"
    assert best_method(LinearKernel(), 64, x) == "linear"
    kernel = rfgp.approximate(matern() + LinearKernel(), 64, train_inputs=x, seed=0)
    assert isinstance(kernel.maps, Landmarks) and kernel.num_scalar_features == 64
    without = rfgp.approximate(matern(), 64, input_dim=2)
    assert str(without.maps.recipe.method) == "fourier_orthogonal"


def test_rankings_end_in_time_and_show_their_progress(monkeypatch, capsys):
    x, names = uniform(50), ["fourier", "fourier_orthogonal", "landmarks"]
    rank_methods(RBFKernel(), 16, x, methods=names[:1], progress=True)
    assert "rank" in capsys.readouterr().err
    clock = iter(range(10**6))
    monkeypatch.setattr(selection.ranking, "perf_counter", lambda: float(next(clock)))
    with pytest.warns(UserWarning, match=r"^time_limit=1 seconds ended the ranking before landmarks$"):
        found = rank_methods(RBFKernel(), 16, x, methods=names, time_limit=1)
    assert {c.method for c in found} == set(names[:2])
    with pytest.raises(ValueError, match=r"^expected a positive time_limit, got 0; 60 is usual$"):
        rank_methods(RBFKernel(), 16, x, time_limit=0)


def test_the_noise_matters_and_is_checked():
    x = uniform(200)
    losses = [rank_methods(RBFKernel(), 32, x, methods=["fourier"], noise=n)[0].kl_per_point for n in (1.0, 0.01)]
    assert losses[0] < losses[1]
    with pytest.raises(ValueError, match=r"^expected a positive noise, got -1.0"):
        rank_methods(RBFKernel(), 32, x, noise=-1.0)


@pytest.mark.parametrize("method", ["fourier", "landmarks"])
def test_suggested_numbers_lose_as_little_as_asked_for(method):
    x, kernel = uniform(400), RBFKernel()
    kernel.lengthscale = 0.5
    width = suggest_num_features(kernel, x, kl_per_point=0.3, method=method)

    def loss(width):
        return rank_methods(kernel, width, x, methods=[method])[0].kl_per_point

    assert width % 2 == 0 and loss(width) <= 0.3 < loss(2 * (width // 4))
    assert suggest_num_features(kernel, x) <= suggest_num_features(kernel, x, method="landmarks")


def test_numbers_above_that_of_the_rows_are_refused():
    kernel = MaternKernel(nu=0.5)
    kernel.lengthscale = 0.5
    with pytest.raises(ValueError, match=r"^expected a kl_per_point that fewer features than the 100 rows reach, got"):
        suggest_num_features(kernel, uniform(100), kl_per_point=1e-6, method="fourier")
    with pytest.raises(ValueError, match=r"^expected tolerance or kl_per_point, got both; leave one out$"):
        suggest_num_features(kernel, uniform(100), 0.1, kl_per_point=0.1)
    with pytest.raises(ValueError, match=r"^expected a positive kl_per_point, got 0"):
        suggest_num_features(kernel, uniform(100), kl_per_point=0)


def test_kernels_without_features_have_no_loss():
    with pytest.raises(ValueError, match=r"^expected a kernel made by rfgp.approximate, got RBFKernel; wrap it"):
        posterior_loss(RBFKernel(), uniform(9))


def test_targets_of_the_exact_posterior_are_those_of_the_reference():
    x = uniform(30)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.1
    exact = selection.posterior._ExactPosterior(matern(), x[:20], x[20:], 0.1, 1.0)
    expected = exact_posterior(matern(), likelihood, x[:20], torch.zeros(20), x[20:])
    torch.testing.assert_close(exact._variance, expected.variance, rtol=1e-9, atol=0.0)


def test_nine_of_ten_draws_are_no_worse_in_divergence_and_in_coverage(monkeypatch):
    """Of losses that are known; draws end with the second one above a limit."""
    losses = [PosteriorLoss(float(i), 0.5 + 0.01 * j) for i, j in zip((3, 0, 2, 1, 4), (1, 4, 0, 2, 3), strict=True)]
    monkeypatch.setattr(PosteriorTest, "_posterior", lambda self, loss: SimpleNamespace(loss=lambda kernel: kernel))
    test = PosteriorTest(uniform(10), seed=0, num_draws=5, noise=NOISE)
    found = test.upper_loss(iter(losses))
    assert found.kl_per_point == pytest.approx(3.6) and found.coverage == pytest.approx(0.504)
    rest = iter(losses)
    assert test.upper_loss(rest, 1.5).kl_per_point == pytest.approx(2.8) and len(list(rest)) == 2
