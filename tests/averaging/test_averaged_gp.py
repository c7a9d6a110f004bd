"""Averages over parameters against dense algebra, refits, integrals and Monte Carlo."""

import copy
import math
import warnings

import numpy as np
import pytest
import scipy.stats
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel

from rfgp.averaging import AveragedGP, most_probable, one_target, parameter_draws
from rfgp.averaging.column_scale import ColumnScale
from rfgp.averaging.input_scale import InputScale
from rfgp.averaging.learned_map import learned_map
from rfgp.averaging.member import Moments
from rfgp.averaging.mixture import DEGREES, Mixture, MixtureComponent, Tail
from rfgp.averaging.one_target import _FORMS, Form, _draw, _taken
from rfgp.averaging.smooth_kernel import SmoothKernel
from rfgp.averaging.stacking import stacked, stacking_weights
from rfgp.averaging.table_kernel import LENGTHS, TableKernel, fixed_matrices
from rfgp.averaging.table_member import SmoothMember, TableRows

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS, NEW = 36, 7


def rows(count=ROWS + NEW, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, generator=generator, dtype=torch.float64)
    return x, (3.0 * x[:, 0]).sin().exp() + x[:, 1] * x[:, 2] + 0.1 * noise


X, Y = rows()
TRAIN, TEST, TARGETS, TRUTH = X[:ROWS], X[ROWS:], Y[:ROWS], Y[ROWS:]


@pytest.fixture(scope="module")
def fitted():
    return AveragedGP(TRAIN, TARGETS)


@pytest.fixture
def model(fitted):
    return copy.deepcopy(fitted)


def smooth_gpytorch_kernel(kernel, vector):
    """The kernel of smooth functions of a vector, as GPyTorch has its parts."""
    dim, (joint, single, scales) = kernel.x.shape[1], np.split(np.exp(vector[:-2]), 3)
    together = RBFKernel(ard_num_dims=dim).double()
    together.lengthscale = torch.from_numpy(1.0 / joint)
    alone = [RBFKernel(active_dims=[k]).double() for k in range(dim)]
    for part, inverse in zip(alone, single, strict=True):
        part.lengthscale = 1.0 / inverse

    def matrix(x, z):
        total = 1.0 + math.exp(vector[-2]) * together(x, z).to_dense()
        for scale, part in zip(scales, alone, strict=True):
            total = total + scale * part(x, z).to_dense()
        return total.detach()

    return matrix


def gpytorch_kernel(kernel, vector):
    """The kernel of a vector, as GPyTorch has its parts."""
    if isinstance(kernel, SmoothKernel):
        return smooth_gpytorch_kernel(kernel, vector)
    count, dim = kernel.num_deviations, kernel.x.shape[1]
    inverse = np.exp(vector[count] + (vector[:count] if count else np.zeros(dim)))
    ard = MaternKernel(2.5, ard_num_dims=dim).double()
    ard.lengthscale = torch.from_numpy(1.0 / inverse)
    linear = LinearKernel().double()
    linear.variance = 1.0 / dim
    singles = []
    for length in LENGTHS:
        parts = [MaternKernel(2.5, active_dims=[k]).double() for k in range(dim)]
        for part in parts:
            part.lengthscale = length
        singles.append(parts)

    def matrix(x, z):
        total = 1.0 + math.exp(vector[count + 1]) * ard(x, z).to_dense()
        scales = np.exp(vector[count + 2 : -1])
        total = total + scales[0] * linear(x, z).to_dense()
        for scale, parts in zip(scales[1:], singles, strict=True):
            total = total + scale / dim * sum(part(x, z).to_dense() for part in parts)
        return total.detach()

    return matrix


def kernel_and_vector(has_lengthscales, is_smooth=False):
    x = InputScale(TRAIN, "values")(TRAIN)
    y = ColumnScale(TARGETS.unsqueeze(-1), is_transformed=False).forward(TARGETS.unsqueeze(-1)).squeeze(-1)
    kernel = SmoothKernel(x, y) if is_smooth else TableKernel(x, y, fixed_matrices(x, x), has_lengthscales)
    random = np.random.default_rng(1)
    return kernel, kernel.start + 0.3 * random.normal(size=len(kernel.start))


@pytest.mark.parametrize("form", [(True,), (False,), (True, True)])
def test_the_kernel_is_that_of_its_parts_in_gpytorch(form):
    kernel, vector = kernel_and_vector(*form)
    z = torch.randn(5, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    dense = gpytorch_kernel(kernel, vector)
    found = kernel.between(kernel.x, z)(vector)
    torch.testing.assert_close(found, dense(kernel.x, z), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(kernel.variance(vector, z), dense(z, z).diagonal(), rtol=1e-9, atol=1e-9)
    evidence = torch.distributions.MultivariateNormal(
        torch.zeros(ROWS, dtype=torch.float64),
        dense(kernel.x, kernel.x) + kernel.noise(vector) * torch.eye(ROWS, dtype=torch.float64),
    ).log_prob(kernel.y)
    loss = kernel.loss(vector)[0] - kernel.prior(vector)[0] + 0.5 * ROWS * math.log(2.0 * math.pi)
    assert abs(loss + float(evidence)) < 1e-8


@pytest.mark.parametrize("form", [(True,), (False,), (True, True)])
def test_gradients_are_those_of_differences(form):
    kernel, vector = kernel_and_vector(*form)
    vector[-1] = math.log(0.05)
    for place, slope in enumerate(kernel.loss(vector)[1]):
        step = 1e-5 * np.eye(len(vector))[place]
        difference = (kernel.loss(vector + step)[0] - kernel.loss(vector - step)[0]) / 2e-5
        assert abs(difference - slope) < 1e-6 * max(1.0, abs(slope))


def dense_members(model):
    """Of each member and draw: the member, kernel, covariance of noisy rows, and noise."""
    for member in model.members:
        (kernel,) = member.kernels
        for vector in member.vectors[0]:
            dense, noise = gpytorch_kernel(kernel, vector), kernel.noise(vector)
            yield member, dense, dense(kernel.x, kernel.x) + noise * torch.eye(len(kernel.x)), noise


def joined(moments):
    """Means and variances of all members and draws of one target."""
    return tuple(torch.cat([getattr(part, name) for part in moments]).squeeze(-1) for name in ("mean", "variance"))


def test_predictions_are_those_of_dense_algebra(model):
    means, variances = joined([member.predict(TEST) for member in model.members])
    latent = joined([member.predict(TEST, has_noise=False) for member in model.members])[1]
    joint = [pair for member in model.members for pair in member.joint(TEST)(0)]
    for place, (member, dense, total, noise) in enumerate(dense_members(model)):
        new = member.rows.scale(TEST)
        cross = dense(member.rows.x, new)
        solved = torch.linalg.solve(total, cross)
        covariance = dense(new, new) - cross.mT @ solved + noise * torch.eye(NEW)
        mean = solved.mT @ member.y[:, 0]
        for part in (means[place], joint[place].mean):
            torch.testing.assert_close(part, mean, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(variances[place], covariance.diagonal(), rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(latent[place], covariance.diagonal() - noise, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(joint[place].covariance, covariance, rtol=1e-8, atol=1e-8)


def test_left_out_rows_are_predicted_by_the_others(model):
    groups = [torch.tensor([[0, 5, 9]]), torch.tensor([[1, 2], [3, 7]])]
    means, variances = joined([member.left_out(groups) for member in model.members])
    for place, (member, _, total, _) in enumerate(dense_members(model)):
        for out in [*groups[0], *groups[1], torch.tensor([20])]:
            kept = torch.tensor([k for k in range(ROWS) if k not in out.tolist()])
            solved = torch.linalg.solve(total[kept][:, kept], total[kept][:, out])
            mean = solved.mT @ member.y[kept, 0]
            variance = (total[out][:, out] - total[out][:, kept] @ solved).diagonal()
            torch.testing.assert_close(means[place, out], mean, rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(variances[place, out], variance, rtol=1e-8, atol=1e-8)


def test_mixtures_have_the_moments_and_quantiles_of_their_density(model):
    degrees = (math.inf, 6.0, 10.0, math.inf, 10.0, 6.0)[: len(model.members)]
    model.tails = [Tail(torch.tensor([number])) for number in degrees]
    found = model.predictive(TEST)
    low, high = (float(end) for end in model.limits)
    grid = torch.linspace(2.0 * low - high, 2.0 * high - low, 1_501, dtype=torch.float64)
    densities = torch.stack([found.log_prob(value.expand(NEW)).exp() for value in grid])
    step = float(grid[1] - grid[0])
    torch.testing.assert_close(densities.sum(0) * step, torch.ones(NEW, dtype=torch.float64), rtol=0.0, atol=1e-4)
    first = (densities * grid.unsqueeze(-1)).sum(0) * step
    second = (densities * (grid.unsqueeze(-1) - first).square()).sum(0) * step
    torch.testing.assert_close(found.mean, first, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.variance, second, rtol=2e-2, atol=1e-4)
    assert all(found.log_prob(torch.full((NEW,), end)).eq(-math.inf).all() for end in (-math.inf, math.inf))
    for level in (0.025, 0.5, 0.9):
        quantile = found.icdf(level)
        torch.testing.assert_close(found.cdf(quantile), torch.full((NEW,), level, dtype=torch.float64))
        cells = ((quantile - grid.unsqueeze(-1)) / step + 0.5).clamp(0.0, 1.0)  # the part of each that is below
        below = (densities * cells).sum(0) * step
        torch.testing.assert_close(below, torch.full((NEW,), level, dtype=torch.float64), rtol=0.0, atol=1e-2)


def test_moments_follow_medians_beyond_the_limits_of_a_transformed_scale():
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = AveragedGP(x, x.sum(-1).exp())
    found = model.predictive(torch.full((1, 4), 1.8, dtype=torch.float64))
    median = found.icdf(0.5)
    assert float(median) > 1.2 * float(model.limits[1])  # inside the range of each input
    torch.testing.assert_close(found.mean, median, rtol=0.1, atol=0.0)
    assert float((found.mean - math.exp(7.2)).abs() / found.stddev) < 3.0
    low, high = found.icdf(0.025), found.icdf(0.975)
    torch.testing.assert_close(found.stddev, (high - low) / 3.92, rtol=0.5, atol=0.0)


def test_a_component_of_little_weight_that_extrapolates_far_does_not_decide():
    """Views of a video: of one member in a hundred and fifty, the logarithm of a far input is 300."""
    scale = ColumnScale(torch.linspace(-2.0, 2.0, 50, dtype=torch.float64).exp().unsqueeze(-1), is_transformed=True)
    means, variances = torch.tensor([[0.3, 0.3], [300.0, 0.5]]).double(), torch.tensor([0.04, 0.09]).double()
    components = [
        MixtureComponent(
            Moments(mean.reshape(1, 2, 1), variance.expand(1, 2, 1)), scale, Tail(torch.tensor([math.inf]))
        )
        for mean, variance in zip(means, variances, strict=True)
    ]
    low, high = torch.tensor([-3.0]).double(), torch.tensor([11.0]).double()
    found = Mixture(components, torch.tensor([[0.994], [0.006]]).double(), low, high, (2,))
    assert float(scale.inverse(means[1, :1].unsqueeze(-1))) > 1e30
    assert float((found.mean[0] - found.mean[1]).abs()) < 0.006 * 11.0 and float(found.stddev[0]) < 1.0
    for level in (0.025, 0.5, 0.975):
        quantile = found.icdf(level)
        torch.testing.assert_close(found.cdf(quantile), torch.full((2,), level).double())
        torch.testing.assert_close(quantile[0], quantile[1], rtol=0.02, atol=0.0)


def test_quantiles_of_normal_scores(model):
    found, z = model.predictive(TEST), torch.linspace(-3.0, 3.0, NEW, dtype=torch.float64)
    torch.testing.assert_close(found.cdf(found.of_scores(z)), torch.special.ndtr(z))
    median = found.icdf(0.5)
    torch.testing.assert_close(found.of_scores(torch.zeros_like(z)), median)


def test_widened_components(model):
    found, factor = model.predictive(TEST), torch.linspace(0.5, 2.0, NEW, dtype=torch.float64)
    wide = [component.moments.variance for component in found.widened(factor)._components]
    for variance, component in zip(wide, found._components, strict=True):
        torch.testing.assert_close(variance[..., 0], component.moments.variance[..., 0] * factor.square())
    again = found.widened(factor).widened(1.0 / factor)
    torch.testing.assert_close(again.variance, found.variance)
    assert ((found.widened(factor).stddev > found.stddev) == (factor > 1.0)).all()


def test_mixtures_in_other_units(model):
    found = model.predictive(TEST)
    center, scale = torch.tensor([3.0], dtype=torch.float64), torch.tensor([40.0], dtype=torch.float64)
    other = found.rescaled(center, scale)
    torch.testing.assert_close(other.mean, 3.0 + 40.0 * found.mean)
    torch.testing.assert_close(other.stddev, 40.0 * found.stddev)
    torch.testing.assert_close(other.icdf(0.9), 3.0 + 40.0 * found.icdf(0.9))
    torch.testing.assert_close(other.cdf(3.0 + 40.0 * TRUTH), found.cdf(TRUTH))
    torch.testing.assert_close(other.log_prob(3.0 + 40.0 * TRUTH), found.log_prob(TRUTH) - math.log(40.0))
    torch.testing.assert_close(torch.cat(other.limits), 3.0 + 40.0 * torch.cat(found.limits))


@pytest.mark.parametrize("width", [1.0, 1.5])
@pytest.mark.parametrize("degrees", (2.0, *DEGREES))
def test_tails_have_the_95_percent_interval_of_the_normal_times_a_width(degrees, width):
    tail = Tail(torch.tensor([degrees, 6.0, degrees]), torch.full((3,), width))

    def values(*numbers):
        return torch.tensor(numbers, dtype=torch.float64).unsqueeze(-1).expand(-1, 3)

    ends = width * values(-1.959964, 1.959964)
    torch.testing.assert_close(tail.icdf(values(0.025, 0.975)), ends, atol=1e-6, rtol=0.0)
    levels = values(0.01, 0.4, 0.99)
    torch.testing.assert_close(tail.cdf(tail.icdf(levels)), levels, rtol=1e-10, atol=0.0)
    wide = values(*np.linspace(-40.0, 40.0, 41))
    wanted = torch.from_numpy(scipy.stats.t(degrees).cdf(wide.numpy() / float(tail.scale[0])))
    torch.testing.assert_close(tail.cdf(wide)[:, 0], wanted[:, 0], rtol=0.0, atol=1e-15)
    step = 1e-5
    slope = (tail.cdf(values(0.7 + step)) - tail.cdf(values(0.7 - step))) / (2.0 * step)
    torch.testing.assert_close(slope.log(), tail.log_density(values(0.7)), rtol=1e-6, atol=0.0)
    wanted = scipy.stats.t(degrees).var() * float(tail.scale[0]) ** 2 if degrees > 2.0 else width**2
    assert abs(float(tail.variance[0]) - wanted) < 1e-9 * wanted


def test_draws_have_the_moments_of_the_mixture(model):
    count = 20_000
    draws = model.sample(TEST, count, torch.Generator().manual_seed(0))
    found, covariance = model.predictive(TEST), model.covariance(TEST)
    torch.testing.assert_close(covariance.diagonal(), found.variance, rtol=1e-9, atol=1e-12)
    assert float(torch.linalg.eigvalsh(covariance).min()) > 0.0
    assert ((draws.mean(0) - found.mean).abs() < 4.0 * (found.variance / count).sqrt()).all()
    for level in (0.1, 0.5, 0.9):
        share = (draws < found.icdf(level)).double().mean(0)
        assert ((share - level).abs() < 4.0 * (level * (1.0 - level) / count) ** 0.5).all()
    std = found.stddev
    assert (draws.mT.corrcoef() - covariance / torch.outer(std, std)).abs().max() < 0.1


def test_drawn_functions_have_the_moments_of_the_function(model):
    few = model.thinned(8)  # of which all are drawn from
    count, found = 4000, few.function(TEST)
    generator, values, means = torch.Generator().manual_seed(6), [], []
    for _ in range(4):  # the waves of a draw of the prior are random too
        parts = [functions(TEST)[..., 0] for functions in few.draw_functions(count // 4, generator)]
        values.append(torch.cat([part[:, 1:] for part in parts], dim=-1))
        means.append(torch.stack([part[:, 0] for part in parts]).mean(0))
    drawn = torch.cat(values, dim=-1)
    assert (drawn.mean(-1) - found.mean).abs().max() < 0.2 * found.stddev.mean()
    assert (drawn.std(-1) / found.stddev - 1.0).abs().max() < 0.25
    torch.testing.assert_close(means[0], found.mean)


def test_new_rows_count_as_if_they_had_been_there(model):
    members = []
    for member in model.members:
        made = type(member)(TableRows(member.rows.scale, X), member.target, Y.unsqueeze(-1))
        made.vectors = member.vectors
        members.append(made)
    model.update(TEST, TRUTH)
    for made, member in zip(members, model.members, strict=True):
        torch.testing.assert_close(member.predict(TRAIN), made.predict(TRAIN), rtol=1e-10, atol=1e-10)
    assert len(model.y) == ROWS + NEW


def smooth_rows(count):
    """Rows of a function without noise, of which each input has an effect of its own."""
    x = torch.rand(count, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, (4.0 * x[:, 0]).sin() + 2.0 * (5.0 * x[:, 1]).cos() ** 2 + x[:, 0] * x[:, 2] ** 2


@pytest.fixture(scope="module")
def smooth():
    return AveragedGP(*smooth_rows(60))


def test_functions_without_noise_are_smooth(smooth):
    """The Matern kernel alone has .009."""
    x, y = (part[60:] for part in smooth_rows(200))
    is_smooth = torch.tensor([isinstance(member, SmoothMember) for member in smooth.members])
    assert float(smooth.weights[is_smooth].sum()) > 0.8
    assert float((smooth.predictive(x).mean - y).square().mean().sqrt()) < 0.006 * float(y.std())


def test_noise_hides_whether_a_function_is_smooth():
    x, y = smooth_rows(60)
    noise = torch.randn(60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert not any(isinstance(member, SmoothMember) for member in AveragedGP(x, y + noise).members)


def test_variances_at_rows_are_right_where_the_noise_is_small(smooth):
    """The variance at a row is s - s^2 e' (K + s I)^-1 e, which subtracts nothing large; they round the prior's."""
    found, place = joined([member.predict(smooth.x, has_noise=False) for member in smooth.members])[1], 0
    for member in smooth.members:
        kernel = member.kernels[0]
        for vector in member.vectors[0]:
            noise, (total, _) = kernel.noise(vector), kernel.of_rows(vector)
            factor = torch.linalg.cholesky(total + noise * torch.eye(len(total), dtype=total.dtype))
            known = noise - noise**2 * torch.cholesky_inverse(factor).diagonal()
            rounding = 10.0 * torch.finfo(known.dtype).eps * float(kernel.variance(vector, member.rows.x).max())
            torch.testing.assert_close(found[place], known, rtol=1e-5, atol=rounding)
            place += 1


def test_rows_are_predicted_alike_among_many(smooth):
    """Kernels of many rows are made in blocks."""
    x = smooth_rows(4000)[0]
    many, ends = smooth.predictive(x), torch.tensor([0, 1999, 2000, 3999])
    few = smooth.predictive(x[ends])
    torch.testing.assert_close(many.mean[ends], few.mean, rtol=0.0, atol=1e-8)
    torch.testing.assert_close(many.stddev[ends], few.stddev, rtol=1e-6, atol=0.0)


class CountedDraws:
    """A member that keeps how many draws and proposals it is to have."""

    def draw(self, count, num_proposals):
        self.wanted = count, num_proposals


def test_draws_are_as_many_as_the_weights_of_members():
    members = {form: CountedDraws() for form in _FORMS[:3]}
    _draw(members, dict(zip(_FORMS, (0.54, 0.3, 0.06, 0.1), strict=True)))
    assert [member.wanted for member in members.values()] == [(15, 39), (8, 24), (8, 24)]


def test_of_many_rows_the_most_probable_parameters_stand_for_all(monkeypatch):
    monkeypatch.setattr(one_target, "CHOOSING", ROWS - 1)
    assert {member.num_draws for member in AveragedGP(TRAIN, TARGETS).members} == {1}


def test_the_search_finds_about_the_covariance():
    root = np.array([[2.0, 0.0], [1.5, 0.3]])
    precision = np.linalg.inv(root @ root.T)

    class Normal:
        bounds = ((-20.0, 20.0),) * 2

        def loss(self, vector, has_gradient=True):
            return 0.5 * float(vector @ precision @ vector), precision @ vector

    start = np.array([3.0, -2.0])
    for found in (most_probable(Normal(), start), most_probable(Normal(), start, root=root)):
        np.testing.assert_allclose(found.vector, 0.0, atol=1e-2)
        np.testing.assert_allclose(found.root @ found.root.T, root @ root.T, atol=0.3)


def test_few_draws_stand_for_all(smooth):
    few, single, at = smooth.thinned(8), smooth.single_draws(8), smooth_rows(90)[0][60:]
    assert sum(member.num_draws for member in few.members) == 8
    one, other = few.function(at), smooth.function(at)
    assert (one.mean - other.mean).abs().mean() < other.stddev.mean()
    functions = [process.draw_functions(1)[0] for process in single]
    for means in ([process.function(at).mean for process in single], [of(at)[:, 0, 0] for of in functions]):
        torch.testing.assert_close(torch.stack(means).mean(0), one.mean)


def test_covariances_without_noise_are_those_of_the_function(smooth):
    at = smooth_rows(66)[0][60:]
    covariance = smooth.covariance(at, has_noise=False)
    torch.testing.assert_close(covariance.diagonal(), smooth.function(at).variance, rtol=1e-6, atol=1e-12)
    assert float(torch.linalg.eigvalsh(covariance).min()) > -1e-12


def test_rows_that_are_left_out_are_forgotten(smooth):
    """Parameters are the most probable ones of the other rows, and draws move by what these do."""
    rows = torch.tensor([0, 7, 8])
    without, kept = smooth.without(rows), torch.tensor([k for k in range(60) if k not in (0, 7, 8)])
    assert torch.equal(without.x, smooth.x[kept]) and torch.equal(without.y, smooth.y[kept])
    for member, anew in zip(smooth.members, without.members, strict=True):
        (kernel,) = anew.kernels
        before, after = (kernel.loss(mode)[0] for mode in (member.modes[0], anew.modes[0]))
        assert after < before and after < most_probable(kernel, anew.modes[0], 200).loss + 0.1
        step = (anew.vectors[0] - member.vectors[0]) - (anew.modes[0] - member.modes[0])
        assert np.median(np.abs(step)) < 1e-9  # but for those at bounds
    for bad in (torch.tensor([60]), torch.tensor([-1]), torch.arange(60)):
        with pytest.raises(ValueError, match="expected"):
            smooth.without(bad)


def test_a_failed_update_leaves_the_model_as_it_was(model):
    before = model.predictive(TEST).mean
    with pytest.raises(ValueError, match="expected"):
        model.update(TEST, TRUTH * math.nan)
    with pytest.raises(ValueError, match="expected"):
        model.update(TEST[:, :2], TRUTH)
    assert len(model.y) == ROWS
    torch.testing.assert_close(model.predictive(TEST).mean, before, rtol=0.0, atol=0.0)


def test_units_do_not_matter(model):
    scale = torch.tensor([1e3, 1e-14, 7.0], dtype=torch.float64)
    other = AveragedGP(TRAIN * scale, 1e4 * TARGETS + 3.0)
    found, wanted = other.predictive(TEST * scale), model.predictive(TEST)
    torch.testing.assert_close(found.mean, 1e4 * wanted.mean + 3.0, rtol=1e-3, atol=30.0)
    torch.testing.assert_close(found.stddev, 1e4 * wanted.stddev, rtol=0.02, atol=1.0)


def test_equal_inputs_are_left_out_together():
    """One by one they would be predicted by those that they equal."""
    x, y = rows(30)
    x, y = x.repeat(4, 1), y.repeat(4) + 0.5 * torch.randn(120, generator=torch.Generator().manual_seed(3))
    model, groups = AveragedGP(x, y), [torch.arange(30 * 4).reshape(4, 30).mT]
    y, densities = y.double().unsqueeze(-1), []
    for member, tail in zip(model.members, model.tails, strict=True):
        moments, logs = member.left_out(groups), {}
        for degrees in DEGREES:
            logs[degrees] = MixtureComponent(moments, member.target, Tail(torch.tensor([degrees]))).log_density(y)
        assert float(tail.degrees) == max(logs, key=lambda degrees: logs[degrees].sum())
        densities.append(logs[float(tail.degrees)] - member.optimism)
    torch.testing.assert_close(model.weights, stacking_weights(torch.stack(densities)), rtol=1e-9, atol=0.0)


def test_members_are_weighed_by_what_is_rounded_to_a_value():
    """A density is infinite where a member has no noise, and the probability of a rounded value is not."""
    x, y = rows(60)
    rounded = (2.0 * y).round().unsqueeze(-1) / 2.0
    moments, member = AveragedGP(x, y).members[0].left_out(), AveragedGP(x, y).members[0]
    sharp, wide = copy.deepcopy(member), copy.deepcopy(member)
    at_values = member.target.forward(rounded).unsqueeze(0)
    sharp.left_out = lambda groups: moments._replace(mean=at_values, variance=torch.full_like(at_values, 1e-16))
    wide.left_out = lambda groups: moments._replace(mean=at_values, variance=torch.full_like(at_values, 1e-4))
    assert float(stacked([sharp, wide], rounded, torch.ones_like(rounded) > 0, [])[1][0]) == pytest.approx(
        0.5, abs=0.01
    )
    y = y.unsqueeze(-1)
    assert float(stacked([sharp, wide], y, torch.ones_like(y) > 0, [])[1][0]) < 0.1


def test_a_rare_spike_does_not_stop_the_choice_of_scales():
    x = torch.rand(450, 2, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(450)
    y[np.random.default_rng(0).permutation(450)[-1]] = 1.0  # which is not among the rows that choose
    assert bool(torch.isfinite(AveragedGP(x, y).predictive(x[:3]).mean).all())


def test_the_evidence_is_that_of_the_most_probable_parameters(model):
    logs = []
    for member in model.members:
        (kernel,), (vector,) = member.kernels, member.modes
        total = gpytorch_kernel(kernel, vector)(kernel.x, kernel.x)
        total = total + kernel.noise(vector) * torch.eye(ROWS, dtype=torch.float64)
        normal = torch.distributions.MultivariateNormal(torch.zeros(ROWS, dtype=torch.float64), total)
        logs.append(normal.log_prob(kernel.y) + member.target.log_slope(TARGETS.unsqueeze(-1)).sum())
    wanted = torch.logsumexp(torch.stack(logs) + model.weights[:, 0].log(), 0)
    torch.testing.assert_close(model.log_marginal_likelihood(), wanted, rtol=1e-9, atol=1e-9)


class Skewed:
    """The density of the logarithm of a gamma variable of shape 5, of each of two parameters."""

    bounds = ((-20.0, 20.0),) * 2

    def loss(self, vector, has_gradient=True):
        return float(np.exp(vector).sum() - 5.0 * vector.sum()), np.exp(vector) - 5.0


def test_parameter_draws_have_the_moments_of_their_density():
    mode = most_probable(Skewed(), np.zeros(2)).vector
    np.testing.assert_allclose(mode, math.log(5.0), atol=1e-3)
    draws = np.exp(parameter_draws(Skewed(), mode, 128, num_proposals=1024).vectors)
    assert (abs(draws.mean(0) - 5.0) < 4.0 * (5.0 / 128) ** 0.5).all()
    assert (abs(draws.var(0) / 5.0 - 1.0) < 0.35).all()


def test_intervals_cover_functions_of_the_prior():
    """Eight problems of 60 rows from the kernel of a table, with lengthscales that differ."""
    generator, random = torch.Generator().manual_seed(4), np.random.default_rng(5)
    inside = []
    for _ in range(8):
        x = torch.randn(160, 4, generator=generator, dtype=torch.float64)
        kernel = TableKernel(x, x[:, 0], fixed_matrices(x, x), has_lengthscales=True)
        deviations = 0.5 * random.standard_t(3.0, size=4)
        vector = np.r_[deviations, -0.7, -0.5, -2.0, -2.0, -2.0, math.log(0.05)]
        total = kernel.matrix(vector, x, x, kernel.fixed) + 0.05 * torch.eye(160, dtype=torch.float64)
        y = torch.linalg.cholesky(total) @ torch.randn(160, generator=generator, dtype=torch.float64)
        probability = AveragedGP(x[:60], y[:60]).predictive(x[60:]).cdf(y[60:])
        inside.append(float(((probability > 0.025) & (probability < 0.975)).double().mean()))
    error = np.std(inside, ddof=1) / len(inside) ** 0.5
    assert abs(np.mean(inside) - 0.95) < 3.0 * error + 0.01


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (TRAIN, TARGETS.reshape(1, -1, 1)),
        (TRAIN, torch.stack([TARGETS, torch.ones(ROWS)], dim=-1)),
        (TRAIN, TARGETS[:-1]),
        (TRAIN, TARGETS * math.inf),
        (TRAIN * math.nan, TARGETS),
        (TRAIN[0], TARGETS),
        (TRAIN, torch.ones(ROWS, dtype=torch.float64)),
    ],
)
def test_bad_rows_are_refused(x, y):
    with pytest.raises(ValueError, match=r"expected .* got"):
        AveragedGP(x, y)


def test_a_target_without_values_and_a_baseline_that_learns_nothing_are_refused():
    with pytest.raises(ValueError, match="expected targets with known values, got one without any"):
        AveragedGP(TRAIN, torch.stack([TARGETS, torch.full_like(TARGETS, math.nan)], dim=-1))
    with pytest.raises(ValueError, match="expected a function of rows for learns_baseline, got 'forest'"):
        AveragedGP(TRAIN, TARGETS, "forest")


def test_left_out_densities_are_those_of_the_mixture(model):
    found = model.leave_one_out(TRAIN, TARGETS).log_prob(TARGETS)
    torch.testing.assert_close(model.left_out_log_density, found, rtol=1e-10, atol=1e-10)
    few = model.thinned(3)
    found = few.leave_one_out(TRAIN, TARGETS).log_prob(TARGETS)
    torch.testing.assert_close(few.left_out_log_density, found, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("center", "scale"), [([0.0], [-1.0]), ([0.0, 0.0], [1.0, 1.0])])
def test_mixtures_are_rescaled_by_a_positive_number_for_each_target(model, center, scale):
    with pytest.raises(ValueError, match=r"expected a center and a positive scale for each of 1 targets, got"):
        model.predictive(TEST).rescaled(torch.tensor(center), torch.tensor(scale))


def test_float32_is_computed_in_float64(model):
    found = model.covariance(TEST.float())
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, model.covariance(TEST.float().double()), rtol=0.0, atol=0.0)


def test_groups_are_those_of_all_rows(model):
    with pytest.raises(ValueError, match="expected a group for each of 36 rows, got"):
        model.leave_group_out(TRAIN, TARGETS, torch.zeros(3))


def test_other_rows_are_not_left_out(model):
    with pytest.raises(ValueError, match="expected the rows that were fitted, got others"):
        model.leave_one_out(TEST, TRUTH)


def test_inputs_that_do_not_vary_are_left_out():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        alone = AveragedGP(torch.ones(ROWS, 2), TARGETS).predictive(torch.ones(1, 2))
    assert abs(float(alone.mean) - float(TARGETS.mean())) < 0.1 * float(TARGETS.std())
    x = torch.cat([TRAIN, torch.ones(ROWS, 1, dtype=torch.float64)], dim=-1)
    new = torch.cat([TEST, 9.0 * torch.ones(NEW, 1, dtype=torch.float64)], dim=-1)
    found = AveragedGP(x, TARGETS).predictive(new)
    torch.testing.assert_close(found.mean, AveragedGP(TRAIN, TARGETS).predictive(TEST).mean)


def test_of_members_that_are_alike_some_are_learned_from_all_rows():
    rough, other, *rest, smooth, mapped = [*_FORMS, Form("values", False, True), Form("map")]
    shares = dict.fromkeys([rough, other, *rest, smooth, mapped], 1.0 / 6.0)
    assert _taken(shares) == [*shares]
    nothing = dict.fromkeys(shares, 0.0)
    assert _taken(nothing | {rough: 0.7, mapped: 0.3}) == [rough]
    assert _taken(nothing | {rough: 0.4, other: 0.35, smooth: 0.25}) == [rough, other, smooth]
    assert _taken(nothing | {other: 0.2, smooth: 0.3, mapped: 0.5}) == [smooth, mapped, other]


def turned_rows(num_rows):
    """A function of one of three inputs that are turned, and noise."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(num_rows, 3, generator=generator, dtype=torch.float64)
    axis = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64) / math.sqrt(3.0)
    noise = torch.randn(num_rows, generator=generator, dtype=torch.float64)
    return x, (3.0 * (x @ axis)).sin() + 0.3 * noise, axis


def test_the_map_finds_the_axis_of_a_function():
    x, y, axis = turned_rows(300)
    weights = learned_map(x, y, torch.ones(3, dtype=torch.float64), 1.0, 0.1)
    sizes = weights.norm(dim=-1)
    assert float((weights[0] @ axis).abs() / sizes[0]) > 0.99
    assert float(sizes[0]) > 1.8 * float(sizes[1])


def test_a_map_predicts_a_function_of_turned_inputs(monkeypatch):
    x, y, axis = turned_rows(150)
    new = turned_rows(600)[0][150:]
    truth = (3.0 * (new @ axis)).sin()
    mapped = AveragedGP(x, y)
    monkeypatch.setattr(one_target, "_ROWS_PER_WEIGHT", math.inf)
    found = torch.stack([model.predictive(new).mean for model in (mapped, AveragedGP(x, y))])
    errors = (found - truth).square().mean(-1).sqrt()
    assert float(errors[0]) < 0.8 * float(errors[1])
    scales = [member.rows.scale for member in mapped.members]
    assert {scale.optimism for scale in scales if scale.kind == "map"} == {3 / 150}


def test_a_map_of_inputs_is_linear_and_standardized():
    plain = InputScale(TRAIN, "values")
    weights = torch.arange(TRAIN.shape[1] ** 2, dtype=torch.float64).reshape(TRAIN.shape[1], -1).cos()
    found = plain.mapped(weights, TRAIN)(TRAIN)
    expected = plain(TRAIN) @ weights.mT
    torch.testing.assert_close(found, (expected - expected.mean(0)) / expected.std(0, correction=0))


def test_smooth_members_have_the_target_on_both_scales():
    """Of few runs with long tails, one of them is chosen by chance, and its intervals are too narrow."""
    x, y = smooth_rows(60)
    skewed = (2.0 * y).exp().unsqueeze(-1)
    forms = one_target._every(x, skewed, None)
    assert {form.is_transformed for form in forms if form.is_smooth} == {False, True}
