"""Streams equal refits: windows with bounded drift, forgetting, and banks of lengthscales weighted by evidence."""

import copy
import math

import gpytorch
import pytest
import torch
from output_problems import output_kernel, output_likelihood, output_mean, output_rows
from problems import model_for, rows_for

import rfgp
from rfgp.models import WeightSpaceGP
from rfgp.models.spectral_evidence import learn_from_statistics
from rfgp.models.streams import Forgetting, LengthscaleBank, SlidingWindow

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:the residuals of complex targets", "ignore:.*exceed the"),
]

ROWS, SIZE, TOLERANCE = 120, 31, 1e-9
SCALAR = [("gaussian", "ctr"), ("fixed", "complex"), ("dirichlet", "real"), ("complex", "complex")]


def part(arguments, rows):
    return tuple(None if a is None else a[rows] for a in arguments)


def gaussian(lengthscale=0.3, width=40, **options):
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    exact.base_kernel.lengthscale = lengthscale
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.01
    mean = gpytorch.means.ConstantMean()
    return WeightSpaceGP(rfgp.approximate(exact, width, input_dim=1, seed=0), likelihood, mean, **options)


def wave(num_rows=ROWS, frequency=8.0):
    x = torch.rand(num_rows, 1)
    return x, torch.sin(frequency * x.squeeze(-1)) + 0.1 * torch.randn(num_rows)


def outputs():
    name, noise = "multitask", "full"
    model = WeightSpaceGP(output_kernel(name), output_likelihood(name, noise), output_mean(name))
    return model, (*output_rows(name, ROWS, "random"), None)


def blocks():
    x, y = wave()
    exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5))
    kernel = rfgp.approximate(exact, 8, method="landmarks", train_inputs=x, seed=0)
    return WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood(), block_size=6), (x, y, None)


def class_blocks():
    x, y = wave()
    likelihood = rfgp.likelihoods.DirichletClassificationLikelihood(num_classes=3)
    kernel = rfgp.approximate(gpytorch.kernels.MaternKernel(nu=1.5), 8, method="landmarks", train_inputs=x, seed=0)
    return WeightSpaceGP(kernel, likelihood, block_size=6), (x, y.round().long() + 1, None)


def output_blocks():
    x, y = wave()
    exact = gpytorch.kernels.MultitaskKernel(gpytorch.kernels.MaternKernel(nu=1.5), num_tasks=2, rank=1)
    kernel = rfgp.approximate(exact, 8, method="landmarks", train_inputs=x, seed=0)
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(2)
    return WeightSpaceGP(kernel, likelihood, block_size=6), (x, torch.stack([y, y * y], -1), None)


def draws():
    return gaussian(num_draws=2), (*wave(), None)


def keeps():
    return gaussian(keep_data=True), (*wave(), None)


STREAMS = {
    f"{kind}, {form}": (lambda k=kind, f=form: (model_for(k, f, keep_data=False), rows_for(k, ROWS)))
    for kind, form in SCALAR
}


def many_classes():
    x = torch.rand(ROWS, 2)
    kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 24, input_dim=2, seed=0)
    likelihood = rfgp.likelihoods.DirichletClassificationLikelihood(num_classes=40)
    return WeightSpaceGP(kernel, likelihood), (x, torch.arange(ROWS) % 37, None)


STREAMS |= {"blocks": blocks, "blocks of classes": class_blocks, "blocks of outputs": output_blocks}
STREAMS |= {"outputs": outputs, "draws": draws, "keeps data": keeps, "many classes": many_classes}


@pytest.mark.parametrize("batch", [7, 1, 10, 20])
@pytest.mark.parametrize("name", STREAMS)
@torch.no_grad()
def test_a_window_equals_a_fit_to_its_rows(name, batch):
    model, rows = STREAMS[name]()
    if batch == 1 and name == "outputs":
        rows = (rows[0], rows[1].nan_to_num(0.0), None)
    window = SlidingWindow(model, SIZE)
    for start in range(0, ROWS, batch):
        assert window.update(*part(rows, slice(start, start + batch))) is window
        assert len(window) == min(start + batch, ROWS, SIZE)
        if start in (5 * batch, 9 * batch):
            assert model.refit_error(*window.rows).largest <= TOLERANCE
    last = part(rows, slice(ROWS - SIZE, ROWS))
    for known, wanted in zip(window.rows, last, strict=True):
        assert wanted is None or torch.equal(known.nan_to_num(0.0), wanted.nan_to_num(0.0))
    assert model.refit_error(*last).largest <= TOLERANCE
    assert window.drift.exchanges >= 2 and window.drift.largest <= 1e-12
    if name == "keeps data":
        assert torch.equal(torch.cat([x for x, _, _ in model.training_data]), last[0])


@pytest.mark.parametrize("products", [torch.float64, torch.float32])
@torch.no_grad()
@pytest.mark.long("thousands of steps")
def test_the_drift_is_below_its_bound_and_ends_with_an_exchange(products):
    model = gaussian(product_dtype=products)
    x, y = wave(4000)
    window = SlidingWindow(model, 100)
    for start in range(0, 4000, 10):
        window.update(x[start : start + 10], y[start : start + 10])
        assert 0.0 <= window.drift.last <= window.drift.bound
    assert window.drift.exchanges == 39
    assert products == torch.float32 or window.drift.last > 0.0  # sums of float32 products can be exact
    assert window.drift.last <= window.drift.largest <= 2000 * torch.finfo(products).eps
    limit = TOLERANCE if products == torch.float64 else 1e-2
    assert model.refit_error(x[-100:], y[-100:]).largest <= limit


@torch.no_grad()
def test_exchanges_take_errors_away():
    model = gaussian()
    x, y = wave(300)
    window = SlidingWindow(model, 100).update(x[:100], y[:100])
    model.conditioned.sums.draws[0].gram.add_(1e-3 * torch.eye(40))
    for start in range(100, 190, 10):
        window.update(x[start : start + 10], y[start : start + 10])
    assert model.refit_error(*window.rows).statistics > 1e-5
    window.update(x[190:200], y[190:200])
    assert model.refit_error(*window.rows).largest <= TOLERANCE
    assert window.drift.last == pytest.approx(1e-3 * math.sqrt(40.0) / 100.0, rel=0.5)


@pytest.mark.parametrize("name", ["gaussian, ctr", "fixed, complex", "blocks"])
@torch.no_grad()
def test_bad_rows_leave_a_window_as_it_was(name):
    model, (x, y, noise) = STREAMS[name]()
    window = SlidingWindow(model, SIZE)
    for start in range(0, 60, 10):
        window.update(*part((x, y, noise), slice(start, start + 10)))
    known, before = window.rows, model.posterior(x[:5]).mean
    for bad in (y[:10].where(torch.arange(10) != 3, math.nan), y[:9]):
        with pytest.raises(ValueError, match="expected"):
            window.update(x[:10], bad, None if noise is None else noise[:10])
    assert all(b is None or torch.equal(a, b) for a, b in zip(window.rows, known, strict=True))
    assert torch.equal(model.posterior(x[:5]).mean, before)
    window.update(*part((x, y, noise), slice(60, 70)))
    assert model.refit_error(*part((x, y, noise), slice(70 - SIZE, 70))).largest <= TOLERANCE


@torch.no_grad()
def test_a_window_goes_on_with_new_parameters_after_a_refit():
    model = gaussian()
    x, y = wave()
    window = SlidingWindow(model, 50).update(x[:50], y[:50])
    model.covar_module.exact_kernel.base_kernel.lengthscale = 0.5
    with pytest.raises(ValueError, match="lengthscale"):
        window.update(x[50:60], y[50:60])
    window.refit().update(x[50:60], y[50:60])
    assert model.refit_error(x[10:60], y[10:60]).largest <= TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("rank", [0, 1])
@torch.no_grad()
def test_rows_without_any_target_leave_a_window_too(rank):
    exact = gpytorch.kernels.MultitaskKernel(gpytorch.kernels.RBFKernel(), num_tasks=2, rank=1)
    kernel = rfgp.approximate(exact, 16, input_dim=1, seed=0)
    window = SlidingWindow(WeightSpaceGP(kernel, gpytorch.likelihoods.MultitaskGaussianLikelihood(2, rank=rank)), 6)
    x, y = wave(40)
    targets = torch.stack([y, 2.0 * y], dim=-1)
    targets[3], targets[8], targets[13] = torch.nan, torch.nan, torch.nan
    window.update(x[:10], targets[:10])
    window.update(x[10:15], targets[10:15])
    for row in range(15, 40):
        window.update(x[row : row + 1], targets[row : row + 1])
        assert window.model.refit_error(*window.rows[:2]).largest <= TOLERANCE
    assert window.drift.largest <= TOLERANCE


@pytest.mark.parametrize("new", [(30, 33), (30, 7), ("list", 30)])
def test_rows_of_other_lengths_are_refused_before_they_are_cut(new):
    x, y = wave()
    inputs = x[: new[0]] if isinstance(new[0], int) else x[:30].tolist()
    with pytest.raises(ValueError, match="expected"):
        SlidingWindow(gaussian(), 5).update(inputs, y[: new[1]])


def test_batches_longer_than_the_window_and_changes_of_the_tensors_do_no_harm():
    model = gaussian()
    x, y = wave()
    window = SlidingWindow(model, 20).update(x[:50], y[:50])
    assert len(window) == 20
    new = x[50:60].clone()
    window.update(new, y[50:60])
    new.zero_()
    for start in range(60, 100, 10):
        window.update(x[start : start + 10], y[start : start + 10])
    assert model.refit_error(x[80:100], y[80:100]).largest <= TOLERANCE
    with pytest.raises(ValueError, match="positive"):
        SlidingWindow(model, 0)
    with pytest.raises(ValueError, match="batch"):
        SlidingWindow(gaussian(), 10).refit()


@pytest.mark.parametrize("name", STREAMS)
@torch.no_grad()
def test_forgetting_equals_weighted_sums(name):
    model, rows = STREAMS[name]()
    other, factor = copy.deepcopy(model), 0.9
    stream = Forgetting(model, factor)
    for start in range(0, 40, 10):
        stream.update(*part(rows, slice(start, start + 10)))
    other.condition(*part(rows, slice(0, 10)))
    for start in range(10, 40, 10):
        other.forget(factor**10).update(*part(rows, slice(start, start + 10)))
    points = rows[0][:7]
    for name in ("mean", "variance"):
        found, wanted = (getattr(m.posterior(points), name) for m in (stream.model, other))
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="expected"):
        stream.update(rows[0][:3], rows[1][:2])
    assert torch.equal(model.posterior(points).mean, stream.model.posterior(points).mean)


def test_factors_above_one_are_refused():
    for factor in (0.0, 1.5, math.nan):
        with pytest.raises(ValueError, match="factor"):
            Forgetting(gaussian(), factor)


@torch.no_grad()
def test_a_bank_is_the_mixture_of_its_members():
    x, y = wave()
    bank = LengthscaleBank(SlidingWindow(gaussian(), 60), factors=(0.5, 1.0, 2.0))
    for start in range(0, ROWS, 10):
        bank.update(x[start : start + 10], y[start : start + 10])
    singles = []
    for factor in bank.factors:
        single = gaussian(0.3 * factor).condition(x[-60:], y[-60:])
        singles.append(single)
    evidences = torch.stack([single.log_marginal_likelihood() for single in singles])
    torch.testing.assert_close(bank.log_evidences, evidences, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(bank.weights, evidences.softmax(0), rtol=1e-7, atol=1e-12)
    assert float(bank.log_marginal_likelihood()) == pytest.approx(float(evidences.exp().mean().log()), rel=1e-9)
    found, parts, weights = bank.posterior(x[:9]), [s.posterior(x[:9]) for s in singles], evidences.softmax(0)
    mean = sum(w * p.mean for w, p in zip(weights, parts, strict=True))
    second = sum(
        w * (p.covariance_matrix + torch.outer(p.mean - mean, p.mean - mean))
        for w, p in zip(weights, parts, strict=True)
    )
    torch.testing.assert_close(found.mean, mean, rtol=0.0, atol=1e-8)
    torch.testing.assert_close(found.covariance_matrix, second, rtol=0.0, atol=1e-8)
    assert bool((bank.predictive(x[:9]).variance > found.variance).all())
    assert bank.best is bank.models[int(evidences.argmax())]


@torch.no_grad()
def test_weights_follow_the_data():
    x, y = wave(400, frequency=2.0)
    z, t = wave(400, frequency=25.0)
    bank = LengthscaleBank(Forgetting(gaussian(0.4, width=120), 0.98), factors=(0.25, 1.0, 2.0))
    for data in ((x, y), (z, t)):
        for start in range(0, 400, 20):
            bank.update(*part(data, slice(start, start + 20)))
        best = int(bank.weights.argmax())
        assert best == 0 if data[0] is z else best > 0


@torch.no_grad()
def test_a_bank_in_a_window_moves_beyond_its_edges():
    x, y = wave(600, frequency=40.0)
    bank = LengthscaleBank(SlidingWindow(gaussian(1.0, width=200), 100), factors=(0.5, 1.0), learn_every=100)
    for start in range(0, 600, 20):
        bank.update(x[start : start + 20], y[start : start + 20])
    assert bank.factors[1] / bank.factors[0] == 2.0 and bank.factors[1] <= 0.25
    for model, factor in zip(bank.models, bank.factors, strict=True):
        assert float(model.covar_module.exact_kernel.base_kernel.lengthscale) == pytest.approx(factor, rel=1e-9)
        assert model.refit_error(x[-100:], y[-100:]).largest <= TOLERANCE


def test_noise_scale_and_mean_are_learned_from_statistics_alone():
    x, y = wave(300)
    model = gaussian().condition(x, y + 3.0)
    model.forget(0.9)
    before = float(model.log_marginal_likelihood())
    assert learn_from_statistics(model)
    value = model.log_marginal_likelihood()
    free = [model.likelihood.raw_noise, model.covar_module.exact_kernel.raw_outputscale, model.mean_module.raw_constant]
    gradients = torch.autograd.grad(value, free)
    assert float(value) > before + 10.0
    assert all(float(gradient.abs()) <= 1e-2 for gradient in gradients)
    fixed = model_for("fixed", "real").condition(*rows_for("fixed", 40))
    state = copy.deepcopy(fixed.state_dict())
    assert not learn_from_statistics(fixed)
    assert all(
        torch.equal(a.nan_to_num(0.0), b.nan_to_num(0.0))
        for a, b in zip(state.values(), fixed.state_dict().values(), strict=True)
        if isinstance(a, torch.Tensor)
    )


def test_banks_refuse_what_they_cannot_vary():
    model = gaussian()
    cases = [
        (lambda: LengthscaleBank(model), "stream"),
        (lambda: LengthscaleBank(SlidingWindow(model, 10), factors=(2.0, 1.0)), "ascending"),
        (lambda: LengthscaleBank(SlidingWindow(model, 10), factors=(1.0,)), "two or more"),
        (lambda: LengthscaleBank(SlidingWindow(model_for("gaussian"), 10)), "lengthscales"),
        (lambda: LengthscaleBank(SlidingWindow(gaussian(), 10).update(*wave(5))), "without rows"),
        (lambda: LengthscaleBank(SlidingWindow(model, 10), learn_every=0), "learn_every"),
    ]
    for call, text in cases:
        with pytest.raises(ValueError, match=text):
            call()
