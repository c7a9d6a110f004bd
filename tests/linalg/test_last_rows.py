"""Last rows of groups, predicted from the others: the compiled library and PyTorch against dense algebra."""

from __future__ import annotations

import functools
import itertools
import math

import pytest
import torch

from rfgp.linalg import last_rows
from rfgp.linalg.last_rows import RowGroups, StationaryRows
from rfgp.linalg.stationary import Profile


@pytest.fixture(params=["compiled", "torch"])
def way(request, monkeypatch):
    """How groups are solved."""
    if request.param == "torch":
        monkeypatch.setattr(last_rows, "_library", None)
    elif last_rows._library is None:
        pytest.skip("the library is not compiled here: pip install -e . with a C++ compiler")
    return request.param


def data(profile=Profile.GAUSSIAN, size=8, count=11, outputs=2, is_student=False, dtype=torch.float64):
    """Rows of two outputs, and groups of them; some cells are not known, and the rows of a group may be equal."""
    generator = torch.Generator().manual_seed(size)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    total = size + 4
    points, residual, noise = draw(total, 3), draw(total, outputs), 0.1 * draw(total, outputs).exp()
    points[1] = points[0]
    noise[torch.rand(total, outputs, generator=generator) < 0.1] = math.inf
    parts = [part.to(dtype).requires_grad_() for part in (points, residual, noise, draw(outputs).exp())]
    alpha = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    groups = torch.stack([torch.randperm(total, generator=generator)[:size] for _ in range(count)])
    used = RowGroups(groups)
    rows = StationaryRows(*(part[used.rows] for part in parts[:3]), parts[3], alpha, profile, is_student)
    return rows, used, [*parts, alpha]


def kernel(squared, profile, alpha):
    distance = squared.clamp_min(1e-30).sqrt()
    if profile is Profile.GAUSSIAN:
        return (-0.5 * squared).exp()
    if profile is Profile.RATIONAL_QUADRATIC:
        return (-alpha * (squared / (2 * alpha)).log1p()).exp()
    if profile is Profile.MATERN_1_2:
        return (-distance).exp()
    if profile is Profile.MATERN_3_2:
        return (1 + 3**0.5 * distance) * (-(3**0.5) * distance).exp()
    return (1 + 5**0.5 * distance + 5 / 3 * squared) * (-(5**0.5) * distance).exp()


def dense(rows, groups):
    """The log densities (B,) of the last rows by the inverse of the covariance of known cells."""
    total = []
    for group in groups.numbers:
        density = rows.scale.new_zeros(())
        for output, scale in enumerate(rows.scale):
            known = group[rows.noise[group, output].isfinite()]
            if not len(known) or known[-1] != group[-1]:
                continue
            points = rows.points[known]
            squared = (points.unsqueeze(0) - points.unsqueeze(1)).square().sum(-1)
            covariance = scale * kernel(squared, rows.profile, rows.alpha) + rows.noise[known, output].diag()
            weights = torch.linalg.solve(covariance[:-1, :-1], covariance[:-1, -1])
            error = rows.residual[known[-1], output] - weights @ rows.residual[known[:-1], output]
            deviation = (covariance[-1, -1] - weights @ covariance[:-1, -1]).sqrt()
            if rows.is_student:
                density = density + torch.distributions.StudentT(4.0, 0.0, deviation).log_prob(error)
            else:
                density = density + torch.distributions.Normal(0.0, deviation).log_prob(error)
        total.append(density)
    return torch.stack(total)


@functools.cache
def reference(profile, size):
    """Densities and gradients by dense algebra."""
    rows, groups, parts = data(profile, size, is_student=size % 2 == 1)
    densities = dense(rows, groups)
    return densities.detach(), torch.autograd.grad(densities.sum(), parts, allow_unused=True, materialize_grads=True)


@pytest.mark.every_case
@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("size", (1, 2, 3, 8, 33, 65, 257))
def test_densities_and_gradients_are_those_of_dense_algebra(way, profile, size):
    rows, groups, parts = data(profile, size, is_student=size % 2 == 1)
    densities, slopes = reference(profile, size)
    torch.testing.assert_close(last_rows.log_densities(rows, groups), densities, rtol=1e-10, atol=1e-10)
    value = last_rows.log_density(rows, groups)
    torch.testing.assert_close(value.detach(), densities.sum(), rtol=1e-10, atol=1e-10)
    for slope, expected in zip(torch.autograd.grad(value, parts), slopes, strict=True):
        torch.testing.assert_close(slope, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("is_student", (False, True))
def test_gradients_are_limits_of_differences(way, is_student):
    rows, groups, _ = data(Profile.RATIONAL_QUADRATIC, 4, count=3, is_student=is_student)
    parts = [part.detach().nan_to_num(posinf=0.3).requires_grad_() for part in rows[:5]]

    def value(*parts):
        return last_rows.log_density(StationaryRows(*parts, rows.profile, is_student), groups)

    assert torch.autograd.gradcheck(value, parts)


@pytest.mark.parametrize("profile", Profile)
def test_float32_is_right_within_its_rounding(way, profile):
    (rows, groups, parts), (wide, _, wide_parts) = (data(profile, 33, dtype=d) for d in (torch.float32, torch.float64))
    densities = last_rows.log_densities(rows, groups)
    assert densities.dtype is torch.float32
    torch.testing.assert_close(densities.double(), last_rows.log_densities(wide, groups), rtol=1e-4, atol=1e-4)
    slopes = torch.autograd.grad(last_rows.log_density(rows, groups), parts)
    expected = torch.autograd.grad(last_rows.log_density(wide, groups), wide_parts)
    for slope, other in zip(slopes, expected, strict=True):
        torch.testing.assert_close(slope.double(), other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("profile", Profile)
def test_kernels_are_right_to_rounding_at_all_distances(way, profile):
    distances = torch.logspace(-9.0, 1.4, 1001, dtype=torch.float64)
    points = torch.cat([distances.new_zeros(1), distances]).unsqueeze(-1)
    residual = torch.zeros_like(points).index_fill(0, torch.tensor(0), 1.0)
    one, alpha = torch.ones_like(distances), torch.tensor(1e5, dtype=torch.float64)
    rows = StationaryRows(points, residual, torch.ones_like(points), one[:1], alpha, profile)
    groups = torch.stack([torch.zeros(1001, dtype=torch.long), torch.arange(1, 1002)], dim=-1)
    error, _ = last_rows.last_moments(rows, RowGroups(groups))
    expected = kernel(distances.square(), profile, alpha)
    torch.testing.assert_close(-2.0 * error[:, 0], expected, rtol=1e-13, atol=0.0)


def test_predictions_are_those_of_dense_algebra(way):
    rows, groups, _ = data(size=8)
    rows = rows._replace(**{name: getattr(rows, name).detach() for name in ("points", "residual", "noise", "scale")})
    queries, near = rows.points[:5] + 0.1, groups.numbers[:5, :-1]
    mean, variance = last_rows.predictions(rows, queries, near)
    assert last_rows.predictions(rows, queries[:0], near[:0])[0].shape == (0, 2)
    for row, output in itertools.product(range(5), range(2)):
        known = near[row][rows.noise[near[row], output].isfinite()]
        points = torch.cat([rows.points[known], queries[row : row + 1]])
        squared = (points.unsqueeze(0) - points.unsqueeze(1)).square().sum(-1)
        matrix = rows.scale[output] * kernel(squared, rows.profile, rows.alpha)
        weights = torch.linalg.solve(matrix[:-1, :-1] + rows.noise[known, output].diag(), matrix[:-1, -1])
        torch.testing.assert_close(mean[row, output], weights @ rows.residual[known, output])
        torch.testing.assert_close(variance[row, output], matrix[-1, -1] - weights @ matrix[:-1, -1])


def test_results_have_the_same_bits_for_any_number_of_threads(way):
    rows, groups, parts = data(size=9, count=200)
    results = []
    threads = torch.get_num_threads()
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        value = last_rows.log_density(rows, groups)
        results.append([value.detach(), *torch.autograd.grad(value, parts, retain_graph=True)])
    torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other, strict=True))


@pytest.mark.parametrize("has_gradients", (False, True))
def test_covariances_that_are_not_positive_definite_are_refused(way, has_gradients):
    rows, groups, _ = data(size=3)
    rows = rows._replace(noise=torch.full_like(rows.noise, -0.5))
    with pytest.raises(ValueError, match="positive definite"):
        (last_rows.log_density if has_gradients else last_rows.log_densities)(rows, groups)
