"""Fits of sources of rows: the sums and the gradients of a fit to all rows, in one pass and in two."""

import gc
import weakref

import gpytorch
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from output_problems import NOISES, PATTERNS, output_model, output_noise, output_rows
from problems import FORMS, KINDS, model_for, randomised, rows_for
from torch.utils.data import DataLoader, TensorDataset

import rfgp
from rfgp.data import ArraySource, Source
from rfgp.inference import ClassStatistics
from rfgp.likelihoods import (
    ComplexGaussianLikelihood,
    DirichletClassificationLikelihood,
    FixedNoiseComplexGaussianLikelihood,
)
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")
ROWS = 40
SUMS = ("gram", "cross", "target_gram", "count", "log_noise")


class Counted(Source):
    """A source that counts passes and the batches that are alive at once."""

    def __init__(self, *arrays, batch_size=7):
        self.source, self.passes, self.batches_read = ArraySource(*arrays, batch_size=batch_size), 0, 0
        self.alive, self.most = 0, 0

    num_rows = property(lambda self: self.source.num_rows)
    description = property(lambda self: self.source.description)

    def partitions(self, count):
        return self.source.partitions(count)

    def batches(self, start=0):
        self.passes += 1
        for batch in self.source.batches(start):
            copies = tuple(tensor.clone() for tensor in batch)
            self.alive += 1
            self.most, self.batches_read = max(self.most, self.alive), self.batches_read + 1
            weakref.finalize(copies[0], self._gone)
            yield copies
            del copies

    def _gone(self):
        self.alive -= 1


def given(arguments):
    return [value for value in arguments if value is not None]


def gradients(model, value):
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
    return {name: g for name, g in zip(parameters, found, strict=True) if g is not None and bool((g != 0).any())}


def check(make, arguments, source=None):
    """A fit of a source has the sums, the evidence and the gradients of a fit to all rows."""
    whole, streamed = make(), make()
    source = ArraySource(*given(arguments), batch_size=7) if source is None else source
    expected = whole.condition(*arguments).log_marginal_likelihood()
    value = streamed.condition(source).log_marginal_likelihood()
    for one, other in zip(streamed.draw_statistics, whole.draw_statistics, strict=True):
        for name in SUMS:
            scale = float(getattr(other, name).detach().abs().max())
            torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-12, atol=1e-12 * scale)
    torch.testing.assert_close(value, expected, rtol=1e-11, atol=1e-11)
    found, wanted = gradients(streamed, value), gradients(whole, expected)
    assert found.keys() == wanted.keys() and wanted
    for name, gradient in wanted.items():
        assert (found[name] - gradient).abs().max() <= 1e-9 * gradient.abs().max().clamp_min(1e-3), name


@pytest.mark.smoke_for_each("kind")
@pytest.mark.parametrize(
    ("kind", "form"), [(k, f) for k in KINDS for f in FORMS if (f == "complex") <= (k == "complex")]
)
@pytest.mark.filterwarnings("ignore:the residuals of complex targets")
def test_gradients_equal_those_of_all_rows(kind, form):
    check(lambda: model_for(kind, form, keep_data=False), rows_for(kind, ROWS))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", ["multitask", "helmholtz"])
def test_gradients_of_several_outputs_whose_first_batches_are_complete(name, noise, pattern):
    if noise in ("shared", "full alone") and pattern not in ("none", "random"):
        pattern = "random"
    x, y = output_rows(name, ROWS, pattern)
    y[:14] = output_rows(name, 14)[1]
    known = output_noise(name, ROWS) if noise.startswith("fixed") else None

    def make():
        model = output_model(name, noise, num_rows=ROWS)
        model.keep_data = False
        return model

    whole, streamed = make(), make()
    expected = whole.condition(x, y, known).log_marginal_likelihood()
    value = streamed.condition(ArraySource(*given((x, y, known)), batch_size=7)).log_marginal_likelihood()
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
    found, wanted = gradients(streamed, value), gradients(whole, expected)
    assert found.keys() == wanted.keys()
    for key, gradient in wanted.items():
        assert (found[key] - gradient).abs().max() <= 1e-9 * gradient.abs().max().clamp_min(1e-3), key


@pytest.mark.parametrize("residual", ["none", "vfe", "fitc"])
@pytest.mark.parametrize("noise", ["gaussian", "fixed", "fixed+learned"])
def test_gradients_with_what_landmarks_leave_over(noise, residual):
    arguments = rows_for(noise, ROWS)
    exact = randomised(ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=3)))

    def make():
        kernel = rfgp.approximate(exact, 8, method="landmarks", train_inputs=rows_for(noise, 20, seed=5)[0], seed=0)
        known = GaussianLikelihood()
        if noise != "gaussian":
            known = FixedNoiseGaussianLikelihood(torch.ones(1), learn_additional_noise=noise == "fixed+learned")
        return WeightSpaceGP(kernel, known, gpytorch.means.ConstantMean(), residual=residual)

    check(make, arguments)


@pytest.mark.parametrize("kind", ["gaussian", "fixed+learned", "dirichlet"])
def test_gradients_of_several_draws(kind):
    arguments = rows_for(kind, ROWS)
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 8, input_dim=3, seed=0)

    def make():
        return WeightSpaceGP(kernel, model_for(kind).likelihood, num_draws=3)

    check(make, arguments)
    source = Counted(*given(arguments))
    make().condition(source).log_marginal_likelihood().backward()
    assert source.passes == 2


def many_classes():
    """A model of more classes than are held by Gram matrices, and rows; the first classes have most of them."""
    x = rows_for("gaussian", 300)[0]
    labels = torch.randint(40, (300,), generator=torch.Generator().manual_seed(0))
    labels[100:] %= 3
    likelihood = DirichletClassificationLikelihood(num_classes=40, dtype=torch.float64)
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 16, input_dim=3, seed=0)
    return WeightSpaceGP(kernel, likelihood, gpytorch.means.ConstantMean(batch_shape=torch.Size([40]))), x, labels


def test_gradients_of_many_classes():
    _, x, labels = many_classes()
    check(lambda: many_classes()[0], (x, labels, None), ArraySource(x, labels, batch_size=70))
    assert isinstance(many_classes()[0].condition(x, labels).statistics, ClassStatistics)


def test_gradients_of_many_classes_need_batches_in_the_same_order():
    model, x, labels = many_classes()
    generator = torch.Generator().manual_seed(0)
    loader = DataLoader(TensorDataset(x, labels), batch_size=70, shuffle=True, generator=generator)
    value = model.condition(loader).log_marginal_likelihood()
    with pytest.raises(ValueError, match="does not shuffle"):
        value.backward()


@pytest.mark.parametrize("is_fixed", [False, True])
def test_gradients_of_improper_noise(is_fixed):
    x, y, _ = rows_for("complex", ROWS)
    noise = 0.1 + x[:, 0] ** 2 if is_fixed else None
    y = torch.where(torch.arange(ROWS) % 5 == 3, complex("nan"), y)

    def make():
        known = ComplexGaussianLikelihood(has_pseudo_noise=True)
        if is_fixed:
            options = {"has_pseudo_noise": True, "learn_additional_noise": True}
            known = FixedNoiseComplexGaussianLikelihood(torch.ones(1), **options)
        kernel = rfgp.approximate(ScaleKernel(RBFKernel()), 12, input_dim=3, seed=0, method="fourier:complex")
        return WeightSpaceGP(kernel, randomised(known, seed=2))

    check(make, (x, y, noise))


def test_gradients_of_a_kernel_that_waits_for_its_first_inputs():
    check(lambda: model_for("gaussian", input_dim=None, keep_data=False), rows_for("gaussian", ROWS))


def test_batches_may_come_in_another_order_at_the_second_pass():
    arguments = rows_for("gaussian", ROWS)
    loader = DataLoader(TensorDataset(*given(arguments)), batch_size=9, shuffle=True)
    check(lambda: model_for("gaussian", keep_data=False), arguments, loader)


def test_a_fit_reads_rows_once_and_a_gradient_twice():
    source = Counted(*given(rows_for("gaussian", ROWS)))
    model = model_for("gaussian", keep_data=False)
    value = model.condition(source).log_marginal_likelihood()
    assert (source.passes, source.batches_read) == (1, 6)
    value.backward()
    assert (source.passes, source.batches_read) == (2, 12)
    with torch.no_grad():
        model.condition(source).posterior(torch.randn(3, 3))
    assert source.passes == 3


@pytest.mark.parametrize("kind", ["gaussian", "fixed+learned", "dirichlet"])
def test_no_more_than_two_batches_are_alive(kind):
    source = Counted(*given(rows_for(kind, 400)))
    gc.disable()
    try:
        model_for(kind, keep_data=False).condition(source).log_marginal_likelihood().backward()
    finally:
        gc.enable()
    assert source.batches_read > 100 and source.most <= 2 and source.alive == 0


def test_statistics_of_a_source_are_freed_with_their_last_reference():
    gc.disable()
    try:
        model = model_for("gaussian", keep_data=False).condition(ArraySource(*given(rows_for("gaussian", ROWS))))
        held = weakref.ref(model), weakref.ref(model.statistics), weakref.ref(model.statistics.gram)
        del model
        assert all(reference() is None for reference in held)
    finally:
        gc.enable()


def test_a_generator_is_fitted_but_has_no_gradient():
    x, y, _ = rows_for("gaussian", ROWS)
    model = model_for("gaussian", keep_data=False).condition((x[rows], y[rows]) for rows in torch.arange(ROWS).split(9))
    whole = model_for("gaussian").condition(x, y)
    torch.testing.assert_close(model.posterior(x).mean, whole.posterior(x).mean, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="a generator can be gone through once"):
        model.log_marginal_likelihood().backward()


def test_batches_that_require_gradients_are_refused():
    x, y, _ = rows_for("gaussian", ROWS)
    value = model_for("gaussian", keep_data=False).condition([(x.requires_grad_(), y)]).log_marginal_likelihood()
    with pytest.raises(ValueError, match=r"condition\(x, y\), for gradients in the data"):
        value.backward()


def test_gradients_of_a_source_are_refused_after_an_update():
    """A second pass over the source would know nothing of the rows that came later."""
    x, y, _ = rows_for("gaussian", ROWS)
    model = (
        model_for("gaussian", keep_data=False)
        .condition(ArraySource(x[:30], y[:30], batch_size=7))
        .update(x[30:], y[30:])
    )
    with pytest.raises(ValueError, match="changed by update"):
        model.log_marginal_likelihood().backward()


@pytest.mark.parametrize(
    ("third", "message"),
    [
        ((torch.ones(5, 4), torch.ones(5)), r"x of shape \(N, 3\) in batch 3, as in batch 1, got \(N, 4\)"),
        ((torch.ones(5, 3), torch.ones(5, 2)), r"y of shape \(N,\) in batch 3, as in batch 1, got \(N, 2\)"),
    ],
)
@pytest.mark.parametrize("name", ["fit", "laplace", "sample"])
def test_a_batch_of_other_columns_is_named(name, third, message):
    kernel = rfgp.approximate(RBFKernel(), 4, input_dim=3, seed=0)
    x, y = torch.rand(5, 3, generator=torch.Generator().manual_seed(0)), torch.ones(5)
    batches = [(x, y), (x, y), third]
    if name == "sample":
        with pytest.raises(ValueError, match=message):
            rfgp.data.sample(batches, 8, seed=0)
        return
    probit = gpytorch.likelihoods.BernoulliLikelihood()
    model = WeightSpaceGP(kernel, GaussianLikelihood()) if name == "fit" else rfgp.models.LaplaceGP(kernel, probit)
    before = model.condition(x, y)(x).mean
    with pytest.raises(ValueError, match=message):
        model.condition(batches)
    assert torch.equal(model(x).mean, before)
