"""Quantiles of counts whose log rate is normal, against sums over a fine grid: either part may be the narrow one."""

import numpy as np
import pytest
import scipy.special
import scipy.stats

from rfgp.likelihoods.count_quantiles import count_probabilities, count_quantiles

GRID = np.linspace(-9.0, 9.0, 100_001)
WEIGHTS = np.exp(-0.5 * GRID**2) / np.exp(-0.5 * GRID**2).sum()


def known(counts, mean, variance, dispersion):
    """The probability of at most so many events, by a sum over 100,001 values of the function."""
    means = np.exp(mean + variance**0.5 * GRID)
    if dispersion == 0.0:
        return scipy.stats.poisson.cdf(counts, means) @ WEIGHTS
    return scipy.special.betainc(1.0 / dispersion, counts + 1.0, 1.0 / (1.0 + dispersion * means)) @ WEIGHTS


@pytest.mark.parametrize("dispersion", [0.0, 1e-6, 0.05, 1.0, 5.0])
@pytest.mark.parametrize("variance", [0.0, 1e-3, 0.04, 0.3, 4.0])
def test_probabilities_are_sums_over_the_function(dispersion, variance):
    cases = [(np.floor(times * np.exp(mean)), mean) for mean in (-4.0, 0.5, 3.0, 13.0) for times in (0.0, 0.9, 1.6)]
    counts, mean = np.array(cases).T
    found = count_probabilities(counts, mean, np.full(len(mean), variance), dispersion)
    expected = [known(*case, variance, dispersion) for case in cases]
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize(("mean", "variance", "dispersion"), [(-3.0, 0.2, 0.0), (1.0, 0.5, 0.3), (9.0, 1e-6, 1e-4)])
@pytest.mark.parametrize("level", [0.025, 0.5, 0.975])
def test_quantiles_are_the_smallest_counts_of_such_a_probability(mean, variance, dispersion, level):
    (found,) = count_quantiles(level, np.array([mean]), np.array([variance]), dispersion)
    assert found >= 0.0 and found == np.floor(found)
    assert known(found, mean, variance, dispersion) >= level
    assert found == 0.0 or known(found - 1.0, mean, variance, dispersion) < level


def test_quantiles_of_huge_counts_are_those_of_the_rate():
    (found,) = count_quantiles(0.975, np.array([60.0]), np.array([0.04]), 0.0)
    np.testing.assert_allclose(np.log(found), 60.0 + 0.2 * scipy.special.ndtri(0.975), rtol=1e-9)
