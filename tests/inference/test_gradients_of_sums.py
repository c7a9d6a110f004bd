"""Gradients of sums over rows are those of dense autograd, and hold nothing that grows with the rows."""

import gc
import weakref

import gpytorch
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

import rfgp
from rfgp.inference import GramStatistics
from rfgp.inference.sums.accumulation import summed
from rfgp.inference.sums.recomputation import made_once
from rfgp.inference.sums.rows import Rows

pytestmark = pytest.mark.usefixtures("float64_default")

NUM_ROWS, WIDTH = 41, 6


def tensor(*shape, is_complex=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.complex128 if is_complex else torch.float64)


def rows_of(kind, targets):
    """Rows whose weights and log noises depend on a graph, in one group or several."""
    noise = (0.5 + torch.rand(NUM_ROWS, 3, generator=torch.Generator().manual_seed(1))).requires_grad_()
    if kind == "plain":
        return Rows(targets), []
    if kind == "weights":
        return Rows(targets, 1.0 / noise[:, 0], noise[:, 0].log()), [noise]
    if kind == "weights by group":
        seen = torch.arange(NUM_ROWS * 3).reshape(NUM_ROWS, 3) % 4 != 0
        return Rows(targets, torch.where(seen, 1.0 / noise, 0.0), torch.where(seen, noise.log(), 0.0), None, 3), [noise]
    return Rows(targets, groups=torch.arange(NUM_ROWS) % 3, num_groups=4), []


def dense(features, rows, shift):
    """The sums by their definition: one weighted product per group."""
    ones = torch.ones(NUM_ROWS, 1, dtype=rows.targets.dtype)
    columns, weights = torch.cat([rows.targets - shift, ones], dim=-1), rows.all_weights()
    every = [torch.diag(own) for own in weights.unbind(-1)]
    mixed = torch.promote_types(features.dtype, columns.dtype)
    left, right = features.to(mixed), columns.to(mixed)
    noise = torch.zeros(weights.shape[-1]) if rows.log_noise is None else rows.log_noise.reshape(NUM_ROWS, -1).sum(0)
    return {
        "gram": torch.stack([features.mH @ own.to(features.dtype) @ features for own in every]),
        "cross": torch.stack([left.mH @ own.to(mixed) @ right for own in every]),
        "target_gram": torch.stack([columns.mH @ own.to(columns.dtype) @ columns for own in every]),
        "log_noise": noise,
    }


def scalar(sums):
    """A real number that depends on every sum, with gradients that are not Hermitian."""
    total = torch.zeros(())
    for index, name in enumerate(("gram", "cross", "target_gram", "log_noise")):
        value = sums[name]
        weighted = tensor(*value.shape, is_complex=value.is_complex(), seed=index + 5).conj() * value
        total = total + (weighted.real if weighted.is_complex() else weighted).sum()
    return total


@pytest.mark.parametrize("kind", ["plain", "weights", "weights by group", "groups"])
@pytest.mark.parametrize("complex_targets", [False, True])
@pytest.mark.parametrize("complex_features", [False, True])
def test_gradients_are_those_of_the_definition(complex_features, complex_targets, kind):
    raw = tensor(4, WIDTH, is_complex=complex_features).requires_grad_()
    base = tensor(NUM_ROWS, 4, seed=2).requires_grad_()
    x, targets = base.tanh(), tensor(NUM_ROWS, 2, is_complex=complex_targets, seed=3).requires_grad_()
    rows, leaves = rows_of(kind, targets.sin())
    shift = tensor(2, is_complex=complex_targets, seed=4)
    whitening = torch.tensor(0.3, requires_grad=True)

    def make(x, rows):
        scale = whitening.exp() * (1.0 + x[:, :1].square())
        return scale * (x.to(raw.dtype) @ raw).sin(), rows._replace(targets=scale * rows.targets)

    order = torch.randperm(NUM_ROWS, generator=torch.Generator().manual_seed(6))
    empty = GramStatistics(WIDTH, 2, rows.num_groups, complex_features, complex_targets, shift=shift)
    parts = [order[:7], order[7:20], order[20:]]
    fast = summed(make, x, rows, parts, [raw, whitening], empty, torch.float64).sums()
    exact = dense(*make(x, rows), shift)
    for name, value in exact.items():
        torch.testing.assert_close(fast[name], value, rtol=1e-12, atol=1e-12)
    leaves = [raw, base, targets, whitening, *leaves]
    found = torch.autograd.grad(scalar(fast), leaves, retain_graph=True)
    for one, other in zip(found, torch.autograd.grad(scalar(exact), leaves), strict=True):
        assert (one - other).abs().max() <= 1e-10 * other.abs().max()


def test_parameters_need_not_be_leaves():
    leaf = tensor(4, WIDTH).requires_grad_()
    raw, x, rows = leaf.sin(), tensor(NUM_ROWS, 4), Rows(tensor(NUM_ROWS, 1))
    parts = [slice(0, 20), slice(20, NUM_ROWS)]
    empty = GramStatistics(WIDTH, 1)
    fast = summed(lambda x, rows: (x @ raw, rows), x, rows, parts, [raw], empty, torch.float64).sums()
    exact = scalar(dense(x @ raw, rows, torch.zeros(1)))
    (found,), (expected,) = (torch.autograd.grad(value, leaf, retain_graph=True) for value in (scalar(fast), exact))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0.0)


def test_what_chunks_share_is_made_once_on_the_way_back():
    raw, outer, x = tensor(4, WIDTH).requires_grad_(), torch.tensor(0.4, requires_grad=True), tensor(NUM_ROWS, 4)
    rows, made = Rows(tensor(NUM_ROWS, 1, seed=1)), []

    def shared(name, value):
        made.append(name)
        return value

    def make(x, rows):
        weights = made_once("weights", lambda: shared("weights", (outer * raw).sin()))
        constant = made_once("constant", lambda: shared("constant", torch.full((4, WIDTH), 0.3)))
        return x @ (weights + constant) * raw[0], rows

    parts = [slice(0, 20), slice(20, 30), slice(30, NUM_ROWS)]
    fast = summed(make, x, rows, parts, [raw, outer], GramStatistics(WIDTH, 1), torch.float64).sums()
    exact = scalar(dense(*make(x, rows), torch.zeros(1)))
    made.clear()
    found = torch.autograd.grad(scalar(fast), [raw, outer])
    assert sorted(made) == ["constant", "weights"]
    for one, other in zip(found, torch.autograd.grad(exact, [raw, outer]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_single_products_have_the_digits_of_single_precision():
    raw = tensor(4, WIDTH).float().requires_grad_()
    x, rows = tensor(NUM_ROWS, 4).float(), Rows(tensor(NUM_ROWS, 1, seed=1).float())
    gradients = []
    for dtype in (torch.float32, torch.float64):
        empty = GramStatistics(WIDTH, 1)
        total = summed(lambda x, rows: ((x @ raw).sin(), rows), x, rows, [slice(None)], [raw], empty, dtype)
        gradients += torch.autograd.grad(scalar(total.sums()), raw)
    assert (gradients[0] - gradients[1]).norm() <= 1e-5 * gradients[1].norm()


def model_of(likelihood):
    kernel = rfgp.approximate(gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()), 16, input_dim=3, seed=0)
    return rfgp.models.WeightSpaceGP(kernel, likelihood, gpytorch.means.ConstantMean())


def saved_numbers(num_rows, monkeypatch):
    """How many numbers the graph of an evidence holds: those in all tensors, and in the largest one."""
    x = tensor(num_rows, 3)
    model, sizes = model_of(gpytorch.likelihoods.GaussianLikelihood()), {}

    def pack(value):
        sizes[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes() // value.element_size()
        return value

    with monkeypatch.context() as patch:
        patch.setattr("rfgp.linalg.chunks._CHUNK_BYTES", 1)
        with saved_tensors_hooks(pack, lambda value: value):
            value = model.condition(x, x.sum(-1)).log_marginal_likelihood()
    assert value.requires_grad
    return sum(sizes.values())


def test_the_graph_holds_the_data_and_nothing_else_that_grows(monkeypatch):
    columns = 3 + 2  # the inputs, and two columns of targets: y and ones
    few, many = (saved_numbers(rows, monkeypatch) for rows in (1000, 3000))
    assert many - few <= columns * 2000


def test_statistics_with_gradients_are_freed_with_their_last_reference():
    gc.disable()
    try:
        x = tensor(50, 3)
        model = model_of(gpytorch.likelihoods.GaussianLikelihood()).condition(x, x.sum(-1))
        held = weakref.ref(model.statistics), weakref.ref(model.statistics.gram)
        del model
        assert all(reference() is None for reference in held)
    finally:
        gc.enable()


def test_parameters_that_change_before_the_backward_pass_are_noticed():
    x = tensor(50, 3)
    model = model_of(gpytorch.likelihoods.GaussianLikelihood())
    value = model.condition(x, x.sum(-1)).log_marginal_likelihood()
    with torch.no_grad():
        model.covar_module.base_kernel.raw_lengthscale.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()
