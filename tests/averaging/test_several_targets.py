"""Averages of several targets against dense algebra, integrals and Monte Carlo."""

import copy
import math
import pickle

import pytest
import scipy.integrate
import scipy.stats
import torch
from gpytorch.kernels import MaternKernel

from rfgp.averaging import AveragedGP
from rfgp.averaging.bank_member import BankMember, posterior_weights
from rfgp.averaging.column_scale import ColumnScale
from rfgp.averaging.error_correlations import _loadings, conditional_densities, correlation_root, missing_draws
from rfgp.averaging.gaps import imputations
from rfgp.averaging.input_scale import InputScale
from rfgp.averaging.kernel_bank import (
    RATIOS,
    SHAPES,
    KernelBank,
    Part,
    Shape,
    kernels,
    log_evidences,
    scales,
    variances,
)
from rfgp.averaging.stacking import stacked, stacking_weights
from rfgp.averaging.table_member import TableMember, TableRows

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS, NEW, OUTPUTS = 30, 6, 3


def rows(count=ROWS + NEW, seed=0):
    """Two inputs, and three targets whose noise is correlated."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, 1, generator=generator, dtype=torch.float64)
    own = torch.randn(count, OUTPUTS, generator=generator, dtype=torch.float64)
    functions = torch.stack([(4.0 * x[:, 0]).sin(), x[:, 0] + x[:, 1], (2.0 * x[:, 1]).exp()], dim=-1)
    return x, functions + 0.2 * (noise + 0.3 * own)


X, Y = rows()
TRAIN, TEST, TARGETS, TRUTH = X[:ROWS], X[ROWS:], Y[:ROWS], Y[ROWS:]


class Nearest:
    """A baseline: the target of the nearest other row."""

    def __init__(self, x, y):
        self.x, self.y = x, y
        self.left_out = y[(torch.cdist(x, x) + 9.0 * torch.eye(len(x))).argmin(1)]

    def __call__(self, x):
        return self.y[torch.cdist(x, self.x).argmin(1)]


@pytest.fixture(scope="module")
def fitted():
    return AveragedGP(TRAIN, TARGETS, Nearest)


@pytest.fixture
def model(fitted):
    return copy.deepcopy(fitted)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(1.0),
        Shape(0.5, ((Part(0.5, 0.7), 0.5),)),
        Shape(0.0, ((Part(2.5, 2.0), 0.3), (Part(0.5, 1.0, is_additive=True), 0.4))),
    ],
)
def test_kernels_are_those_of_gpytorch(shape):
    z, total = TEST + 0.1, torch.ones(ROWS, NEW) + 0.5 * shape.linear * TRAIN @ (TEST + 0.1).mT
    for part, weight in shape.parts:
        for columns in [[0], [1]] if part.is_additive else [[0, 1]]:
            kernel = MaternKernel(part.smoothness)
            kernel.lengthscale = part.length * len(columns) ** 0.5
            share = weight / 2.0 if part.is_additive else weight
            total = total + share * kernel(TRAIN[:, columns], z[:, columns]).to_dense().detach()
    torch.testing.assert_close(next(kernels(TRAIN, z, [shape])), total, rtol=1e-9, atol=1e-9)
    diagonal = next(kernels(z, z, [shape])).diagonal()
    torch.testing.assert_close(variances(z, shape), diagonal, rtol=1e-6, atol=1e-6)


def test_evidences_are_integrals_over_the_scale():
    bank = KernelBank(InputScale(TRAIN, "values"), TRAIN, SHAPES[:4])
    projected = bank.spectrum(3).vectors.mT @ TARGETS
    found = log_evidences(bank.precisions(3), projected)
    for ratio in (4, 15):
        covariance = next(kernels(bank.x, bank.x, SHAPES[3:4])) + RATIOS[ratio] * torch.eye(ROWS)
        most = float(scales(bank.precisions(3)[ratio], projected)[1])

        def density(log_scale, covariance=covariance, constant=float(found[ratio, 1])):
            scale = math.exp(log_scale)
            normal = torch.distributions.MultivariateNormal(torch.zeros(ROWS), scale * covariance)
            prior = scipy.stats.invgamma(1.0, scale=0.5).pdf(scale) * scale
            return math.exp(float(normal.log_prob(TARGETS[:, 1])) - constant) * prior

        value = scipy.integrate.quad(density, math.log(most) - 4.0, math.log(most) + 4.0)[0]
        assert value == pytest.approx(1.0, rel=1e-6)


def test_the_prior_of_kernels_is_learned_from_all_targets():
    logs = torch.log(torch.tensor([[0.9, 0.9, 0.5], [0.1, 0.1, 0.5]]))
    weights, prior = posterior_weights(logs)
    assert prior[0] > 0.8 and weights[0, 2] > 0.8
    assert posterior_weights(logs[:, 2:])[0][0, 0] == pytest.approx(0.5)
    assert posterior_weights(logs - 1e4)[0][0, 2] == pytest.approx(float(weights[0, 2]))


def brute_force(member, out, at):
    """Mean and covariance of each target by kept rows, at new inputs or rows left out, as mixtures of dense kernels."""
    kept = torch.tensor([k for k in range(ROWS) if k not in out])
    x, new = member.rows.x, at
    base = torch.zeros(len(new), OUTPUTS) if member.baseline is None else member.baseline(TEST)
    base = member.base[out] if len(out) else base
    axes = torch.eye(OUTPUTS) if member.rotation is None else member.rotation
    total_mean, total = torch.zeros(OUTPUTS, len(new)), torch.zeros(OUTPUTS, len(new), len(new))
    count = len(RATIOS)
    for component in range(member.y.shape[1]):
        first, second = torch.zeros(len(new)), torch.zeros(len(new), len(new))
        for q in member.weights[:, component].nonzero().flatten().tolist():
            shape, ratio = member.rows.shapes[q // count], float(RATIOS[q % count])
            (every,) = kernels(x, x, [shape])
            full = every + ratio * torch.eye(ROWS)
            quadratic = float(member.y[:, component] @ torch.linalg.solve(full, member.y[:, component]))
            scale = (quadratic + 1.0) / (ROWS + 2.0)
            cross, own = next(kernels(x, new, [shape]))[kept], next(kernels(new, new, [shape]))
            solved = torch.linalg.solve(full[kept][:, kept], cross)
            mean = solved.mT @ member.y[kept, component]
            covariance = scale * (own - cross.mT @ solved + ratio * torch.eye(len(new)))
            weight = float(member.weights[q, component])
            first, second = first + weight * mean, second + weight * (covariance + torch.outer(mean, mean))
        second = second - torch.outer(first, first)
        for target in range(OUTPUTS):
            total_mean[target] += axes[target, component] * first
            total[target] += axes[target, component] ** 2 * second
    means = base + member.unit * total_mean.mT
    return means, member.unit.square().reshape(-1, 1, 1) * total


def test_predictions_are_those_of_dense_algebra(model):
    kinds = {(m.rotation is None, m.baseline is None) for m in model.members if isinstance(m, BankMember)}
    assert len(kinds) == 4
    for member in model.members:
        if not isinstance(member, BankMember):
            continue
        found, joint = member.predict(TEST), member.joint(TEST)
        means, covariances = brute_force(member, [], member.rows.scale(TEST))
        torch.testing.assert_close(found.mean[0], means, rtol=1e-8, atol=1e-8)
        diagonals = covariances.diagonal(dim1=1, dim2=2).mT
        torch.testing.assert_close(found.variance[0], diagonals, rtol=1e-7, atol=1e-8)
        for target in range(OUTPUTS):
            ((mean, covariance),) = joint(target)
            torch.testing.assert_close(mean, means[:, target], rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(covariance, covariances[target], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("out", [[4], [0, 5], [1, 2, 3]])
def test_left_out_rows_are_predicted_by_the_others(model, out):
    groups = [torch.tensor([out])] if len(out) > 1 else []
    for member in model.members:
        if isinstance(member, BankMember):
            found = member.left_out(groups)
            means, covariances = brute_force(member, out, member.rows.x[out])
            torch.testing.assert_close(found.mean[0, out], means, rtol=1e-8, atol=1e-8)
            diagonals = covariances.diagonal(dim1=1, dim2=2).mT
            torch.testing.assert_close(found.variance[0, out], diagonals, rtol=1e-7, atol=1e-8)


def test_lengthscales_of_all_inputs_are_a_member(model):
    (table,) = [member for member in model.members if not isinstance(member, BankMember)]
    assert table.num_draws > 1 and table.predict(TEST).mean.shape == (table.num_draws, NEW, OUTPUTS)
    alone = copy.copy(table)
    alone.y, alone.modes, alone.vectors = table.y[:, 1:2], table.modes[1:2], table.vectors[1:2]
    torch.testing.assert_close(alone.predict(TEST).mean[..., 0], table.predict(TEST).mean[..., 1])


def test_draws_have_the_moments_of_the_mixture(model):
    count = 20_000
    draws = model.sample(TEST, count, torch.Generator().manual_seed(0))
    found, covariance = model.predictive(TEST), model.covariance(TEST)
    assert draws.shape == (count, NEW, OUTPUTS) and covariance.shape == (OUTPUTS, NEW, NEW)
    torch.testing.assert_close(covariance.diagonal(dim1=1, dim2=2).mT, found.variance, rtol=1e-9, atol=1e-12)
    assert ((draws.mean(0) - found.mean).abs() < 4.5 * (found.variance / count).sqrt()).all()
    for level in (0.1, 0.5, 0.9):
        share = (draws < found.icdf(level)).double().mean(0)
        assert ((share - level).abs() < 4.5 * (level * (1.0 - level) / count) ** 0.5).all()
    for target in range(OUTPUTS):
        std = found.stddev[:, target]
        wanted = covariance[target] / torch.outer(std, std)
        assert (draws[..., target].mT.corrcoef() - wanted).abs().max() < 0.1


def test_draws_of_targets_have_the_correlations_of_their_errors(model):
    """Errors of the three targets have correlations of 1 / 1.09."""
    draws = model.sample(TEST[:1], 4000, torch.Generator().manual_seed(1))[:, 0]
    level = model.leave_one_out(TRAIN, TARGETS).cdf(TARGETS)
    errors = torch.special.ndtri(level).mT.corrcoef()
    assert float(errors[0, 1]) > 0.6
    independence = correlation_root(torch.special.ndtri(level))[1]
    assert independence < 0.1
    assert (draws.mT.corrcoef() - errors).abs().max() < 0.08 + independence


def test_correlations_are_shrunk_where_rows_do_not_tell_them():
    generator = torch.Generator().manual_seed(2)
    independent, common = torch.randn(40, 60, generator=generator), torch.randn(40, 1, generator=generator)
    assert correlation_root(independent)[1] > 0.8
    root, shrinkage = correlation_root(common + 0.3 * independent)
    assert shrinkage < 0.1 and root.shape == (40, 60)
    torch.testing.assert_close(root.mT @ root, (common + 0.3 * independent).mT.corrcoef(), rtol=1e-9, atol=1e-9)


def test_drawn_functions_have_the_moments_of_the_function(model):
    found = model.function(TEST)
    generator, values = torch.Generator().manual_seed(6), []
    for _ in range(60):  # kernels are drawn too
        values += [functions(TEST)[:, 1:] for functions in model.draw_functions(64, generator)]
    drawn = torch.cat(values, dim=1)
    assert drawn.shape == (NEW, 60 * 64, OUTPUTS)
    assert ((drawn.mean(1) - found.mean).abs() / found.stddev).max() < 0.25
    assert (drawn.std(1) / found.stddev - 1.0).abs().max() < 0.35


def test_new_rows_count_as_if_they_had_been_there(model):
    before, members = model.predictive(TEST[:2]).variance, model.members
    model.update(TEST, TRUTH)
    assert len(model.y) == ROWS + NEW and bool((model.predictive(TEST[:2]).variance < before).any())
    for member, old in zip(model.members, members, strict=True):
        if isinstance(member, BankMember) and member.rotation is None and member.baseline is None:
            made = BankMember(KernelBank(old.rows.scale, X, old.rows.shapes), old.target, Y)
            made.unit = old.unit
            made._condition(made.rows, old.target.forward(Y), torch.zeros_like(Y))
            torch.testing.assert_close(member.predict(TEST), made.predict(TEST), rtol=1e-9, atol=1e-9)
    based = next(m for m in model.members if isinstance(m, BankMember) and m.baseline is not None)
    torch.testing.assert_close(based.base[ROWS:], based.baseline(TEST))
    before = {id(member.unit): member for member in members if isinstance(member, BankMember)}
    banks = [m for m in model.without(torch.arange(ROWS, ROWS + NEW)).members if isinstance(m, BankMember)]
    for member in banks:
        torch.testing.assert_close(member.predict(TEST), before[id(member.unit)].predict(TEST), rtol=1e-9, atol=1e-9)
    assert len(banks) > 1


@pytest.mark.parametrize("y", [TRUTH[:, :2], TRUTH[:, 0], TRUTH * math.inf, TRUTH[:3]])
def test_a_failed_update_leaves_the_model_as_it_was(model, y):
    before = model.predictive(TEST).mean
    with pytest.raises(ValueError, match="expected"):
        model.update(TEST, y)
    assert len(model.y) == ROWS
    torch.testing.assert_close(model.predictive(TEST).mean, before, rtol=0.0, atol=0.0)


def test_missing_values_are_drawn_given_the_others_of_their_row():
    """The noise of three targets is the same, so that two tell it of the third."""
    x, y = rows(150)
    generator = torch.Generator().manual_seed(7)
    missing = torch.rand(150, OUTPUTS, generator=generator) < 0.3
    draws = imputations(x, torch.where(missing, torch.nan, y), torch.arange(150))
    assert len(draws) == 4 and imputations(x, y, torch.arange(150)) == [y]
    for draw in draws:
        torch.testing.assert_close(draw[~missing], y[~missing], rtol=0.0, atol=0.0)
    mean, spread = torch.stack(draws).mean(0), torch.stack(draws).std(0)
    is_alone = missing & (missing.sum(1, keepdim=True) == 1)
    is_bare = missing & (missing.sum(1, keepdim=True) == 3)
    error = (mean - y)[is_alone].square().mean().sqrt()
    assert float(error) < 0.15  # and 0.21 is the noise
    assert 0.04 < float(spread[is_alone].mean()) < 0.14 < float(spread[is_bare].mean()) < 0.3


def test_a_target_that_another_determines_is_known_where_that_is():
    """Two thirds of it are missing, and no kernel tells it by the inputs as well."""
    generator = torch.Generator().manual_seed(10)
    x = torch.rand(90, 6, generator=generator)
    first = (3.0 * x[:, 0]).sin() + x[:, 1] * x[:, 2] + 0.3 * torch.randn(90, generator=generator)
    y = torch.stack([first, 2.0 - 3.0 * first + 0.1 * torch.randn(90, generator=generator)], dim=-1)
    missing = torch.stack([torch.zeros(90), torch.arange(90) % 3], dim=-1) > 0.0
    draws = imputations(x, torch.where(missing, torch.nan, y), torch.arange(90))
    error = (torch.stack(draws).mean(0) - y)[missing].square().mean().sqrt()
    alone = AveragedGP(x[~missing[:, 1]], y[~missing[:, 1], 1]).predictive(x[missing[:, 1]]).mean
    assert float(error) < 0.5 * float((alone - y[missing[:, 1], 1]).square().mean().sqrt())


def test_errors_of_missing_values_are_conditional_normals():
    generator = torch.Generator().manual_seed(8)
    common = torch.randn(4000, 1, generator=generator)
    errors = common + 0.5 * torch.randn(4000, 4, generator=generator)
    errors = (errors - errors.mean(0)) / errors.std(0)
    known = torch.rand(4000, 4, generator=generator) < 0.6
    known[:2000] = torch.tensor([True, True, False, False])
    drawn = missing_draws(torch.where(known, errors, torch.nan).nan_to_num(nan=9.0), known, generator)
    correlations = errors.mT.corrcoef()
    given, wanted = correlations[2:, :2], correlations[:2, :2]
    slopes = torch.linalg.solve(wanted, given.mT).mT
    residual = (drawn[:, 2:] - errors[:, :2] @ slopes.mT)[:2000]
    conditional = correlations[2:, 2:] - slopes @ given.mT
    assert (residual.mean(0).abs() < 4.0 * conditional.diagonal().sqrt() * 2000**-0.5).all()
    torch.testing.assert_close(residual.mT.cov(), conditional, rtol=0.1, atol=0.03)


def test_conditional_densities_are_those_of_dense_normals():
    generator = torch.Generator().manual_seed(11)
    errors = torch.randn(300, 1, generator=generator) + 0.7 * torch.randn(300, 4, generator=generator)
    errors = (errors - errors.mean(0)) / errors.std(0)
    known = torch.ones(300, 4) > 0.0
    loadings = _loadings(errors, known.double())
    total = loadings @ loadings.mT + torch.diag(1.0 - loadings.square().sum(1))
    others = [0, 1, 3]
    slopes = torch.linalg.solve(total[others][:, others], total[others, 2])
    std = (total[2, 2] - slopes @ total[others, 2]).sqrt()
    wanted = torch.distributions.Normal(errors[:, others] @ slopes, std).log_prob(errors[:, 2])
    torch.testing.assert_close(conditional_densities(errors, known)[:, 2], wanted, rtol=1e-8, atol=1e-8)


@pytest.fixture(scope="module")
def with_gaps():
    x, y = rows(110, seed=1)
    missing = torch.rand(80, OUTPUTS, generator=torch.Generator().manual_seed(9)) < 0.3
    known = torch.where(missing, torch.nan, y[:80])
    return AveragedGP(x[:80], known), known, x, y


def test_gaps_widen_predictions_and_keep_their_coverage(with_gaps):
    model, _, x, y = with_gaps
    found, complete = model.predictive(x[80:]), AveragedGP(x[:80], y[:80]).predictive(x[80:])
    level = found.cdf(y[80:])
    assert abs(float(((level > 0.025) & (level < 0.975)).double().mean()) - 0.95) < 4.0 * (0.95 * 0.05 / 90) ** 0.5
    assert float(found.stddev.mean()) > float(complete.stddev.mean())
    assert float((found.mean - complete.mean).square().mean().sqrt()) < 0.12
    count, draws = 4000, model.sample(x[80:83], 4000, torch.Generator().manual_seed(0))
    part, covariance = model.predictive(x[80:83]), model.covariance(x[80:83])
    assert ((draws.mean(0) - part.mean).abs() < 4.5 * (part.variance / count).sqrt()).all()
    torch.testing.assert_close(covariance.diagonal(dim1=1, dim2=2).mT, part.variance, rtol=1e-9, atol=1e-12)
    assert model.draw_functions(8)[-1](x[80:83]).shape[::2] == (3, OUTPUTS)


def test_missing_values_count_in_no_density(with_gaps):
    model, known, x, _ = with_gaps
    density = model.leave_one_out(x[:80], known).log_prob(known)
    assert bool((density.isnan() == known.isnan()).all())
    other = model.targets.clone()
    other[known.isnan()] += 5.0
    weights = stacked(model.members, other, ~known.isnan(), []).weights
    torch.testing.assert_close(weights, stacked(model.members, model.targets, ~known.isnan(), []).weights)


def test_processes_of_targets_with_gaps_have_their_own_rows():
    generator = torch.Generator().manual_seed(7)
    x, y = torch.randn(40, 2, generator=generator), torch.randn(40, 2, generator=generator).exp()
    y[torch.rand(40, generator=generator) < 0.3, 0] = torch.nan
    scale, target = InputScale(x, "values"), ColumnScale(y, is_transformed=True)
    member, groups = TableMember(TableRows(scale, x), target, y), [torch.tensor([[0, 1, 2], [5, 6, 7]])]
    member.learn()
    left_out, predicted, evidence = member.left_out(groups), member.predict(x[:5]), 0.0
    for number in range(2):
        own = torch.tensor([number])

        def alone(rows, own=own, number=number):
            found = TableMember(TableRows(scale, x[rows]), target.of(own), y[rows][:, own])
            found.modes, found.vectors = [member.modes[number]], [member.vectors[number]]
            return found

        known = ~y[:, number].isnan()
        evidence += alone(known).log_evidence()
        for wanted, found in zip(alone(known).predict(x[:5]), predicted, strict=True):
            torch.testing.assert_close(found[..., number], wanted[..., 0], rtol=1e-10, atol=1e-10)
        for row in range(40):
            others = known.clone()
            others[[*next((group for group in groups[0].tolist() if row in group), [row])]] = False
            for wanted, found in zip(alone(others).predict(x[row : row + 1]), left_out, strict=True):
                torch.testing.assert_close(found[:, row, number], wanted[:, 0, 0], rtol=1e-9, atol=1e-9)
    assert member.log_evidence() == pytest.approx(evidence)
    assert 0 < int(y[[0, 1, 2, 5, 6, 7], 0].isnan().sum()) < 6  # groups with and without the target


def test_new_rows_may_have_gaps(with_gaps):
    model, known, x, y = copy.deepcopy(with_gaps)
    y[95, 1] = torch.nan
    before = model.predictive(x[85:95]).variance
    model.update(x[85:100], y[85:100])
    assert bool((model.predictive(x[85:95]).variance < before).double().mean() > 0.7)
    assert len(model.targets) == 95 and bool(torch.isfinite(model.targets).all())
    torch.testing.assert_close(model.targets[80:90], y[85:95])
    assert torch.equal(model.targets[:80][~known.isnan()], known[~known.isnan()])
    few = model.thinned(6)
    assert sum(member.num_draws for member in few.members) <= 6 and len(few.without(torch.arange(15)).targets) == 80
    torch.testing.assert_close(few.predictive(x[85:95]).mean, model.predictive(x[85:95]).mean, rtol=0.2, atol=0.2)


def test_copies_predict_the_same(model):
    written = pickle.dumps(model)
    assert len(written) < 700_000  # weights of kernels, and no eigenvectors
    torch.testing.assert_close(pickle.loads(written).predictive(TEST).mean, model.predictive(TEST).mean)


def test_units_do_not_matter(model):
    unit, scale = torch.tensor([1e5, 1e-8, 3.0]), 1e-12
    other = AveragedGP(TRAIN * scale, TARGETS * unit + 2.0, Nearest).predictive(TEST * scale)
    wanted = model.predictive(TEST)
    torch.testing.assert_close((other.mean - 2.0) / unit, wanted.mean, rtol=0.02, atol=0.02)
    torch.testing.assert_close(other.stddev / unit, wanted.stddev, rtol=0.05, atol=0.02)


def test_more_targets_than_rows_and_smooth_ones():
    """Forty rows of a curve at 60 points: principal components tell the noise of a point by those of others."""
    generator, points = torch.Generator().manual_seed(3), torch.linspace(0.0, 1.0, 60)
    x = torch.rand(140, 1, generator=generator)
    curves = torch.exp(-2.0 * x * points) * torch.sin(5.0 * points + 3.0 * x)
    y = curves + 0.02 * torch.randn(curves.shape, generator=generator)
    model = AveragedGP(x[:40], y[:40])
    found = model.predictive(x[40:])
    assert float((found.mean - curves[40:]).square().mean().sqrt()) < 0.01
    level = found.cdf(y[40:])
    assert 0.92 < float(((level > 0.025) & (level < 0.975)).double().mean()) < 0.99
    alone = AveragedGP(x[:40], y[:40, 30]).function(x[40:]).mean
    assert float((alone - curves[40:, 30]).std()) > float((found.mean - curves[40:])[:, 30].std())


def test_stacking_weights_of_several_targets_share_a_prior():
    generator = torch.Generator().manual_seed(4)
    logs = torch.randn(3, 10, 4, generator=generator)
    logs[0, :, :3] += 3.0
    alone, together = stacking_weights(logs[..., 3:])[:, 0], stacking_weights(logs)[:, 3]
    assert together[0] > alone[0]
    best = logs[..., 0].exp()

    def value(weights):
        return float((weights @ best).log().sum()) + float(weights.log().sum())

    single = stacking_weights(logs[..., :1])[:, 0]
    for other in torch.softmax(single.log() + 0.1 * torch.randn(20, 3, generator=generator), -1):
        assert value(single) >= value(other) - 1e-6


def test_powers_are_the_most_probable_ones():
    generator = torch.Generator().manual_seed(5)
    y = torch.randn(400, 2, generator=generator).mul(torch.tensor([1.0, 0.2])).exp()
    scale = ColumnScale(y, is_transformed=True)
    standard = ((y - y.mean(0)) / y.std(0, correction=0)).numpy()
    for column in range(2):
        wanted = scipy.stats.yeojohnson_normmax(standard[:, column], brack=(-2, 2))
        assert float(scale.power[column]) == pytest.approx(min(max(wanted, 0.0), 2.0), abs=1e-3)
    z = scale.forward(y)
    torch.testing.assert_close(z.mean(0), torch.zeros(2), rtol=0.0, atol=1e-10)
    torch.testing.assert_close(scale.inverse(z), y, rtol=1e-9, atol=1e-9)
    step = 1e-6
    slope = (scale.forward(y + step) - scale.forward(y - step)) / (2.0 * step)
    torch.testing.assert_close(scale.log_slope(y), slope.log(), rtol=1e-5, atol=1e-5)


def test_smooth_functions_of_several_targets_are_learned_as_well_as_those_of_one():
    generator = torch.Generator().manual_seed(0)
    x = 4.0 * torch.rand(1060, 3, generator=generator, dtype=torch.float64) - 2.0
    functions = [x[:, 0].sin() + x[:, 1] * x[:, 2], (-x[:, 0].square()).exp() + 0.3 * x[:, 1]]
    y = torch.stack(functions, -1) + 0.01 * torch.randn(1060, 2, generator=generator, dtype=torch.float64)
    together = AveragedGP(x[:60], y[:60]).predictive(x[60:]).log_prob(y[60:]).mean(0)
    for number in range(2):
        apart = AveragedGP(x[:60], y[:60, number]).predictive(x[60:]).log_prob(y[60:, number]).mean()
        assert together[number] > apart - 0.1
