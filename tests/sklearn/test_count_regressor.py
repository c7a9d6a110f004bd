"""Counts with exposures: the estimator against its model, closed forms, linear regression, and simulated counts."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from gpytorch.kernels import ConstantKernel
from sklearn.base import clone
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import d2_tweedie_score, mean_poisson_deviance
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import rfgp
from rfgp.likelihoods import NegativeBinomialLikelihood, PoissonLikelihood
from rfgp.models import LaplaceGP
from rfgp.sklearn import RandomFeatureGPCountRegressor
from rfgp.training import Evidence

QUICK = {"kernel": "rbf", "max_evaluations": 15, "random_state": 0}
DISPERSION = 0.3


def rows(num_rows=200, seed=0, dispersion=0.0, level=1.0):
    """Inputs, counts, exposures and expected counts; exposures are from about a tenth to ten."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(num_rows, 2))
    exposure = np.exp(random.normal(size=num_rows))
    expected = exposure * np.exp(level + np.sin(2.0 * x[:, 0]))
    luck = random.gamma(1.0 / dispersion, dispersion, size=num_rows) if dispersion else 1.0
    return x, random.poisson(expected * luck), exposure, expected


def model(**changes):
    return RandomFeatureGPCountRegressor(**QUICK | changes)


def test_predictions_are_those_of_the_model_inside():
    x, y, exposure, _ = rows(dispersion=DISPERSION)
    fitted = model().fit(x[:150], y[:150], exposure[:150])
    inside = fitted.model_
    assert isinstance(inside, LaplaceGP) and isinstance(inside.likelihood, NegativeBinomialLikelihood)
    inputs, scaled = (torch.from_numpy(part) for part in (fitted.x_scaler_.transform(x), exposure * fitted.rate_))
    again = LaplaceGP(inside.covar_module, inside.likelihood, inside.mean_module)
    with torch.no_grad():
        again.condition(inputs[:150], torch.from_numpy(y[:150]).double(), exposure=scaled[:150])
        latent = again.posterior(inputs[150:])
        counts = inside.likelihood.marginal(latent, exposure=scaled[150:])
        expected = counts.log_prob(torch.from_numpy(y[150:]).double())
        evidence = float(again.log_marginal_likelihood())
    mean, std = fitted.predict(x[150:], exposure[150:], return_std=True)
    moments = (part.detach() for part in (counts.mean, counts.stddev))
    for own, one in zip((mean, std), moments, strict=True):
        np.testing.assert_allclose(own, one, rtol=1e-6)
    found = fitted.log_density(x[150:], y[150:], exposure[150:])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert fitted.log_marginal_likelihood_value_ == pytest.approx(evidence, rel=1e-9)


def test_parameters_are_those_of_the_evidence():
    x, y, exposure, _ = rows(120)
    fitted = model(likelihood="poisson", max_evaluations=60).fit(x, y, exposure)
    assert fitted.fit_summary_.converged and isinstance(fitted.model_.likelihood, PoissonLikelihood)
    inputs = torch.from_numpy(fitted.x_scaler_.transform(x))
    start = rfgp.approximate(
        fitted.model_.covar_module.exact_kernel, 120, method="landmarks", train_inputs=inputs, seed=1
    )
    other = LaplaceGP(start, PoissonLikelihood(), fitted.model_.mean_module)
    data = inputs, torch.from_numpy(y).double()
    scaled = torch.from_numpy(exposure * fitted.rate_)
    summary = rfgp.fit(other, *data, exposure=scaled, strategy=Evidence(initialize=False), progress=False)
    gain = summary.log_marginal_likelihood - fitted.log_marginal_likelihood_value_
    assert abs(gain) < 0.02  # of the search, which ends where gradients are small


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_constant_function_is_the_rate_of_all_rows(scale):
    x, y, exposure, _ = rows(60)
    kernel = ConstantKernel().double()
    kernel.initialize(constant=torch.tensor([1e-12]))
    kernel.requires_grad_(False)
    fitted = model(kernel=kernel, likelihood="poisson", method="landmarks").fit(x, y, scale * exposure)
    rate = y.sum() / (scale * exposure.sum())
    np.testing.assert_allclose(fitted.predict(x), rate, rtol=1e-5)
    np.testing.assert_allclose(fitted.predict(x, scale * exposure).sum(), y.sum(), rtol=1e-5)
    assert fitted.score(x, y, scale * exposure) == pytest.approx(0.0, abs=1e-6)


def test_units_of_exposures_do_not_matter():
    x, y, exposure, _ = rows(80)
    fitted, other = (model().fit(x, y, scale * exposure) for scale in (1.0, 1e6))
    np.testing.assert_allclose(other.predict(x, 1e6 * exposure), fitted.predict(x, exposure), rtol=1e-6)
    np.testing.assert_allclose(other.predict(x), 1e-6 * fitted.predict(x), rtol=1e-6)
    assert other.log_marginal_likelihood_value_ == pytest.approx(fitted.log_marginal_likelihood_value_, rel=1e-9)


def test_sums_of_rows_with_the_same_inputs_say_the_same_of_poisson_counts():
    x, y, exposure, _ = rows(60)
    first = np.random.default_rng(1).binomial(y, 0.3)
    share = np.random.default_rng(2).uniform(0.2, 0.8, size=60)
    parts = np.repeat(x, 2, axis=0), np.ravel([first, y - first], "F"), np.ravel([share, 1.0 - share], "F")
    fitted = model(likelihood="poisson", max_evaluations=60).fit(x, y, exposure)
    single = model(likelihood="poisson", max_evaluations=60).fit(*parts[:2], parts[2] * np.repeat(exposure, 2))
    np.testing.assert_allclose(np.log(single.predict(x)), np.log(fitted.predict(x)), atol=0.02)


@pytest.mark.parametrize("dispersion", [0.0, DISPERSION])
def test_intervals_cover_new_counts(dispersion):
    """Of whole numbers at least so many are inside: what is inside beyond the level is the probability of the ends."""
    level, num_new, excess = 0.9, 150, []
    for seed in range(5):
        x, y, exposure, _ = rows(100 + num_new, seed, dispersion)
        fitted = model(likelihood="negative_binomial", max_evaluations=8).fit(x[:100], y[:100], exposure[:100])
        new = x[100:], exposure[100:]
        lower, upper = fitted.predict_interval(new[0], level, new[1]).T
        known = [fitted.log_density(new[0], counts, new[1]) for counts in (lower, upper)]
        assert (lower == np.floor(lower)).all() and (upper >= lower).all() and np.isfinite(known).all()
        draws = fitted.sample_y(new[0], 2000, 0, new[1])
        promised = ((draws >= lower[:, None]) & (draws <= upper[:, None])).mean()
        assert promised > level
        excess.append(np.mean((y[100:] >= lower) & (y[100:] <= upper)) - promised)
    assert abs(np.mean(excess)) < 3.0 * np.std(excess, ddof=1) / len(excess) ** 0.5


def test_a_nonlinear_rate_is_found_where_linear_regression_finds_none():
    x, y, exposure, expected = rows(1200, dispersion=DISPERSION)
    train, new = slice(None, 400), slice(400, None)
    fitted = model().fit(x[train], y[train], exposure[train])
    linear = PoissonRegressor(alpha=1e-3).fit(x[train], y[train] / exposure[train], sample_weight=exposure[train])
    predictions = fitted.predict(x[new], exposure[new]), linear.predict(x[new]) * exposure[new], expected[new]
    own, of_linear, best = (mean_poisson_deviance(y[new], means) for means in predictions)
    assert best < own < best + 0.3 * (of_linear - best)
    assert fitted.score(x[new], y[new], exposure[new]) > 0.3
    assert fitted.dispersion_ == pytest.approx(DISPERSION, abs=0.1)


def test_a_log_linear_rate_is_predicted_as_well_as_by_linear_regression():
    random = np.random.default_rng(3)
    x, exposure = random.normal(size=(800, 2)), np.exp(random.normal(size=800))
    y = random.poisson(exposure * np.exp(0.5 + 0.6 * x[:, 0] - 0.3 * x[:, 1]))
    train, new = slice(None, 300), slice(300, None)
    fitted = model(kernel="linear").fit(x[train], y[train], exposure[train])
    linear = PoissonRegressor(alpha=0.0).fit(x[train], y[train] / exposure[train], sample_weight=exposure[train])
    np.testing.assert_allclose(np.log(fitted.predict(x[new]) / linear.predict(x[new])), 0.0, atol=0.05)


def test_poisson_counts_are_recognized():
    x, y, exposure, _ = rows(150)
    spread = rows(150, dispersion=DISPERSION)
    assert model().fit(x, y, exposure).dispersion_ < 0.02
    assert model().fit(*spread[:3]).dispersion_ > 0.15
    assert model(likelihood="poisson").fit(*spread[:3]).dispersion_ == 0.0


def test_auto_takes_the_kernel_of_the_largest_evidence():
    x, y, exposure, _ = rows(60)
    kernels = {
        name: model(kernel=name, max_evaluations=10, likelihood="poisson").fit(x, y, exposure)
        for name in ("matern32", "rbf")
    }
    chosen = model(kernel="auto", max_evaluations=10, likelihood="poisson").fit(x, y, exposure)
    evidence = chosen.log_marginal_likelihood_value_
    assert evidence > max(each.log_marginal_likelihood_value_ for each in kernels.values()) - 0.5


def test_scores_are_the_deviance_that_is_explained():
    x, y, _, _ = rows(100)
    fitted = model().fit(x, y)
    assert fitted.score(x, y) == pytest.approx(d2_tweedie_score(y, fitted.predict(x), power=1))
    assert model().fit(x, 0 * y).score(x, 0 * y) == 0.0
    twice = np.concatenate([x, x[:30]]), np.concatenate([y, y[:30]])
    weights = np.r_[np.full(30, 2.0), np.ones(70)]
    assert fitted.score(x, y, sample_weight=weights) == pytest.approx(fitted.score(*twice))


def test_large_counts_whose_densities_have_rounding_are_fitted():
    """Terms of the log density of counts around 1e9 cancel, and hide the last gain of Newton's method."""
    random = np.random.default_rng(0)
    x = random.uniform(0.0, 6.0, (40, 1))
    y = [random.poisson(scale * np.exp(np.sin(x[:, 0]))) for scale in (1e6, 1e9)][1]
    fitted = RandomFeatureGPCountRegressor("rbf", random_state=0, max_evaluations=30).fit(x, y)
    assert fitted.score(x, y) > 0.999
    assert abs(fitted.sample_y(x[:1], 2000, exposure=[1e12]).mean() / (1e12 * fitted.predict(x[:1])[0]) - 1.0) < 1e-3


def test_exposures_are_routed():
    x, y, exposure, _ = rows(90)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = model(max_evaluations=3).set_fit_request(exposure=True).set_score_request(exposure=True)
        folds = KFold(2)
        scores = cross_val_score(routed, x, y, cv=folds, params={"exposure": exposure})
        predicted = cross_val_predict(routed, x, y, cv=folds, params={"exposure": exposure})
        piped = make_pipeline(FunctionTransformer(), routed).fit(x, y, exposure=exposure)
        assert piped.score(x, y, exposure=exposure) == piped[-1].score(x, y, exposure)
    for score, (train, test) in zip(scores, folds.split(x), strict=True):
        fitted = clone(routed).fit(x[train], y[train], exposure[train])
        assert score == pytest.approx(fitted.score(x[test], y[test], exposure[test]))
        np.testing.assert_allclose(predicted[test], fitted.predict(x[test]))  # scikit-learn routes to fit alone there


def test_no_events_and_large_counts():
    x, y, exposure, _ = rows(50)
    none = model().fit(x, 0 * y, exposure)
    assert none.fit_summary_ is None and (none.predict(x) < 1.0 / exposure.sum()).all()
    np.testing.assert_array_equal(none.predict_interval(x)[:, 0], 0.0)
    x, y, exposure, expected = rows(150, level=14.0)
    fitted = model().fit(x[:100], y[:100], exposure[:100])
    mean, std = fitted.predict(x[100:], exposure[100:], return_std=True)
    lower, upper = fitted.predict_interval(x[100:], exposure=exposure[100:]).T
    assert y.max() > 1e6 and np.isfinite([mean, std]).all()
    assert abs(np.mean((y[100:] >= lower) & (y[100:] <= upper)) - 0.95) < 3.0 * (0.95 * 0.05 / 50) ** 0.5
    assert np.median(np.abs(mean / expected[100:] - 1.0)) < 0.1


def test_frames_and_missing_counts():
    x, y, exposure, _ = rows(60)
    frame = pd.DataFrame({"age": x[:, 0], "power": x[:, 1], "region": ["north", "south", None] * 20})
    frame.loc[3, "age"] = np.nan
    fitted = model(max_evaluations=5).fit(frame, pd.Series(y), pd.Series(exposure))
    assert fitted.predict(frame[:7], pd.Series(exposure[:7])).shape == (7,)
    gaps = y.astype(float)
    gaps[::5] = np.nan
    there = ~np.isnan(gaps)
    known = model(max_evaluations=5).fit(x[there], y[there], exposure[there])
    found = model(max_evaluations=5).fit(x, gaps, np.where(there, exposure, np.nan))
    np.testing.assert_array_equal(found.predict(x), known.predict(x))
    assert found.score(x, gaps, np.where(there, exposure, 0.0)) == known.score(x[there], y[there], exposure[there])
    np.testing.assert_array_equal(np.isnan(known.log_density(x, gaps, exposure)), ~there)


def test_draws_have_the_moments_of_predictions():
    x, y, exposure, _ = rows(80, dispersion=DISPERSION)
    fitted = model().fit(x, y, exposure)
    mean, std = fitted.predict(x[:5], exposure[:5], return_std=True)
    draws = fitted.sample_y(x[:5], 20_000, 0, exposure[:5])
    np.testing.assert_array_less(np.abs(draws.mean(1) - mean), 4.0 * std / 20_000**0.5)
    np.testing.assert_array_equal(fitted.sample_y(x[:5], 3), fitted.sample_y(x[:5], 3))
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(x), fitted.predict(x))


def test_a_time_limit_makes_models_narrower(monkeypatch):
    x, y, exposure, _ = rows(300)
    ticks = iter(range(10**9))
    monkeypatch.setattr("rfgp.training.timing.clock", lambda: 0.5 * next(ticks))
    fitted = model(num_features=256, time_limit=1e-3).fit(x, y, exposure)
    assert fitted.model_.covar_module.num_scalar_features == 64
    assert np.isfinite(fitted.predict(x)).all()


@pytest.mark.parametrize("time_limit", [None, 0.05])
def test_rare_events_are_predicted_no_worse_than_by_one_rate(time_limit):
    """A function that few rows with events have taught was worse than one rate by any factor."""
    random = np.random.default_rng(1)
    x, exposure = random.normal(size=(6000, 6)), np.exp(0.5 * random.normal(size=6000))
    y = random.poisson(0.007 * exposure)
    train, new = slice(None, 4000), slice(4000, None)
    fitted = model(num_features=64, time_limit=time_limit).fit(x[train], y[train], exposure[train])
    assert fitted.score(x[new], y[new], exposure[new]) > -0.02


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"y": -1.0}, "expected whole numbers of at least 0 for y, got -1"),
        ({"y": 2.5}, "expected whole numbers of at least 0 for y, got 2.5"),
        ({"y": np.inf}, "infinity"),
        ({"exposure": 0.0}, "expected positive exposure"),
        ({"exposure": -1.0}, "expected positive exposure"),
        ({"exposure": np.nan}, "NaN"),
    ],
    ids=lambda value: next(f"{name}={bad}" for name, bad in value.items()) if isinstance(value, dict) else "",
)
def test_what_is_no_count_or_exposure_is_refused(change, expected):
    x, y, exposure, _ = rows(20)
    fitted = model(max_evaluations=1).fit(x, y, exposure)
    before = fitted.predict(x)
    data = {"y": y.astype(float), "exposure": exposure.copy()}
    for name, bad in change.items():
        data[name][3] = bad
    with pytest.raises(ValueError, match=expected):
        fitted.fit(x, data["y"], exposure=data["exposure"])
    with pytest.raises(ValueError, match=expected):
        fitted.score(x, data["y"], data["exposure"])
    np.testing.assert_array_equal(fitted.predict(x), before)


def test_other_bad_calls_are_refused():
    x, y, exposure, _ = rows(20)
    fitted = model(max_evaluations=1).fit(x, y, exposure)
    for bad in (exposure[:5], exposure[:, None], -2.0):
        with pytest.raises(ValueError, match="exposure"):
            fitted.predict(x, bad)
    with pytest.raises(ValueError, match="expected levels, got none"):
        fitted.predict_quantiles(x, [])
    with pytest.raises(ValueError, match=r"expected .*likelihood"):
        model(likelihood="normal").fit(x, y)
    with pytest.raises(ValueError, match="expected 20 counts in y, got 5"):
        fitted.log_density(x, y[:5])
    with pytest.raises(ValueError, match="expected known counts in y"):
        fitted.fit(x, np.full(20, np.nan))
