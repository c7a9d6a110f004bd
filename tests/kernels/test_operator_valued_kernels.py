"""Exact operator-valued kernels against automatic differentiation, GPyTorch's gradient kernels and its own suite."""

from __future__ import annotations

import copy
import functools
import pickle

import autodiff
import pytest
import torch
from autodiff import curl_free, divergence_free, observed, scalar
from gpytorch.kernels import (
    IndexKernel,
    LCMKernel,
    MaternKernel,
    MultitaskKernel,
    RBFKernel,
    RBFKernelGrad,
    RQKernel,
    ScaleKernel,
)
from gpytorch.kernels.matern52_kernel_grad import Matern52KernelGrad
from kernel_suite import suite
from linear_operator import to_dense
from problems import randomised

import rfgp
from rfgp.functionals import (
    Component,
    Curl,
    Divergence,
    Gradient,
    Laplacian,
    Partial,
    Potential,
    RotatedGradient,
    Stacked,
    Value,
    Vorticity,
    adjoint_matrix,
    evaluate,
)
from rfgp.kernels import (
    ConstantCovariance,
    CurlFreeKernel,
    DecomposableKernel,
    DivergenceFreeKernel,
    GraphLaplacianCovariance,
    HelmholtzKernel,
    LinearlyObservedKernel,
)

pytestmark = pytest.mark.usefixtures("float64_default")

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
SCALAR = torch.Size()
BASES = {
    "rbf": RBFKernel,
    "matern 3/2": functools.partial(MaternKernel, nu=1.5),
    "matern 5/2": functools.partial(MaternKernel, nu=2.5),
}
GAMMA = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 0.5]], dtype=torch.float64)


def points(num_rows, dim, seed=0):
    return torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def base(name, dim, is_ard=False):
    return randomised(BASES[name](ard_num_dims=dim if is_ard else None))


def dense(kernel, *x):
    with torch.no_grad():
        return kernel(*x).to_dense()


def kronecker(left, right):
    return torch.kron(left.contiguous(), right.contiguous())


every_base = pytest.mark.parametrize("name", BASES)
every_ard = pytest.mark.parametrize("is_ard", [False, True], ids=["isotropic", "ARD"])


# Against automatic differentiation


@every_base
@every_ard
@pytest.mark.parametrize(
    ("kind", "dim"),
    [*((CurlFreeKernel, dim) for dim in (1, 2, 3, 4)), *((DivergenceFreeKernel, dim) for dim in (2, 3, 4))],
)
def test_fields_are_what_automatic_differentiation_says(kind, dim, name, is_ard):
    scalar_kernel = base(name, dim, is_ard)
    kernel = kind(scalar_kernel)
    reference = curl_free if kind is CurlFreeKernel else divergence_free
    x, y = points(3, dim), points(2, dim, seed=1)
    expected = autodiff.matrix(reference(scalar(scalar_kernel)), x, y)
    torch.testing.assert_close(dense(kernel, x, y), expected, **CLOSE)
    assert kernel.num_outputs_per_input(x, y) == dim


@every_base
def test_curl_free_fields_are_gradients_and_plane_fields_without_divergence_rotated_ones(name):
    scalar_kernel, x, y = base(name, 2), points(3, 2), points(2, 2, seed=1)
    gradient = autodiff.matrix(observed(Gradient(), scalar(scalar_kernel)), x, y)
    torch.testing.assert_close(dense(CurlFreeKernel(scalar_kernel), x, y), gradient, **CLOSE)
    rotated = autodiff.matrix(observed(RotatedGradient(), scalar(scalar_kernel)), x, y)
    torch.testing.assert_close(dense(DivergenceFreeKernel(scalar_kernel), x, y), rotated, **CLOSE)


@every_base
@every_ard
def test_helmholtz_kernels_are_scaled_sums(name, is_ard):
    kernel = randomised(HelmholtzKernel(base(name, 3, is_ard)))
    x, y = points(3, 3), points(2, 3, seed=1)
    first, second = (part.base_kernel.base_kernel for part in kernel.kernels)
    assert first is not second and not torch.equal(first.lengthscale, second.lengthscale)
    expected = kernel.curl_free.outputscale * autodiff.matrix(curl_free(scalar(first)), x, y)
    expected = expected + kernel.divergence_free.outputscale * autodiff.matrix(divergence_free(scalar(second)), x, y)
    torch.testing.assert_close(dense(kernel, x, y), expected.detach(), **CLOSE)


def test_helmholtz_kernels_with_two_bases_and_with_one_for_both():
    first, second = base("rbf", 2), base("matern 5/2", 2)
    kernel = HelmholtzKernel(first, second)
    assert kernel.curl_free.base_kernel.base_kernel is first
    assert kernel.divergence_free.base_kernel.base_kernel is second
    shared = HelmholtzKernel(first, first)
    assert len(list(shared.parameters())) == 3
    assert len(list(HelmholtzKernel(first).parameters())) == 4


OBSERVED = {
    "value": ([Value()], 0, 3),
    "value and gradient": ([Value(), Gradient()], 1, 2),
    "value and gradient, 3 columns": ([Value(), Gradient()], 1, 3),
    "partial derivatives": ([Partial(1), Partial(0)], 1, 2),
    "sums": ([Value() + 2.0 * Partial(0), Partial(1) - 0.5 * Value()], 1, 2),
    "laplacian": ([Laplacian()], 2, 2),
    "value, gradient and laplacian": ([Value(), Gradient(), Laplacian()], 2, 2),
    "second partial derivatives": ([Partial(0, 0), Partial(0, 1), Value() - Partial(1, 1)], 2, 2),
    "gradient of the gradient": ([Gradient() @ Gradient()], 2, 2),
    "third partial derivative": ([Partial(0, 1, 0), Partial(1)], 3, 2),
    "one column": ([Value(), Partial(0), Partial(0, 0)], 2, 1),
    "gradient of the laplacian": ([Gradient() @ Laplacian()], 3, 2),
}


def smooth_enough(order):
    return [name for name, smoothness in {"rbf": 9, "matern 3/2": 1, "matern 5/2": 2}.items() if smoothness >= order]


@every_ard
@pytest.mark.parametrize(
    ("case", "name"), [(case, name) for case, (_, order, _) in OBSERVED.items() for name in smooth_enough(order)]
)
def test_observations_of_functions_are_what_automatic_differentiation_says(case, name, is_ard):
    operators, _, dim = OBSERVED[case]
    scalar_kernel = base(name, dim, is_ard)
    x, y = points(2, dim), points(2, dim, seed=1)
    kernel = LinearlyObservedKernel(scalar_kernel, operators)
    expected = autodiff.matrix(observed(Stacked(*operators), scalar(scalar_kernel)), x, y)
    torch.testing.assert_close(dense(kernel, x, y), expected, **CLOSE)


FIELDS = {
    "components": ([Component(1), Component(0) - Component(1)], 2),
    "divergence and vorticity": ([Divergence(), Vorticity()], 2),
    "value and divergence": ([Value(), Divergence()], 3),
    "curl": ([Curl()], 3),
    "derivatives of components": ([Partial(0) @ Component(1), Component(0) + 3.0 * Divergence()], 2),
}


@pytest.mark.parametrize("case", FIELDS)
@pytest.mark.parametrize(("kind", "reference"), [(CurlFreeKernel, curl_free), (DivergenceFreeKernel, divergence_free)])
@pytest.mark.parametrize("name", ["rbf", "matern 5/2"])
def test_observations_of_fields_are_what_automatic_differentiation_says(case, kind, reference, name):
    operators, dim = FIELDS[case]
    scalar_kernel = base(name, dim)
    x, y = points(1, dim), points(1, dim, seed=1)
    kernel = LinearlyObservedKernel(kind(scalar_kernel), operators)
    expected = autodiff.matrix(observed(Stacked(*operators), reference(scalar(scalar_kernel))), x, y)
    torch.testing.assert_close(dense(kernel, x, y), expected, **CLOSE)


def test_divergence_and_vorticity_of_helmholtz_kernels_come_from_one_part_each():
    kernel, x, y = randomised(HelmholtzKernel(RBFKernel())), points(3, 2), points(2, 2, seed=1)
    for operator, part in [(Divergence(), kernel.curl_free), (Vorticity(), kernel.divergence_free)]:
        own = dense(LinearlyObservedKernel(kernel, [operator]), x, y)
        torch.testing.assert_close(own, dense(LinearlyObservedKernel(part, [operator]), x, y), **CLOSE)
        assert own.abs().max() > 1e-3
    both = dense(LinearlyObservedKernel(kernel, [Divergence(), Vorticity()]), x, y).reshape(3, 2, 2, 2)
    assert both[:, 0, :, 1].abs().max() == both[:, 1, :, 0].abs().max() == 0.0


@pytest.mark.parametrize(
    ("kind", "operator", "dim"),
    [(DivergenceFreeKernel, Divergence(), 3), (CurlFreeKernel, Vorticity(), 2), (CurlFreeKernel, Curl(), 3)],
)
@every_base
def test_what_vanishes_has_no_covariance(kind, operator, dim, name):
    kernel = LinearlyObservedKernel(kind(base(name, dim)), [operator])
    x = points(3, dim)
    assert torch.equal(dense(kernel, x), torch.zeros_like(dense(kernel, x)))
    assert torch.equal(kernel(x, diag=True), torch.zeros_like(kernel(x, diag=True)))


def plain_sum(first, second):
    return lambda x, y: 2.0 * first(x, y) + second(x, y)


def test_scales_and_sums_inside_come_outside():
    first, second = base("rbf", 2), base("matern 5/2", 2)
    inside = ScaleKernel(first) + second
    inside.kernels[0].outputscale = 2.0
    operators = [Value(), Gradient() @ (Value() + 0.5 * Partial(1))]
    kernel = LinearlyObservedKernel(inside, operators)
    x, y = points(3, 2), points(2, 2, seed=1)
    expected = autodiff.matrix(observed(Stacked(*operators), plain_sum(scalar(first), scalar(second))), x, y)
    torch.testing.assert_close(dense(kernel, x, y), expected, **CLOSE)
    torch.testing.assert_close(dense(kernel.distributed(), x, y), expected, **CLOSE)
    assert {id(p) for p in kernel.distributed().parameters()} == {id(p) for p in kernel.parameters()}
    torch.testing.assert_close(kernel(x, diag=True), dense(kernel, x).diagonal(), **CLOSE)
    twice = ScaleKernel(inside)
    twice.outputscale = 3.0
    torch.testing.assert_close(dense(LinearlyObservedKernel(twice, operators), x, y), 3.0 * expected, **CLOSE)


def tasks_of(name):
    """Tasks, and their kernel as a plain function: of one scalar kernel, of a sum of two, or of two task kernels."""
    first, second = base("rbf", 2, is_ard=True), base("matern 5/2", 2)
    covariance, other = (torch.randn(2, 2, generator=torch.Generator().manual_seed(k)) for k in (0, 1))
    covariance, other = covariance @ covariance.mT, other @ other.mT + torch.eye(2)
    known = ConstantCovariance(covariance)
    left, right = scalar(first), scalar(second)
    return {
        "one": (DecomposableKernel(first, known), lambda x, y: left(x, y) * covariance),
        "a scaled sum": (
            DecomposableKernel(scaled(first, 2.0) + second, known),
            lambda x, y: (2.0 * left(x, y) + right(x, y)) * covariance,
        ),
        "a sum of tasks": (
            DecomposableKernel(first, known) + scaled(DecomposableKernel(second, ConstantCovariance(other)), 3.0),
            lambda x, y: left(x, y) * covariance + 3.0 * right(x, y) * other,
        ),
    }[name]


def scaled(kernel, outputscale):
    outer = ScaleKernel(kernel)
    outer.outputscale = outputscale
    return outer


@pytest.mark.parametrize("case", ["one", "a scaled sum", "a sum of tasks"])
def test_observations_of_tasks_are_what_automatic_differentiation_says(case):
    tasks, reference = tasks_of(case)
    operators = [Value(), Partial(0) @ Component(0), Partial(1) @ Component(1) - 0.5 * Component(0), Laplacian()]
    kernel = LinearlyObservedKernel(tasks, operators)
    x, y = points(2, 2), points(2, 2, seed=1)
    expected = autodiff.matrix(observed(Stacked(*operators), reference), x, y)
    torch.testing.assert_close(dense(kernel, x, y), expected, **CLOSE)
    torch.testing.assert_close(kernel(x, diag=True), dense(kernel, x).diagonal(), **CLOSE)
    torch.testing.assert_close(dense(kernel.distributed(), x, y), expected, **CLOSE)
    assert {id(p) for p in kernel.distributed().parameters()} == {id(p) for p in kernel.parameters()}


def test_values_of_tasks_are_the_tasks_and_gradients_reach_their_covariance():
    tasks = MultitaskKernel(RBFKernel(), num_tasks=2, rank=1)
    with torch.no_grad():
        tasks.task_covar_module.covar_factor[0] = 0.0  # a covariance of zero that has a gradient
    x, weights = points(3, 2), points(6, 6, seed=1)
    for exact in (tasks, LCMKernel([RBFKernel(), MaternKernel(nu=2.5)], num_tasks=2, rank=1)):
        kernel, gradients = LinearlyObservedKernel(exact, [Value()]), []
        torch.testing.assert_close(dense(kernel, x), dense(exact, x), **CLOSE)
        for one in (kernel, exact):
            total = (weights * one(x).to_dense()).sum()
            gradients.append(torch.autograd.grad(total, list(exact.parameters())))
        torch.testing.assert_close(*gradients, **CLOSE)


NESTED = {
    "plain": lambda k: k,
    "scale inside": lambda k: ScaleKernel(k),
    "sum inside": lambda k: k + ScaleKernel(RBFKernel()),
    "sum of scales": lambda k: ScaleKernel(k + RBFKernel()),
}


@pytest.mark.parametrize("wrap", NESTED.values(), ids=NESTED)
def test_observations_of_observations_are_those_of_the_composition(wrap):
    inside = randomised(wrap(RBFKernel()))
    x, y = points(3, 2), points(2, 2, seed=1)
    nested = LinearlyObservedKernel(LinearlyObservedKernel(inside, [Gradient()]), [Divergence(), Value()])
    direct = LinearlyObservedKernel(inside, [Laplacian(), Gradient()])
    torch.testing.assert_close(dense(nested, x, y), dense(direct, x, y), **CLOSE)
    scaled = LinearlyObservedKernel(ScaleKernel(LinearlyObservedKernel(inside, [Gradient()])), [Divergence()])
    scaled.base_kernel.outputscale = 2.0
    expected = 2.0 * dense(LinearlyObservedKernel(inside, [Laplacian()]), x, y)
    torch.testing.assert_close(dense(scaled, x, y), expected, **CLOSE)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize(
    ("own", "name"), [(RBFKernelGrad, "rbf"), (Matern52KernelGrad, "matern 5/2")], ids=["rbf", "matern 5/2"]
)
@every_ard
def test_value_and_gradient_are_those_of_gpytorch(own, name, dim, is_ard):
    scalar_kernel = base(name, dim, is_ard)
    theirs = own(ard_num_dims=dim if is_ard else None)
    theirs.lengthscale = scalar_kernel.lengthscale
    kernel = LinearlyObservedKernel(scalar_kernel, [Value(), Gradient()])
    x, y = points(4, dim), points(3, dim, seed=1)
    for pair in [(x, y), (x, x)]:
        torch.testing.assert_close(dense(kernel, *pair), dense(theirs, *pair), rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(kernel(x, diag=True), theirs(x, diag=True), rtol=1e-7, atol=1e-7)


# What every exact kernel has


def decomposable(covariance):
    return lambda base_kernel: DecomposableKernel(base_kernel, covariance())


def graph():
    return GraphLaplacianCovariance(torch.tensor([[0.0, 1.0, 0.5], [1.0, 0.0, 0.0], [0.5, 0.0, 0.0]]))


WITH_SLOPES = [Component(0), Component(1), Partial(0) @ Component(0), Partial(0) @ Component(1)]
EVERY = {
    "curl-free": CurlFreeKernel,
    "divergence-free": DivergenceFreeKernel,
    "helmholtz": HelmholtzKernel,
    "value and gradient": lambda k: LinearlyObservedKernel(k, [Value(), Gradient()]),
    "divergence of a field": lambda k: LinearlyObservedKernel(HelmholtzKernel(k, k), [Value() - 2.0 * Value()]),
    "scaled inside": lambda k: LinearlyObservedKernel(ScaleKernel(k), [Partial(1), Value()]),
    "nested": lambda k: LinearlyObservedKernel(LinearlyObservedKernel(ScaleKernel(k), [Value()]), [Gradient()]),
    "derivatives of tasks": lambda k: LinearlyObservedKernel(MultitaskKernel(ScaleKernel(k), 2, rank=2), WITH_SLOPES),
    "graph": decomposable(graph),
    "constant": decomposable(lambda: ConstantCovariance(GAMMA.to(torch.get_default_dtype()))),
    "index": decomposable(lambda: IndexKernel(3, rank=2)),
}
every_kernel = pytest.mark.parametrize("key", EVERY)


def make(key, name="rbf", dim=3, **options):
    return randomised(EVERY[key](BASES[name](**options)))


@every_kernel
@every_base
def test_symmetric_positive_semidefinite_with_the_right_diagonal(key, name):
    kernel, x, y = make(key, name), points(6, 3), points(4, 3, seed=1)
    matrix = dense(kernel, x)
    outputs = kernel.num_outputs_per_input(x, x)
    assert matrix.shape == (6 * outputs, 6 * outputs) == kernel(x).shape
    torch.testing.assert_close(matrix, matrix.mT, **CLOSE)
    assert torch.linalg.eigvalsh(matrix).min() >= -1e-10 * matrix.abs().max()
    torch.testing.assert_close(kernel(x, diag=True), matrix.diagonal(), **CLOSE)
    torch.testing.assert_close(dense(kernel, x, y), dense(kernel, y, x).mT, **CLOSE)
    pairs = dense(kernel, x[:4], y).reshape(4, outputs, 4, outputs)
    expected = torch.stack([pairs[i, :, i].diagonal() for i in range(4)]).flatten()
    torch.testing.assert_close(kernel(x[:4], y, diag=True), expected, **CLOSE)


@every_kernel
@every_base
def test_rows_are_interleaved(key, name):
    kernel, x, y = make(key, name), points(3, 3), points(2, 3, seed=1)
    matrix = dense(kernel, x, y)
    outputs = kernel.num_outputs_per_input(x, y)
    for i in range(3):
        block = matrix[i * outputs : (i + 1) * outputs]
        torch.testing.assert_close(block, dense(kernel, x[i : i + 1], y), **CLOSE)


@every_kernel
@every_base
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_coincident_points_are_finite_with_finite_gradients(key, name, dtype):
    kernel = make(key, name).to(dtype)
    x = points(3, 3).to(dtype)
    x = torch.cat([x, x[:2], torch.zeros(2, 3, dtype=dtype)]).requires_grad_()
    value = kernel(x).to_dense()
    value.square().sum().backward()
    assert torch.isfinite(value).all() and torch.isfinite(x.grad).all()
    for parameter_name, parameter in kernel.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), parameter_name
    assert all(p.grad.abs().max() > 0 for n, p in kernel.named_parameters() if n.endswith("raw_lengthscale"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["rbf", "matern 5/2"])
def test_second_derivatives_at_coincident_points(name, dtype):
    kernel = LinearlyObservedKernel(BASES[name](), [Value(), Gradient(), Laplacian()]).to(dtype)
    x = points(2, 2).to(dtype).repeat(2, 1).requires_grad_()
    value = kernel(x).to_dense()
    value.square().sum().backward()
    assert torch.isfinite(value).all() and torch.isfinite(x.grad).all()
    assert torch.isfinite(kernel.base_kernel.raw_lengthscale.grad).all()
    close, far = value.detach()[:4, :4], value.detach()[:4, 8:12]
    torch.testing.assert_close(close, far)
    nearby = dense(kernel, x.detach(), x.detach() + 1e-4)  # continuous there
    torch.testing.assert_close(nearby, value.detach(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("key", "name"), [*((key, "rbf") for key in EVERY), ("helmholtz", "matern 5/2")])
def test_gradients_of_parameters(key, name):
    kernel, x, y = make(key, name), points(2, 3), points(2, 3, seed=1)
    names = [n for n, p in kernel.named_parameters()]

    def value(*values):
        arguments = ({f"kernel.{n}": v for n, v in zip(names, values, strict=True)}, (x, y))
        return torch.func.functional_call(Evaluated(kernel), *arguments)

    assert torch.autograd.gradcheck(value, tuple(kernel.parameters()))


class Evaluated(torch.nn.Module):
    """A kernel whose call gives its matrix."""

    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def forward(self, x, y):
        return self.kernel(x, y).to_dense()


@pytest.mark.parametrize("key", ["curl-free", "divergence-free", "helmholtz", "value and gradient", "nested"])
def test_batches_of_lengthscales(key):
    kernel = make(key, batch_shape=torch.Size([2]))
    x = points(4, 3)
    matrix = dense(kernel, x)
    assert matrix.shape[0] == 2 and not torch.allclose(matrix[0], matrix[1])
    for i in range(2):
        torch.testing.assert_close(dense(kernel[i], x), matrix[i], **CLOSE)
    torch.testing.assert_close(kernel(x, diag=True), matrix.diagonal(dim1=-2, dim2=-1), **CLOSE)


@pytest.mark.parametrize("key", ["curl-free", "divergence-free", "helmholtz", "value and gradient", "nested"])
@pytest.mark.parametrize("is_scaled", [False, True])
def test_active_dims_of_the_base_kernel_select_inputs(key, is_scaled):
    if (key, is_scaled) == ("helmholtz", True):
        kernel, plain = make(key, active_dims=[2, 0]) + make(key, active_dims=[2, 0]), make(key) + make(key)
    else:
        kernel, plain = make(key, active_dims=[2, 0]), make(key)
        if is_scaled:
            kernel, plain = ScaleKernel(kernel), ScaleKernel(plain)
    x, y = points(4, 3), points(2, 3, seed=1)
    expected = dense(plain, x[:, [2, 0]], y[:, [2, 0]])
    torch.testing.assert_close(dense(kernel, x, y), expected, **CLOSE)
    torch.testing.assert_close(kernel(x, diag=True), dense(kernel, x).diagonal(), **CLOSE)


def test_active_dims_of_observations_of_sums():
    base_kernel = ScaleKernel(RBFKernel()) + RBFKernel()
    kernel = LinearlyObservedKernel(base_kernel, [Value(), Gradient()], active_dims=[2, 0])
    plain = LinearlyObservedKernel(base_kernel, [Value(), Gradient()])
    x = points(4, 3)
    for each in (kernel, kernel.distributed()):
        torch.testing.assert_close(dense(each, x), dense(plain, x[:, [2, 0]]), **CLOSE)


def test_active_dims_of_decomposable_kernels():
    x, covariance = points(4, 3), graph()
    kernel = DecomposableKernel(RBFKernel(), covariance, active_dims=[1])
    expected = kronecker(dense(RBFKernel(), x[:, [1]]), covariance.covar_matrix)
    torch.testing.assert_close(dense(kernel, x), expected.detach(), **CLOSE)


@every_kernel
def test_pickles_copies_and_state_dicts(key):
    kernel, other, x = make(key), randomised(EVERY[key](RBFKernel()), seed=5), points(3, 3)
    assert not torch.allclose(dense(kernel, x), dense(other, x))
    other.load_state_dict(kernel.state_dict())
    for twin in (pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel), other):
        torch.testing.assert_close(dense(twin, x), dense(kernel, x), **CLOSE)


@pytest.mark.parametrize("key", ["curl-free", "divergence-free", "value and gradient"])
@pytest.mark.parametrize("dim", [2, 3])
def test_polynomials_are_outer_products_of_the_factor(key, dim):
    kernel = EVERY[key](RBFKernel())
    w = points(4, dim)
    b, rows = kernel.factor(w), kernel.covariance(dim)
    assert rows == adjoint_matrix(rows)
    values = torch.stack([torch.stack([evaluate(entry, w) for entry in row], -1) for row in rows], -2)
    torch.testing.assert_close((b @ b.mH).to(values.dtype), values, **CLOSE)
    assert b.shape == (4, kernel.num_outputs(dim), dim - 1 if key == "divergence-free" else 1)


# Decomposable kernels


@pytest.mark.parametrize("covariance", [graph, lambda: ConstantCovariance(GAMMA), lambda: IndexKernel(3, rank=1)])
def test_decomposable_kernels_are_kronecker_products(covariance):
    covariance, data = randomised(covariance()), randomised(ScaleKernel(RBFKernel()))
    kernel, x, y = DecomposableKernel(data, covariance), points(3, 2), points(2, 2, seed=1)
    expected = kronecker(dense(data, x, y), to_dense(covariance.covar_matrix).detach())
    torch.testing.assert_close(dense(kernel, x, y), expected, **CLOSE)


def test_decomposable_kernels_with_an_index_kernel_are_those_of_gpytorch():
    theirs = randomised(MultitaskKernel(RBFKernel(), num_tasks=3, rank=2))
    kernel = DecomposableKernel(theirs.data_covar_module, theirs.task_covar_module)
    x = points(4, 2)
    torch.testing.assert_close(dense(kernel, x), dense(theirs, x), **CLOSE)
    assert set(kernel.parameters()) == set(theirs.parameters()) and len(set(kernel.parameters())) == 3


def test_graph_laplacian_covariance():
    similarity = torch.tensor([[7.0, 1.0, 0.5], [1.0, 0.0, 0.0], [0.5, 0.0, 3.0]])
    covariance = GraphLaplacianCovariance(similarity)
    laplacian = torch.tensor([[1.5, -1.0, -0.5], [-1.0, 1.0, 0.0], [-0.5, 0.0, 0.5]])
    assert torch.equal(covariance.laplacian, laplacian)
    covariance.strength = 1e-9
    torch.testing.assert_close(covariance.covar_matrix, torch.eye(3), rtol=0.0, atol=1e-8)
    covariance.strength = 2.5
    assert float(covariance.strength.detach()) == pytest.approx(2.5)
    torch.testing.assert_close(covariance.covar_matrix @ (torch.eye(3) + 2.5 * laplacian), torch.eye(3))
    covariance.strength = 1e5  # Gamma tends to the projection on constants, and what is left to the pseudo-inverse
    projection = torch.full((3, 3), 1.0 / 3.0)
    torch.testing.assert_close(covariance.covar_matrix, projection, rtol=0.0, atol=1e-4)
    scaled = 1e5 * (covariance.covar_matrix - projection)
    torch.testing.assert_close(scaled, torch.linalg.pinv(laplacian), rtol=0.0, atol=1e-4)
    covariance.covar_matrix.sum().backward()
    assert torch.isfinite(covariance.raw_strength.grad)


def test_graph_laplacian_covariance_learns_its_strength():
    covariance = GraphLaplacianCovariance(torch.ones(3, 3))
    covariance.covar_matrix[0, 1].backward()
    assert covariance.raw_strength.grad > 0  # more alike
    assert [name for name, _ in covariance.named_parameters()] == ["raw_strength"]


# Refusals

SMOOTH = "expected a kernel with {} derivative{} for .*, got MaternKernel\\(nu={}\\), whose process has {}; use an RBF"
REFUSED = [
    (lambda: CurlFreeKernel(MaternKernel(nu=0.5)), SMOOTH.format(1, "", 0.5, 0)),
    (lambda: DivergenceFreeKernel(MaternKernel(nu=0.5)), SMOOTH.format(1, "", 0.5, 0)),
    (lambda: HelmholtzKernel(MaternKernel(nu=0.5)), SMOOTH.format(1, "", 0.5, 0)),
    (lambda: HelmholtzKernel(RBFKernel(), MaternKernel(nu=0.5)), SMOOTH.format(1, "", 0.5, 0)),
    (lambda: CurlFreeKernel(RQKernel()), "expected an RBFKernel or a MaternKernel, .* got RQKernel"),
    (
        lambda: DivergenceFreeKernel(ScaleKernel(RBFKernel())),
        "got ScaleKernel; use one, put a ScaleKernel around fields",
    ),
    (lambda: CurlFreeKernel(RBFKernelGrad()), "got RBFKernelGrad"),
    (lambda: LinearlyObservedKernel(RQKernel(), [Value()]), "got RQKernel"),
    (lambda: LinearlyObservedKernel(ScaleKernel(RQKernel()) + RBFKernel(), [Value()]), "got RQKernel"),
    (lambda: LinearlyObservedKernel(RBFKernel() * RBFKernel(), [Value()]), "got ProductKernel"),
    (lambda: LinearlyObservedKernel(RBFKernel(), []), r"expected a list of rfgp.functionals, got \[\]"),
    (lambda: LinearlyObservedKernel(RBFKernel(), Gradient()), r"expected a list .* got Gradient\(\)"),
    (lambda: LinearlyObservedKernel(RBFKernel(), ["gradient"]), "expected a list of rfgp.functionals"),
    (lambda: LinearlyObservedKernel(MaternKernel(nu=0.5, ard_num_dims=2), [Gradient()]), SMOOTH.format(1, "", 0.5, 0)),
    (
        lambda: LinearlyObservedKernel(MaternKernel(nu=1.5, ard_num_dims=2), [Laplacian()]),
        SMOOTH.format(2, "s", 1.5, 1),
    ),
    (lambda: LinearlyObservedKernel(MultitaskKernel(RQKernel(), 2), [Value()]), "got RQKernel"),
    (
        lambda: LinearlyObservedKernel(MultitaskKernel(RBFKernel(), 2) + MultitaskKernel(RBFKernel(), 3), [Value()]),
        r"equally many tasks in a sum to observe, got \[2, 3\]",
    ),
    (
        lambda: LinearlyObservedKernel(MultitaskKernel(RBFKernel(active_dims=[0]), 2), [Value()]),
        "expected active_dims on the MultitaskKernel",
    ),
    (
        lambda: LinearlyObservedKernel(MultitaskKernel(RBFKernel(), 2) + RBFKernel(), [Value()]),
        "expected a sum of scalar kernels or one of kernels of fields",
    ),
    (
        lambda: LinearlyObservedKernel(RBFKernel() + CurlFreeKernel(RBFKernel()), [Value()]),
        "expected a sum of scalar kernels or one of kernels of fields to observe, got both",
    ),
    (
        lambda: LinearlyObservedKernel(RBFKernel(active_dims=[0]) + RBFKernel(active_dims=[1]), [Gradient()]),
        "expected no active_dims on the parts of a sum that is observed",
    ),
    (lambda: DecomposableKernel(RBFKernel(), RBFKernel()), "expected a module with a covar_matrix, got RBFKernel"),
    (lambda: ConstantCovariance(torch.ones(2, 2)), "expected a positive definite covariance"),
    (lambda: ConstantCovariance(torch.tensor([[1.0, 0.5], [0.4, 1.0]])), "expected a symmetric matrix"),
    (lambda: ConstantCovariance(torch.ones(2, 3)), r"expected a symmetric matrix \(T, T\), got shape \(2, 3\)"),
    (lambda: GraphLaplacianCovariance(-torch.ones(2, 2)), "expected similarities of at least 0, got -1.0"),
    (lambda: GraphLaplacianCovariance(torch.ones(3)), "expected a symmetric similarity"),
]


@pytest.mark.parametrize(("create", "message"), REFUSED)
def test_kernels_that_do_not_exist_are_refused(create, message):
    with pytest.raises(ValueError, match=message):
        create()


REFUSED_AT_INPUTS = [
    (lambda: LinearlyObservedKernel(MaternKernel(nu=0.5), [Gradient()]), 2, SMOOTH.format(1, "", 0.5, 0)),
    (lambda: LinearlyObservedKernel(MaternKernel(nu=2.5), [Partial(0, 0, 1)]), 2, SMOOTH.format(3, "s", 2.5, 2)),
    (lambda: LinearlyObservedKernel(CurlFreeKernel(MaternKernel(nu=1.5)), [Divergence()]), 2, "with 2 derivatives"),
    (lambda: LinearlyObservedKernel(MultitaskKernel(MaternKernel(nu=1.5), 2), [Laplacian()]), 2, "with 2 derivatives"),
    (lambda: LinearlyObservedKernel(MultitaskKernel(RBFKernel(), 2), [Component(2)]), 2, "a component below 2"),
    (
        lambda: LinearlyObservedKernel(MultitaskKernel(RBFKernel(), 2, batch_shape=torch.Size([3])), [Value()]),
        2,
        "expected tasks without batch dimensions",
    ),
    (lambda: LinearlyObservedKernel(DivergenceFreeKernel(MaternKernel(nu=1.5)), [Vorticity()]), 2, "2 derivatives"),
    (lambda: LinearlyObservedKernel(HelmholtzKernel(MaternKernel(nu=1.5)), [Divergence()]), 2, "2 derivatives"),
    (lambda: LinearlyObservedKernel(RBFKernel(), [Potential()]), 1, "expected a differential operator, got Potential"),
    (lambda: LinearlyObservedKernel(RBFKernel(), [Value(), Partial(2)]), 2, "expected coordinates below 2"),
    (lambda: LinearlyObservedKernel(CurlFreeKernel(RBFKernel()), [Vorticity()]), 3, r"a vector field on R\^2"),
    (lambda: LinearlyObservedKernel(RBFKernel(), [Divergence()]), 2, "expected a vector field"),
    (lambda: DivergenceFreeKernel(RBFKernel()), 1, "expected inputs of at least two columns"),
]


@pytest.mark.parametrize(("create", "dim", "message"), REFUSED_AT_INPUTS)
def test_kernels_are_refused_at_the_first_inputs(create, dim, message):
    kernel = create()
    for options in ({}, {"diag": True}):
        with pytest.raises(ValueError, match=message):
            to_dense(kernel(points(3, dim), **options))


def test_last_dim_is_batch_raises():
    x = points(3, 2)
    with pytest.raises(ValueError, match="expected last_dim_is_batch=False"):
        CurlFreeKernel(RBFKernel()).forward(x, x, last_dim_is_batch=True)


def test_derivatives_do_not_cost_more_kernel_evaluations_than_multi_indices():
    kernel = CurlFreeKernel(RBFKernel())
    assert len({alpha for row in kernel.covariance(10) for entry in row for alpha in entry}) == 55


# GPyTorch's own suite


def field(kind):
    return lambda columns, **options: kind(RBFKernel(**options))


def outside(kind):
    """With an output scale around."""

    def create(columns, batch_shape=SCALAR, **options):
        return ScaleKernel(kind(MaternKernel(nu=2.5, batch_shape=batch_shape, **options)), batch_shape=batch_shape)

    return create


def helmholtz(columns, **options):
    return HelmholtzKernel(RBFKernel(**options))


def value_and_gradient(columns, **options):
    return LinearlyObservedKernel(MaternKernel(nu=1.5, **options), [Value(), Gradient()])


def observed_in_suite(columns, batch_shape=SCALAR, **options):
    inside = ScaleKernel(RBFKernel(batch_shape=batch_shape, **options), batch_shape=batch_shape)
    return LinearlyObservedKernel(inside, [Partial(1), Value() + 0.5 * Partial(0)])


def observed_field(columns, **options):
    return LinearlyObservedKernel(DivergenceFreeKernel(RBFKernel(**options)), [Value(), Divergence()])


def approximated(create, method="auto", width=32):
    return lambda columns, **options: rfgp.approximate(create(columns, **options), width, method=method, seed=0)


IN_SUITE = {
    "CurlFree": field(CurlFreeKernel),
    "DivergenceFree": field(DivergenceFreeKernel),
    "ScaledCurlFree": outside(CurlFreeKernel),
    "ScaledDivergenceFree": outside(DivergenceFreeKernel),
    "Helmholtz": helmholtz,
    "ValueAndGradient": value_and_gradient,
    "ObservedInside": observed_in_suite,
    "ObservedField": observed_field,
}
for _name, _create in IN_SUITE.items():
    globals()[f"TestExact{_name}"] = suite(_create, _create)
    for _method in ("auto", "fourier"):
        _title = f"TestApproximated{_name}{_method.title()}"
        globals()[_title] = suite(*[approximated(_create, _method)] * 2)


def decomposable_in_suite(columns, batch_shape=SCALAR, active_dims=None, **options):
    data = RBFKernel(batch_shape=batch_shape, **options)
    return DecomposableKernel(data, graph(), active_dims=active_dims)


_NO_BATCH = {f"test_kernel_getitem_{name}": None for name in ("single_batch", "double_batch", "broadcast")}
TestExactDecomposable = suite(decomposable_in_suite)
TestApproximatedDecomposable = suite(approximated(decomposable_in_suite), **_NO_BATCH)
