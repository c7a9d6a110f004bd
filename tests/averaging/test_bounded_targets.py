"""Targets between bounds are predicted between them, where their logit predicts rows that are left out better."""

import copy

import numpy as np
import pytest
import torch

import rfgp
from rfgp.averaging import AveragedGP
from rfgp.averaging.column_scale import ColumnScale
from rfgp.sklearn import RandomFeatureGPRegressor

ROWS, NEW = 150, 100


def shares(rows=ROWS + NEW):
    generator = np.random.default_rng(0)
    x = generator.uniform(-2.0, 2.0, size=(rows, 2))
    p = 1.0 / (1.0 + np.exp(-(2.5 * x[:, 0] - x[:, 1] ** 2 + 1.0)))
    return x, generator.beta(12.0 * p, 12.0 * (1.0 - p))


@pytest.mark.parametrize("bounds", [(-2.0, 3.0), (0.0, 1.0)])
def test_a_scale_with_bounds_is_inverted_and_has_its_slope(bounds):
    y = torch.tensor([[0.0, 7.0], [0.02, -1.0], [0.5, 0.3], [1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    low, high = (torch.tensor([end, sign * torch.inf]) for end, sign in zip(bounds, (-1.0, 1.0), strict=True))
    scale = ColumnScale(y.detach(), is_transformed=True, bounds=(low.double(), high.double()))
    z = scale.forward(y)
    torch.testing.assert_close(scale.inverse(z), y)
    (slope,) = torch.autograd.grad(z.sum(), y)
    torch.testing.assert_close(scale.log_slope(y), slope.log())
    center, unit = torch.tensor([3.0, -1.0]).double(), torch.tensor([0.5, 4.0]).double()
    moved = scale.rescaled(center, unit)
    torch.testing.assert_close(moved.forward(center + unit * y), z)
    torch.testing.assert_close(moved.log_slope(center + unit * y), slope.log() - unit.log())
    far = scale.inverse(torch.tensor([[-1e3, 0.0], [1e3, 0.0]], dtype=torch.float64))[:, 0]
    assert far.tolist() == [low[0], high[0]]
    assert not scale.is_linear and scale.of(torch.tensor([1])).logit.is_identity


@pytest.fixture(scope="module")
def of_shares():
    x, y = shares()
    return RandomFeatureGPRegressor(random_state=0).fit(x[:ROWS], y[:ROWS]), x[ROWS:], y[ROWS:]


def test_all_that_is_said_of_shares_lies_between_the_bounds(of_shares):
    model, x, y = of_shares
    ends, mean = model.predict_interval(x), model.predict(x)
    draws, some = model.sample_y(x[:20], 100), model.predict_quantiles(x, [0.001, 0.999])
    for values in (ends, mean, draws, some):
        assert -1e-9 <= values.min() <= values.max() <= 1.0 + 1e-9
    coverage = ((ends[:, 0] <= y) & (y <= ends[:, 1])).mean()
    assert abs(coverage - 0.95) < 3.0 * (0.05 * 0.95 / NEW) ** 0.5
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.11
    more = copy.deepcopy(model).partial_fit(x[:5], y[:5])
    assert more.predict_interval(x).min() >= 0.0


def test_values_outside_of_the_bounds_have_no_density(of_shares):
    model, x, _ = of_shares
    found = model.model_.predictive(model._inputs(x[:4])[0])
    low, high = (float(end[0]) for end in model.model_.support)
    values = torch.tensor([low - 1e-3, low, high, high + 1e-3], dtype=torch.float64)
    assert found.log_prob(values).isfinite().tolist() == [False, True, True, False]
    assert found.cdf(values)[0] == 0.0 and found.cdf(values)[3] == 1.0
    unbounded = AveragedGP(model.model_.x, model.model_.y).predictive(model._inputs(x[:1])[0])
    torch.testing.assert_close(unbounded.cdf(torch.tensor([torch.inf])), torch.ones(1, dtype=torch.float64))


def test_shares_are_predicted_from_a_file_as_before(of_shares, tmp_path):
    model, x, _ = of_shares
    rfgp.save(model.model_, tmp_path / "shares.pt", with_rows=True)
    loaded, points = rfgp.load(tmp_path / "shares.pt"), model._inputs(x)[0]
    found, wanted = (average.predictive(points) for average in (loaded, model.model_))
    assert torch.equal(found.mean, wanted.mean) and torch.equal(found.icdf(0.975), wanted.icdf(0.975))


def test_targets_outside_of_the_bounds_are_no_shares(of_shares):
    model, x, y = of_shares
    before, (low, high) = model.model_.predictive(model._inputs(x)[0]).mean, model.model_.support
    outside = (y[:5] - model.y_scaler_.mean_) / model.y_scaler_.scale_ + np.array([0.0, 0.0, 9.0, 0.0, -9.0])
    with pytest.raises(ValueError, match="within the bounds"):
        copy.deepcopy(model.model_).update(model._inputs(x[:5])[0], torch.from_numpy(outside))
    assert torch.equal(model.model_.predictive(model._inputs(x)[0]).mean, before) and bool(
        low.isfinite() & high.isfinite()
    )
    for average in ("auto", True):
        more = copy.deepcopy(model).set_params(average=average)
        more.partial_fit(x[:5], np.array([0.2, 0.4, 1.7, 0.5, -0.3]))
        assert isinstance(more.model_, AveragedGP) and len(more.model_.y) == ROWS + 5
        assert bool(more.model_.support[0].isinf()) and more.predict_quantiles(x[2:3], [0.99]).max() > 1.0


def test_targets_that_only_happen_to_lie_between_bounds_have_no_logit():
    x = np.random.default_rng(0).uniform(-2.0, 2.0, size=(ROWS, 2))
    y = np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] + 0.1 * np.random.default_rng(1).normal(size=ROWS)
    model = RandomFeatureGPRegressor(random_state=0).fit(x, (y - y.min()) / (y.max() - y.min()))
    assert all(member.target.logit.is_identity for member in model.model_.members)


def test_bad_bounds_are_refused():
    x, y = (torch.from_numpy(part[:20]) for part in shares())
    for bad in ((0.0,), "ab", (0.5, 1.0), (0.0, float("nan")), (None, 1.0), (0.0, float("inf"))):
        with pytest.raises(ValueError, match="bounds"):
            AveragedGP(x, y, bounds=bad)
    with pytest.raises(ValueError, match="bounds"):
        AveragedGP(x, torch.stack([y, y], dim=-1), bounds=(0.0, 1.0))
