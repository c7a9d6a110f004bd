"""Draws of parameters where their density has an end."""

import math

import numpy as np
import pytest

from rfgp.averaging import parameter_draws


class HalfNormal:
    """A normal density of one parameter, on one side of its mode."""

    def __init__(self, side):
        self.side = side
        self.bounds = [(-math.inf, math.inf)]

    def loss(self, vector, has_gradient=True):
        if self.side * vector[0] < 0.0:
            return math.inf, np.zeros(1)
        return 2.0 * float(vector @ vector), 4.0 * vector


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_curvature_is_that_of_the_side_with_a_density(side):
    draws = parameter_draws(HalfNormal(side), np.zeros(1), count=256, num_proposals=1024)
    assert draws.root[0, 0] == pytest.approx(0.5, rel=1e-6)
    values = side * draws.vectors[:, 0]
    assert values.min() >= 0.0
    assert abs(values.mean() - 0.5 * math.sqrt(2.0 / math.pi)) < 3.0 * values.std() / 16.0
