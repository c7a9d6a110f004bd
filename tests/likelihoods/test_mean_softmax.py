"""The mean softmax of normals, against quadrature over the normals themselves."""

import itertools

import numpy as np
import pytest
import torch

from rfgp.likelihoods.mean_softmax import mean_softmax


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("largest", [0.0, 0.5, 2.5])
def test_class_probabilities_are_those_of_a_product_rule(num_classes, largest, monkeypatch):
    monkeypatch.setattr("rfgp.likelihoods.mean_softmax._ROWS", 2)
    generator = torch.Generator().manual_seed(0)
    mean = 2.0 * torch.randn(6, num_classes, generator=generator, dtype=torch.float64)
    deviation = largest * torch.rand(6, num_classes, generator=generator, dtype=torch.float64)
    points, weights = np.polynomial.hermite_e.hermegauss(64)
    grid = torch.tensor(list(itertools.product(points, repeat=num_classes)))
    of_points = torch.tensor([np.prod(row) for row in itertools.product(weights / weights.sum(), repeat=num_classes)])
    values = torch.softmax(mean + deviation * grid.unsqueeze(1), dim=-1)
    expected = (of_points[:, None, None] * values).sum(0)
    torch.testing.assert_close(mean_softmax(mean, deviation), expected, rtol=0.0, atol=1e-5)


def test_probabilities_of_far_and_certain_classes():
    mean, deviation = torch.tensor([[0.0, 900.0], [0.0, 0.0]]), torch.tensor([[200.0, 0.0], [0.0, 300.0]])
    found = mean_softmax(mean.double(), deviation.double())
    torch.testing.assert_close(found, torch.tensor([[0.0, 1.0], [0.5, 0.5]]).double(), rtol=0.0, atol=1e-4)
    assert mean_softmax(mean[:0], deviation[:0]).shape == (0, 2)


def test_classes_with_the_same_normal_are_computed_once():
    generator = torch.Generator().manual_seed(0)
    mean, deviation = torch.randn(2, 5, 40, generator=generator, dtype=torch.float64)
    deviation = deviation.abs()
    mean[:, 3:], deviation[:, 3:] = -1.0, 2.0
    mean[0, :3], deviation[2] = -1.0, 0.5
    order = torch.randperm(40, generator=generator)
    mean, deviation = mean[:, order], deviation[:, order]
    apart = mean + 1e-12 * torch.arange(40)
    found = mean_softmax(mean, deviation)
    torch.testing.assert_close(found, mean_softmax(apart, deviation), rtol=1e-9, atol=0.0)
    torch.testing.assert_close(found.sum(-1), torch.ones(5, dtype=torch.float64))
