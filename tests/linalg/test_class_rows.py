"""Classes at the last rows of groups by the compiled library, against dense algebra and PyTorch."""

from __future__ import annotations

import math

import pytest
import torch

from rfgp.likelihoods.mean_softmax import normal_points
from rfgp.linalg import last_rows
from rfgp.linalg.class_rows import ClassRows, predictions
from rfgp.linalg.last_rows import RowGroups
from rfgp.linalg.stationary import Profile, stationary_matrix
from rfgp.training.classes import class_moments, transformed

pytestmark = pytest.mark.skipif(
    last_rows._library is None, reason="the library is not compiled here: pip install -e . with a C++ compiler"
)


def data(profile=Profile.GAUSSIAN, size=9, classes=3, count=11, labels=None):
    """Rows with labels, of which two are equal, groups of them, and what is learned."""
    generator = torch.Generator().manual_seed(size + classes)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    total = size + 4
    points = draw(total, 3)
    points[1] = points[0]
    if labels is None:
        labels = torch.randint(classes, (total,), generator=generator)
    alpha, epsilon = torch.tensor(1.7, dtype=torch.float64), torch.tensor(0.05, dtype=torch.float64)
    parts = [points, draw().exp(), alpha, transformed(epsilon), draw(classes) - 2.0]
    parts = [part.requires_grad_() for part in parts]
    groups = RowGroups(torch.stack([torch.randperm(total, generator=generator)[:size] for _ in range(count)]))
    assert len(groups.rows) == total
    return ClassRows(points, labels, *parts[1:], profile, normal_points(classes)[:16]), groups, parts


def by_torch(rows, groups):
    """Densities and moments by PyTorch."""
    points = rows.points[groups.numbers]
    matrix = rows.scale * stationary_matrix(points - points[:, -1:], rows.profile, rows.alpha)
    labels = rows.labels[groups.numbers]
    inside = torch.nn.functional.one_hot(labels[:, :-1], len(rows.means)).double()
    mean, variance = class_moments(matrix, inside, rows.targets, rows.means)
    values = (mean + variance.sqrt() * rows.normals.unsqueeze(1)).log_softmax(-1)
    chosen = values.gather(-1, labels[:, -1:].expand(len(values), -1, -1)).squeeze(-1)
    return chosen.logsumexp(0) - math.log(len(values)), mean, variance


def check(rows, groups, parts):
    densities, mean, variance = by_torch(rows, groups)
    torch.testing.assert_close(last_rows.log_densities(rows, groups), densities.detach(), rtol=1e-10, atol=1e-10)
    for found, expected in zip(last_rows.last_moments(rows, groups), (mean, variance), strict=True):
        torch.testing.assert_close(found, expected.detach(), rtol=1e-10, atol=1e-10)
    value = last_rows.log_density(rows, groups)
    torch.testing.assert_close(value.detach(), densities.sum().detach(), rtol=1e-10, atol=1e-10)
    slopes = torch.autograd.grad(densities.sum(), parts, allow_unused=True, materialize_grads=True)
    for slope, expected in zip(torch.autograd.grad(value, parts), slopes, strict=True):
        torch.testing.assert_close(slope, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.every_case
@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("size", (1, 2, 3, 9, 33))
@pytest.mark.parametrize("classes", (2, 3, 26))
def test_densities_moments_and_gradients_are_those_of_pytorch(profile, size, classes):
    check(*data(profile, size, classes))


@pytest.mark.parametrize(("size", "classes"), ((65, 26), (66, 2), (20, 200)))
def test_many_rows_and_many_classes(size, classes):
    check(*data(Profile.RATIONAL_QUADRATIC, size, classes))


@pytest.mark.parametrize("label", (0, 2))
def test_classes_that_do_not_occur(label):
    check(*data(size=9, classes=4, labels=torch.full((13,), label)))


@pytest.mark.parametrize("classes", (2, 5))
def test_moments_are_those_of_a_regression_for_each_class(classes):
    rows, groups, _ = data(Profile.MATERN_3_2, 9, classes)
    mean, variance = last_rows.last_moments(rows, groups)
    inside, outside, inside_noise, outside_noise = rows.targets.detach()
    for row, group in enumerate(groups.numbers):
        matrix = (rows.scale * stationary_matrix(rows.points[group], rows.profile, rows.alpha)).detach()
        for label, prior in enumerate(rows.means.detach()):
            is_own = rows.labels[group[:-1]] == label
            noise, targets = torch.where(is_own, inside_noise, outside_noise), torch.where(is_own, inside, outside)
            weights = torch.linalg.solve(matrix[:-1, :-1] + noise.diag(), matrix[:-1, -1])
            torch.testing.assert_close(mean[row, label], prior + weights @ (targets - prior))
            torch.testing.assert_close(variance[row, label], matrix[-1, -1] - weights @ matrix[:-1, -1])


def test_gradients_are_limits_of_differences():
    rows, groups, parts = data(Profile.RATIONAL_QUADRATIC, 6, 3, count=7)

    def value(points, *others):
        return last_rows.log_density(ClassRows(points, rows.labels, *others, rows.profile, rows.normals), groups)

    assert torch.autograd.gradcheck(value, parts)


def test_predictions_are_those_of_groups():
    rows, groups, _ = data(size=8, classes=5)
    last = groups.numbers[:, -1]
    found = predictions(rows._replace(points=rows.points.detach()), rows.points[last].detach(), groups.numbers[:, :-1])
    for some, expected in zip(found, last_rows.last_moments(rows, groups), strict=True):
        torch.testing.assert_close(some, expected, rtol=1e-12, atol=1e-12)
    assert predictions(rows, rows.points[:0], groups.numbers[:0, :-1])[0].shape == (0, 5)


@pytest.mark.parametrize("has_gradients", (False, True))
@pytest.mark.parametrize("noise", ((-0.7, -0.5), (-4.0, 0.5)))
def test_covariances_that_are_not_positive_definite_are_refused(has_gradients, noise):
    rows, groups, _ = data(size=5)
    rows = rows._replace(targets=torch.tensor([0.2, -3.0, *noise], dtype=torch.float64))
    with pytest.raises(ValueError, match="positive definite"):
        (last_rows.log_density if has_gradients else last_rows.log_densities)(rows, groups)
