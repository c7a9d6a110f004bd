"""Scores against integrals, samples and scikit-learn; calibration of models that are and are not calibrated."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from scipy import integrate, stats
from sklearn.metrics import brier_score_loss
from torch.distributions import Normal

from rfgp import diagnostics
from rfgp.diagnostics import (
    brier_score,
    calibration_curve,
    coverage,
    crps,
    energy_score,
    expected_calibration_error,
    interval_score,
    normal_interval,
    pit,
    recalibrate_temperature,
    recalibrate_variance,
    reliability_curve,
    sharpness,
)


def normal(mean, std):
    return Normal(torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64))


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("mean, std, y", [(0.0, 1.0, 0.3), (2.0, 0.5, -1.0), (-1.0, 3.0, 4.0)])
def test_crps_is_the_integral_of_the_squared_distance_of_distribution_functions(mean, std, y):
    law = stats.norm(mean, std)
    below, _ = integrate.quad(lambda t: law.cdf(t) ** 2, -60.0, y, epsabs=1e-12, limit=200)
    above, _ = integrate.quad(lambda t: law.sf(t) ** 2, y, 60.0, epsabs=1e-12, limit=200)
    assert float(crps(normal([mean], [std]), torch.tensor([y]))) == pytest.approx(below + above, rel=1e-6)


def test_energy_score_of_one_output_is_the_crps():
    y = torch.tensor([0.4, -1.0], dtype=torch.float64)
    samples = draw(4000, 2, 1) * 2.0 + 0.5
    exact, found = crps(normal([0.5, 0.5], [2.0, 2.0]), y), energy_score(samples, y.unsqueeze(-1))
    assert abs(float(exact - found)) < 4.0 * 1.5 / math.sqrt(4000)


def test_energy_score_does_not_depend_on_where_zero_is():
    generator = torch.Generator().manual_seed(0)
    samples, y = (torch.randn(*shape, 2, generator=generator).double() for shape in ((60, 4), (4,)))
    far = 2.0**26
    assert energy_score(samples + far, y + far) == pytest.approx(float(energy_score(samples, y)), abs=1e-6)


def test_energy_score_prefers_the_joint_distribution():
    y = draw(2000, 1).expand(-1, 2)
    joint, apart = draw(50, 2000, 1, seed=1).expand(-1, -1, 2), draw(50, 2000, 2, seed=2)
    assert float(energy_score(joint, y)) < float(energy_score(apart, y))


def test_interval_score_is_proper():
    y = draw(20000)
    scores = {}
    for factor in (0.7, 1.0, 1.4):
        lower, upper = normal_interval(Normal(torch.zeros_like(y), factor * torch.ones_like(y)), 0.9)
        scores[factor] = float(interval_score(lower, upper, y, 0.9))
    assert scores[1.0] < min(scores[0.7], scores[1.4])


def test_missing_targets_do_not_count():
    y, predicted = torch.tensor([0.5, math.nan]), normal([0.0, 7.0], [1.0, 2.0])
    lower, upper = normal_interval(predicted, 0.5)
    for score in (crps, pit):
        torch.testing.assert_close(score(predicted, y), score(normal([0.0], [1.0]), y[:1]))
    assert float(coverage(lower, upper, y)) == 1.0
    assert float(interval_score(lower, upper, y, 0.5)) == pytest.approx(float(upper[0] - lower[0]))
    assert float(sharpness(lower, upper)) == pytest.approx(float((upper - lower).mean()))


@pytest.mark.parametrize("factor, sign", [(1.0, 0), (0.5, -1), (2.0, 1)])
def test_calibration_of_numbers(factor, sign):
    y = draw(4000)
    predicted = Normal(torch.zeros_like(y), factor * torch.ones_like(y))
    curve = calibration_curve(predicted, y)
    apart = (curve.observed - curve.predicted) / curve.error
    assert len(curve.predicted) == 19 and curve.count.tolist() == [4000.0] * 19
    assert bool((apart.abs() < 4.0).all()) if sign == 0 else bool((sign * apart > 4.0).all())
    uniform = stats.kstest(pit(predicted, y).numpy(), "uniform").pvalue
    assert uniform > 1e-4 if sign == 0 else uniform < 1e-10
    scale = recalibrate_variance(predicted, y)
    assert scale.factor == pytest.approx(factor**-2, abs=4.0 * factor**-2 * math.sqrt(2.0 / 4000))
    better = diagnostics.regression_mnll(scale(predicted), y)
    assert float(better) <= float(diagnostics.regression_mnll(predicted, y))


def test_energy_scores_have_gradients_and_variance_scales_need_none():
    samples, y = draw(5, 3, 2).requires_grad_(), draw(3, 2, seed=1)
    assert torch.autograd.gradcheck(energy_score, (samples, y))
    was_always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert recalibrate_variance(Normal(samples[0], 2.0 * torch.ones(3, 2)), y).factor > 0
    finally:
        torch.set_warn_always(was_always)


def labelled(num_rows=6000, sharpen=1.0):
    """Labels drawn from class probabilities, and these probabilities at another temperature."""
    logits = 2.0 * draw(num_rows, 3)
    truth = torch.softmax(logits, dim=-1)
    labels = torch.multinomial(truth, 1, generator=torch.Generator().manual_seed(3)).squeeze(-1)
    return torch.softmax(sharpen * logits, dim=-1), labels


def test_calibration_of_tied_confidences_does_not_depend_on_the_order_of_rows():
    probabilities = torch.tensor([[0.8, 0.2]] * 10 + [[0.3, 0.7]] * 6 + [[0.9, 0.1]] * 4)
    labels = torch.tensor([0] * 8 + [1] * 2 + [1] * 2 + [0] * 4 + [0] * 4)
    orders = (probabilities, labels), (probabilities.flip(0), labels.flip(0))
    for rows in orders:
        observed = reliability_curve(*rows, num_bins=4).observed
        torch.testing.assert_close(observed, torch.tensor([1 / 3, (1 / 3 + 3.2) / 5, 0.8, 4.8 / 5]).double())
    torch.testing.assert_close(*(expected_calibration_error(*rows, num_bins=4) for rows in orders))


def test_brier_score():
    probabilities, labels = labelled(200)
    two = torch.stack([1.0 - probabilities[:, 0], probabilities[:, 0]], dim=-1)
    expected = 2.0 * brier_score_loss((labels == 0).numpy(), probabilities[:, 0].numpy())
    assert float(brier_score(two, (labels == 0).long())) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("sharpen", [1.0, 3.0])
def test_calibration_of_classes(sharpen):
    probabilities, labels = labelled(sharpen=sharpen)
    curve, error = (made(probabilities, labels) for made in (reliability_curve, expected_calibration_error))
    assert float(curve.count.sum()) == 6000.0
    apart = (curve.observed - curve.predicted).abs() / curve.error
    assert bool((apart < 4.0).all()) if sharpen == 1.0 else float(apart.max()) > 4.0
    assert (float(error) < 0.02) == (sharpen == 1.0)
    temperature = recalibrate_temperature(probabilities, labels)
    assert temperature.value == pytest.approx(sharpen, rel=0.1)
    mended = temperature(probabilities)
    torch.testing.assert_close(mended.sum(-1), torch.ones(6000, dtype=torch.float64))
    assert float(expected_calibration_error(mended, labels)) < 0.02


ENDS = torch.zeros(3), torch.ones(3)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: crps(normal([0.0], [1.0]), torch.zeros(2)), "shape"),
        (lambda: crps(normal([0.0], [1.0]), torch.tensor([math.inf])), "finite"),
        (lambda: crps(normal([0.0], [1.0]), torch.tensor([math.nan])), "none at all"),
        (lambda: crps(torch.zeros(2), torch.zeros(2)), "normal distribution"),
        (lambda: pit(Normal(torch.zeros(1), torch.zeros(1), validate_args=False), torch.zeros(1)), "positive"),
        (lambda: interval_score(*ENDS, torch.zeros(3), level=95), "between 0 and 1"),
        (lambda: coverage(ENDS[1], ENDS[0], torch.zeros(3)), "in order"),
        (lambda: calibration_curve(normal([0.0], [1.0]), torch.zeros(1), levels=[0.0]), "between 0 and 1"),
        (lambda: energy_score(torch.zeros(1, 3, 2), torch.zeros(3, 2)), "S >= 2"),
        (lambda: energy_score(torch.zeros(4, 3, 2), torch.zeros(3)), "expected samples"),
        (lambda: brier_score(torch.full((2, 2), 2.0), torch.zeros(2).long()), "from 0 to 1"),
        (lambda: reliability_curve(torch.full((2, 2), 0.5), torch.zeros(2).long(), num_bins=3), "num_bins"),
        (lambda: recalibrate_variance(normal([0.0], [1.0]), torch.zeros(1)), "differ"),
        (lambda: recalibrate_temperature(torch.full((2, 2), 0.5), torch.tensor([0, 2])), "expected"),
    ],
)
def test_bad_calls(call, message):
    with pytest.raises(ValueError, match=message):
        call()
