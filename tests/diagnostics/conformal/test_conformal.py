"""Jackknife+ equals refits; conformal intervals and sets cover what they say, also where the model is wrong."""

import math

import pytest
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean
from problems import ExactModel, model_for, regression_rows, rows_for

import rfgp
from rfgp.diagnostics.conformal import ClassConditionalSets, Interval, jackknife_plus, split_conformal
from rfgp.models import WeightSpaceGP, folds

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
]


def gaussian_process(width=16, lengthscale=1.0, noise=0.1, input_dim=3):
    exact = ScaleKernel(RBFKernel())
    exact.base_kernel.lengthscale = lengthscale
    likelihood = GaussianLikelihood()
    likelihood.noise = noise
    mean = ConstantMean()
    mean.constant = 0.3
    return WeightSpaceGP(rfgp.approximate(exact, width, input_dim=input_dim, seed=0), likelihood, mean)


def plus_by_refits(model, x, y, new_x, level, numbers, noise=None):
    """The intervals of the definition, (n, T)."""
    lower, upper = [], []
    for number in numbers.unique():
        is_out = numbers == number
        left = model.condition(x[~is_out], y[~is_out], None if noise is None else noise[~is_out])
        score = (y[is_out] - left.posterior(x[is_out]).mean.detach()).abs()
        mean = left.posterior(new_x).mean.detach()
        lower += [mean - own for own in score]
        upper += [mean + own for own in score]
    lower, upper = (torch.stack(part) for part in (lower, upper))
    ends = []
    for side, sign in ((lower, -1.0), (upper, 1.0)):
        values = (sign * side).flatten(1)
        columns = []
        for column in values.mT:
            known = column[~column.isnan()].sort().values
            rank = math.ceil((len(known) + 1) * level - 1e-9)
            columns.append(known[rank - 1] if rank <= len(known) else torch.tensor(math.inf))
        ends.append(sign * torch.stack(columns).reshape(side.shape[1:]))
    return Interval(*ends)


def close(found, expected):
    for actual, other in zip(found, expected, strict=True):
        torch.testing.assert_close(actual, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("groups", [None, 5])
def test_jackknife_plus_is_that_of_refits(groups):
    x, y = regression_rows(30)
    new_x, _ = regression_rows(4, seed=9)
    model = gaussian_process()
    found = jackknife_plus(model.condition(x, y), x, y, new_x, 0.8, groups=groups, seed=2)
    numbers = torch.arange(30) if groups is None else folds(30, groups, 2)
    close(found, plus_by_refits(model, x, y, new_x, 0.8, numbers))


def test_jackknife_plus_of_several_outputs_with_missing_targets_and_known_noise():
    x, y = regression_rows(30)
    new_x, _ = regression_rows(3, seed=9)
    both = torch.stack([y, x[:, 0] - y], dim=-1)
    both[::4, 1] = math.nan
    kernel = rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=2, rank=1), 10, input_dim=3, seed=0)
    model = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2))
    numbers = torch.arange(30)
    found = jackknife_plus(model.condition(x, both), x, both, new_x, 0.9)
    close(found, plus_by_refits(model, x, both, new_x, 0.9, numbers))
    noise = 0.1 + x[:, 1] ** 2
    kernel = rfgp.approximate(RBFKernel(), 10, method="landmarks", train_inputs=x, seed=0)
    model = WeightSpaceGP(kernel, FixedNoiseGaussianLikelihood(torch.ones(1)))
    found = jackknife_plus(model.condition(x, y, noise), x, y, new_x, 0.9, noise=noise)
    close(found, plus_by_refits(model, x, y, new_x, 0.9, numbers, noise))


def test_too_few_rows_for_a_level_have_infinite_intervals():
    x, y = regression_rows(30)
    model = gaussian_process().condition(x, y)
    lower, upper = jackknife_plus(model, x, y, x[:2], 0.99)
    assert bool((lower == -math.inf).all()) and bool((upper == math.inf).all())
    assert bool((split_conformal(model, x[:8], y[:8], 0.9).interval(x[:2]).upper == math.inf).all())
    assert bool(split_conformal(model, x[:9], y[:9], 0.9).interval(x[:2]).upper.isfinite().all())


def test_split_quantiles_are_those_of_the_scores():
    x, y = regression_rows(40)
    model = gaussian_process().condition(x[:20], y[:20])
    observed = model.likelihood(model(x))
    errors, deviation = (y - observed.mean).abs().detach(), observed.stddev.detach()
    for normalize in (True, False):
        scores = (errors / deviation if normalize else errors)[20:].sort().values
        calibrated = split_conformal(model, x[20:], y[20:], 0.7, normalize=normalize)
        lower, upper = calibrated.interval(x[:5])
        half = scores[14] * (deviation[:5] if normalize else 1.0)  # ceil(21 * 0.7) is 15
        torch.testing.assert_close(upper, observed.mean.detach()[:5] + half)
        torch.testing.assert_close(lower, observed.mean.detach()[:5] - half)


def test_split_intervals_cover_in_every_group():
    generator = torch.Generator().manual_seed(0)
    x, groups = torch.rand(4000, 3, generator=generator), torch.randint(0, 3, (4000,), generator=generator)
    noise = torch.tensor([0.1, 0.3, 1.0])[groups] * torch.randn(4000, generator=generator)
    y = x.sum(-1) + noise
    model = gaussian_process().condition(x[:100], y[:100])
    half, new = slice(100, 2000), slice(2000, None)
    calibrated = split_conformal(model, x[half], y[half], 0.9, groups=2 * groups[half] - 5)
    lower, upper = calibrated.interval(x[new], groups=2 * groups[new] - 5)
    is_inside = ((lower <= y[new]) & (y[new] <= upper)).double()
    for group in range(3):
        own = is_inside[groups[new] == group]
        error = math.sqrt(0.09 / len(own) + 0.09 / int((groups[half] == group).sum()))
        assert abs(float(own.mean()) - 0.9) < 3.0 * error
    assert bool(calibrated.interval(x[:1], groups=torch.tensor([7])).upper.isinf().all())
    both = torch.stack([y, 10.0 * y], dim=-1)
    kernel = rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=2, rank=1), 10, input_dim=3, seed=0)
    several = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2)).condition(x[:100], both[:100])
    found = split_conformal(several, x[half], both[half], groups=groups[half])
    assert found.quantiles.shape == (3, 2) and found.interval(x[:4], groups=groups[:4]).lower.shape == (4, 2)


def test_split_intervals_of_several_outputs_known_noise_and_exact_models():
    x, y = regression_rows(60)
    both = torch.stack([y, 100.0 * torch.randn(60, generator=torch.Generator().manual_seed(0))], dim=-1)
    both[50, 0] = math.nan
    kernel = rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=2, rank=1), 10, input_dim=3, seed=0)
    model = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(2)).condition(x[:30], both[:30])
    lower, upper = split_conformal(model, x[30:], both[30:], 0.8).interval(x)
    width = (upper - lower).mean(0)
    assert lower.shape == (60, 2) and float(width[1]) > 20 * float(width[0])
    noise = 0.1 + x[:, 1] ** 2
    fixed = model_for("fixed").condition(x[:30], y[:30], noise[:30])
    calibrated = split_conformal(fixed, x[30:], y[30:], noise=noise[30:])
    assert calibrated.interval(x[:2], noise=noise[:2]).lower.shape == (2,)
    exact = ExactModel(x[:30], y[:30], GaussianLikelihood(), ScaleKernel(RBFKernel()))
    with pytest.raises(ValueError, match="evaluation mode"):
        split_conformal(exact, x[30:], y[30:])
    assert split_conformal(exact.eval(), x[30:], y[30:]).interval(x[:2]).upper.shape == (2,)


TRIALS, TRAINED, NEW = 40, 50, 25


def wrong_rows(kind, count, seed):
    """Rows that the model does not expect: of heavy tails, of another lengthscale, of noise that depends on x."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 1, generator=generator)
    noise = torch.randn(count, generator=generator)
    if kind == "heavy tails":
        noise = noise / torch.randn(count, generator=generator).abs().clamp_min(0.05)
    if kind == "heteroscedastic":
        noise = noise * 5.0 * x.squeeze(-1)
    return x, torch.sin(6.0 * x.squeeze(-1)) + 0.3 * noise


@pytest.mark.parametrize("kind", ["heavy tails", "wrong lengthscale", "heteroscedastic"])
def test_coverage_where_the_model_is_wrong(kind):
    shares = {"split": [], "jackknife+": [], "cv+": []}
    model = gaussian_process(12, 0.02 if kind == "wrong lengthscale" else 0.3, 0.01, input_dim=1)
    for seed in range(TRIALS):
        x, y = wrong_rows(kind, 2 * TRAINED + NEW, seed)
        new, own = slice(2 * TRAINED, None), slice(0, TRAINED)
        model.condition(x[own], y[own])
        calibrated = split_conformal(model, x[TRAINED : 2 * TRAINED], y[TRAINED : 2 * TRAINED], 0.8)
        intervals = {
            "split": calibrated.interval(x[new]),
            "jackknife+": jackknife_plus(model, x[own], y[own], x[new], 0.8),
            "cv+": jackknife_plus(model, x[own], y[own], x[new], 0.8, groups=10),
        }
        for name, (lower, upper) in intervals.items():
            shares[name].append(((lower <= y[new]) & (y[new] <= upper)).double().mean())
    nominal = math.ceil((TRAINED + 1) * 0.8) / (TRAINED + 1)
    for name, found in shares.items():
        values = torch.stack(found)
        error = float(values.std()) / math.sqrt(TRIALS)
        least = 0.6 if name != "split" else nominal
        assert float(values.mean()) > least - 3.0 * error, name
        if name == "split":
            assert float(values.mean()) < nominal + 3.0 * error


def test_every_class_is_in_its_own_sets():
    generator = torch.Generator().manual_seed(0)
    labels = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), 6000, replacement=True, generator=generator)
    logits = torch.randn(6000, 3, generator=generator) + 1.5 * torch.nn.functional.one_hot(labels, 3)
    logits[:, 0] += 2.0  # a classifier that prefers the first class
    probabilities = logits.softmax(-1)
    sets = ClassConditionalSets(probabilities[:3000], labels[:3000], 0.9).sets(probabilities[3000:])
    for c in range(3):
        own = sets[labels[3000:] == c, c].double()
        # calibration and test rows both vary
        error = math.sqrt(0.09 / len(own) + 0.09 / int((labels[:3000] == c).sum()))
        assert abs(float(own.mean()) - 0.9) < 3.0 * error
    few = ClassConditionalSets(probabilities[:3], torch.tensor([0, 0, 1]), 0.5)
    assert few.thresholds[2] == math.inf and bool(few.sets(probabilities)[:, 2].all())


def test_bad_input_is_refused():
    x, y = regression_rows(30)
    model = gaussian_process().condition(x, y)
    for level in (0.0, 1.0, 1.5):
        with pytest.raises(ValueError, match="level"):
            split_conformal(model, x, y, level)
        with pytest.raises(ValueError, match="level"):
            jackknife_plus(model, x, y, x, level)
    with pytest.raises(ValueError, match="shape"):
        split_conformal(model, x, y[1:])
    with pytest.raises(ValueError, match="infinite"):
        split_conformal(model, x, y / 0.0)
    numbers = torch.arange(30) % 3
    for bad in (numbers[1:], numbers.double()):
        with pytest.raises(ValueError, match="groups"):
            split_conformal(model, x, y, groups=bad)
    with pytest.raises(ValueError, match="expected groups as at calibration"):
        split_conformal(model, x, y, groups=numbers).interval(x)
    with pytest.raises(ValueError, match="expected no groups"):
        split_conformal(model, x, y).interval(x, groups=numbers)
    with pytest.raises(ValueError, match="for a fixed-noise likelihood alone"):
        split_conformal(model, x, y, noise=torch.ones(30))
    with pytest.raises(ValueError, match="rows of the fit"):
        jackknife_plus(model, x, y.flip(0), x)
    with pytest.raises(ValueError, match="columns"):
        jackknife_plus(model, x, y, x[:, :2])
    with pytest.raises(ValueError, match="WeightSpaceGP"):
        jackknife_plus("model", x, y, x)
    labeled = model_for("dirichlet").condition(x, rows_for("dirichlet", 30)[1])
    with pytest.raises(ValueError, match=r"got one of class labels; take .*ClassConditionalSets"):
        jackknife_plus(labeled, x, rows_for("dirichlet", 30)[1], x)
    with pytest.raises(ValueError, match=r"expected a torch.Tensor for x"):
        jackknife_plus(model, x.tolist(), y, x)
    with pytest.raises(ValueError, match="call condition"):
        jackknife_plus(gaussian_process(), x, y, x)
    kernel = rfgp.approximate(RBFKernel(), 8, input_dim=3)
    several = WeightSpaceGP(kernel, GaussianLikelihood(), num_draws=2).condition(x, y)
    with pytest.raises(ValueError, match=r"got one with num_draws=2; use rfgp.diagnostics.conformal.split_conformal"):
        jackknife_plus(several, x, y, x)
    kernel = rfgp.approximate(RBFKernel(), 8, method="landmarks", train_inputs=x)
    blocks = WeightSpaceGP(kernel, GaussianLikelihood(), block_size=10).condition(x, y)
    with pytest.raises(ValueError, match=r"got one with block_size=10; use rfgp.diagnostics.conformal.split_conformal"):
        jackknife_plus(blocks, x, y, x)
    waves = rfgp.approximate(RBFKernel(), 8, method="fourier:complex", input_dim=3)
    with pytest.raises(ValueError, match="got one with complex targets; make one for the real"):
        jackknife_plus(
            WeightSpaceGP(waves, rfgp.likelihoods.ComplexGaussianLikelihood()).condition(x, y + 0j), x, y + 0j, x
        )
    with pytest.raises(ValueError, match="between 0 and 1"):
        ClassConditionalSets(torch.full((3, 2), 1.5), torch.tensor([0, 1, 0]))
    with pytest.raises(ValueError, match="labels"):
        ClassConditionalSets(torch.full((3, 2), 0.5), torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="2 classes"):
        ClassConditionalSets(torch.full((3, 2), 0.5), torch.tensor([0, 1, 0])).sets(torch.full((3, 3), 0.5))
