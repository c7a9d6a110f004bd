"""Linear operators: symbols against automatic differentiation, matrices against symbols, algebra and identities."""

from __future__ import annotations

import functools
import inspect
import itertools

import pytest
import torch
from autodiff import applied

from rfgp.functionals import (
    Component,
    Curl,
    CurlFreePart,
    DifferentialOperator,
    Divergence,
    DivergenceFreePart,
    Gradient,
    Laplacian,
    Operator,
    Partial,
    Potential,
    RotatedGradient,
    Stacked,
    Streamfunction,
    Value,
    Vorticity,
    add,
    adjoint,
    adjoint_matrix,
    degree,
    evaluate,
    matrix_product,
    multiply,
)

ROUNDING = {"rtol": 1e-11, "atol": 1e-11}

# Of every operator: instances, and by their name the pairs (d, T) of coordinates and components it is defined for.
ANY = [(1, 1), (2, 1), (3, 1), (2, 3), (3, 2)]
FIELDS = [(1, 1), (2, 2), (3, 3), (4, 4)]
EXAMPLES = {
    Value: ([Value()], ANY),
    Component: ([Component(0), Component(1)], [(2, 3), (3, 2), (1, 2)]),
    Partial: ([Partial(), Partial(0), Partial(1, 0), Partial(1, 1, 0, 1)], [(2, 1), (3, 2)]),
    Gradient: ([Gradient()], ANY),
    Laplacian: ([Laplacian()], ANY),
    Divergence: ([Divergence()], FIELDS),
    Vorticity: ([Vorticity()], [(2, 2)]),
    Curl: ([Curl()], [(3, 3)]),
    RotatedGradient: ([RotatedGradient()], [(2, 1)]),
    Potential: ([Potential()], FIELDS),
    Streamfunction: ([Streamfunction()], [(2, 2)]),
    CurlFreePart: ([CurlFreePart()], FIELDS),
    DivergenceFreePart: ([DivergenceFreePart()], FIELDS),
    Stacked: ([Stacked(Value(), Partial(1)), Stacked(Gradient())], [(2, 1), (2, 2), (3, 1)]),
}
COMPOSED = [
    (Value() + 2.0 * Laplacian(), (2, 1)),
    (Gradient() - Gradient() @ Laplacian(), (3, 1)),
    (-Partial(0) @ Partial(1, 1), (2, 2)),
    (Divergence() @ (0.5 * Gradient()), (2, 1)),
    (Stacked(Component(1), Divergence(), 3.0 * Vorticity()), (2, 2)),
    (Curl() @ Curl() * 0.25, (3, 3)),
    (Gradient() @ Divergence() - Curl() @ Curl(), (3, 3)),
]
CASES = [
    pytest.param(operator, shape, id=f"{operator} {shape}")
    for operators, shapes in EXAMPLES.values()
    for operator, shape in itertools.product(operators, shapes)
] + [pytest.param(operator, shape, id=f"{operator} {shape}") for operator, shape in COMPOSED]
every_operator = pytest.mark.parametrize(("operator", "shape"), CASES)


def is_differential(operator):
    return not isinstance(operator, Potential | Streamfunction | CurlFreePart | DivergenceFreePart)


every_differential = pytest.mark.parametrize(
    ("operator", "shape"), [case for case in CASES if is_differential(case.values[0])]
)


def subclasses(cls):
    for child in cls.__subclasses__():
        yield child
        yield from subclasses(child)


def test_every_operator_has_examples():
    public = {
        cls
        for cls in subclasses(Operator)
        if cls.__module__.startswith("rfgp.functionals.")
        and not cls.__name__.startswith("_")
        and not inspect.isabstract(cls)
    }
    assert public == set(EXAMPLES)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def frequencies(dim, count=3, seed=1):
    return random(count, dim, seed=seed)


def wave(w, b, part):
    r"""The real or imaginary part of the field :math:`e^{i w^\top x} b`."""
    function = {"real": (torch.cos, -1.0, torch.sin), "imag": (torch.sin, 1.0, torch.cos)}[part]

    def field(x):
        phase = x @ w
        return function[0](phase) * b.real + function[1] * function[2](phase) * b.imag

    return field


@every_differential
def test_symbols_are_what_automatic_differentiation_says(operator, shape):
    dim, components = shape
    w, x = frequencies(dim, 1)[0], random(dim, seed=2)
    b = torch.complex(random(components, seed=3), random(components, seed=4))
    symbol = operator.symbol(w, components)
    expected = torch.exp(1j * (x @ w)) * (symbol @ b)
    for part in ("real", "imag"):
        result = applied(operator, wave(w, b, part))(x)
        torch.testing.assert_close(result, getattr(expected, part), **ROUNDING)
    assert expected.abs().max() > 1e-3


@pytest.mark.smoke
@every_operator
def test_symbols_of_many_frequencies(operator, shape):
    dim, components = shape
    w = random(2, 5, dim)
    symbol = operator.symbol(w, components)
    assert symbol.shape[:2] == (2, 5) and symbol.shape[-1] == components and symbol.dtype == torch.complex128
    one_by_one = torch.stack([operator.symbol(row, components) for row in w.reshape(-1, dim)])
    torch.testing.assert_close(symbol.reshape(one_by_one.shape), one_by_one, **ROUNDING)
    # real fields stay real
    torch.testing.assert_close(operator.symbol(-w, components), symbol.conj(), **ROUNDING)
    assert operator.symbol(w.float(), components).dtype == torch.complex64


@every_differential
def test_matrices_agree_with_symbols(operator, shape):
    dim, components = shape
    w, rows = frequencies(dim), operator.matrix(dim, components)
    assert all(len(row) == components for row in rows)
    assert all(len(alpha) == dim for row in rows for entry in row for alpha in entry)
    symbol = operator.symbol(w, components)
    assert symbol.shape == (3, len(rows), components)
    for s, row in enumerate(rows):
        for t, entry in enumerate(row):
            torch.testing.assert_close(evaluate(entry, w), symbol[:, s, t], **ROUNDING)


def test_polynomials():
    p, q = {(1, 0): 2.0, (0, 2): -1.0}, {(1, 0): -2.0, (0, 0): 3.0}
    w = frequencies(2)
    assert add(p, q) == {(0, 2): -1.0, (0, 0): 3.0}
    torch.testing.assert_close(evaluate(add(p, q, 0.5), w), evaluate(p, w) + 0.5 * evaluate(q, w), **ROUNDING)
    torch.testing.assert_close(evaluate(multiply(p, q), w), evaluate(p, w) * evaluate(q, w), **ROUNDING)
    torch.testing.assert_close(evaluate(adjoint(p), w), evaluate(p, w).conj(), **ROUNDING)
    assert (degree(p), degree({}), degree({(0, 0): 1.0})) == (2, 0, 0)
    left, right = Gradient().matrix(2, 2), Divergence().matrix(2, 2)
    product = matrix_product(right, [row for row in Value().matrix(2, 2)])
    assert product == right
    outer = matrix_product(left, adjoint_matrix(left))
    symbol = Gradient().symbol(w, 2)
    values = torch.stack([torch.stack([evaluate(entry, w) for entry in row], -1) for row in outer], -2)
    torch.testing.assert_close(values, symbol @ symbol.mH, **ROUNDING)


def test_algebra_of_symbols():
    w = frequencies(2)
    left, right = Gradient(), RotatedGradient()
    symbols = left.symbol(w, 1), right.symbol(w, 1)
    for operator, expected in [
        (left + right, symbols[0] + symbols[1]),
        (left - right, symbols[0] - symbols[1]),
        (2.5 * left, 2.5 * symbols[0]),
        (left * -2, -2.0 * symbols[0]),
        (-left, -symbols[0]),
        (Stacked(left, right), torch.cat(symbols, -2)),
        (Vorticity() @ left, Vorticity().symbol(w, 2) @ symbols[0]),
        (CurlFreePart() + 0.5 * DivergenceFreePart(), None),
    ]:
        components = 2 if expected is None else 1
        if expected is None:
            expected = CurlFreePart().symbol(w, 2) + 0.5 * DivergenceFreePart().symbol(w, 2)
        torch.testing.assert_close(operator.symbol(w, components), expected, **ROUNDING)


def same(left, right, dim, components):
    w = frequencies(dim)
    torch.testing.assert_close(left.symbol(w, components), right.symbol(w, components), **ROUNDING)


ZERO = [
    (Divergence() @ RotatedGradient(), 2, 1),
    (Vorticity() @ Gradient(), 2, 1),
    (Curl() @ Gradient(), 3, 1),
    (Divergence() @ Curl(), 3, 3),
    (Divergence() @ DivergenceFreePart(), 2, 2),
    (Divergence() @ DivergenceFreePart(), 4, 4),
    (Vorticity() @ CurlFreePart(), 2, 2),
    (Curl() @ CurlFreePart(), 3, 3),
    (Potential() @ DivergenceFreePart(), 3, 3),
    (Streamfunction() @ CurlFreePart(), 2, 2),
    (Streamfunction() @ Gradient(), 2, 1),
    (Potential() @ RotatedGradient(), 2, 1),
    (CurlFreePart() @ DivergenceFreePart(), 3, 3),
]


@pytest.mark.parametrize(("operator", "dim", "components"), ZERO, ids=[str(case[0]) for case in ZERO])
def test_what_vanishes(operator, dim, components):
    symbol = operator.symbol(frequencies(dim), components)
    torch.testing.assert_close(symbol, torch.zeros_like(symbol), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(("operator", "dim", "components"), ZERO[:4], ids=[str(case[0]) for case in ZERO[:4]])
def test_polynomials_that_vanish_have_no_terms(operator, dim, components):
    assert all(entry == {} for row in operator.matrix(dim, components) for entry in row)


EQUAL = [
    (Divergence() @ Gradient(), Laplacian(), 3, 1),
    (Vorticity() @ RotatedGradient(), -Laplacian(), 2, 1),
    (CurlFreePart() + DivergenceFreePart(), Value(), 2, 2),
    (CurlFreePart() + DivergenceFreePart(), Value(), 4, 4),
    (CurlFreePart() @ CurlFreePart(), CurlFreePart(), 3, 3),
    (DivergenceFreePart() @ DivergenceFreePart(), DivergenceFreePart(), 3, 3),
    (Gradient() @ Potential(), CurlFreePart(), 3, 3),
    (RotatedGradient() @ Streamfunction(), DivergenceFreePart(), 2, 2),
    (Potential() @ Gradient(), Value(), 3, 1),
    (Streamfunction() @ RotatedGradient(), Value(), 2, 1),
    (Gradient() @ Potential() + RotatedGradient() @ Streamfunction(), Value(), 2, 2),
    (Gradient() @ Divergence() - Curl() @ Curl(), Laplacian(), 3, 3),
    (Laplacian() @ Potential(), Divergence(), 3, 3),
    (Laplacian() @ Streamfunction(), -Vorticity(), 2, 2),
    (Partial(0) @ Partial(1, 1), Partial(1, 0, 1), 2, 2),
    (Stacked(Partial(0), Partial(1)), Gradient(), 2, 1),
    (Stacked(Component(0), Component(1)), Value(), 3, 2),
    (Partial(), Value(), 2, 3),
    (functools.reduce(lambda a, b: a + b, [Partial(k, k) for k in range(3)]), Laplacian(), 3, 2),
]


@pytest.mark.parametrize(
    ("left", "right", "dim", "components"), EQUAL, ids=[f"{left} = {right}" for left, right, _, _ in EQUAL]
)
def test_identities(left, right, dim, components):
    same(left, right, dim, components)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_gradient_of_the_potential_of_a_gradient_is_the_field(dim):
    w = frequencies(dim)
    field = 1j * w.unsqueeze(-1) * random(3, 1, 1, seed=5)
    result = (Gradient() @ Potential()).symbol(w, dim) @ field
    torch.testing.assert_close(result, field, **ROUNDING)


def test_gradient_orders_derivatives_by_component():
    matrix = Gradient().matrix(2, 2)
    assert matrix == [[{(1, 0): 1.0}, {}], [{(0, 1): 1.0}, {}], [{}, {(1, 0): 1.0}], [{}, {(0, 1): 1.0}]]


ERRORS = [
    (Component(2), (3, 2), "expected a component below 2, got 2"),
    (Partial(2), (2, 1), r"expected coordinates below 2, got \(2,\)"),
    (Divergence(), (2, 3), r"expected a vector field on R\^2 for the divergence, got 3 components of 2 coordinates"),
    (Vorticity(), (3, 3), r"expected a vector field on R\^2 for the vorticity"),
    (Curl(), (2, 2), r"expected a vector field on R\^3 for the curl"),
    (RotatedGradient(), (3, 1), r"expected a function on R\^2, got 1 components of 3"),
    (RotatedGradient(), (2, 2), r"expected a function on R\^2, got 2 components of 2"),
    (Potential(), (3, 1), r"expected a vector field on R\^3 for the potential"),
    (Streamfunction(), (3, 3), r"expected a vector field on R\^2 for the streamfunction"),
    (CurlFreePart(), (2, 1), "for the curl-free part"),
    (DivergenceFreePart(), (2, 1), "for the divergence-free part"),
    (Value() + Gradient(), (2, 1), r"expected operators with equally many components .* Value\(\) with 1 and Gradient"),
    (Gradient() @ Gradient() - Gradient(), (2, 1), "expected operators with equally many components"),
    (Divergence() @ Divergence(), (2, 2), "expected a vector field on R"),
]


@pytest.mark.parametrize(("operator", "shape", "message"), ERRORS, ids=[str(case[0]) for case in ERRORS])
def test_operators_that_are_not_defined_raise(operator, shape, message):
    with pytest.raises(ValueError, match=message):
        operator.symbol(frequencies(shape[0]), shape[1])
    if is_differential(operator):
        with pytest.raises(ValueError, match=message):
            operator.matrix(*shape)


NOT_DIFFERENTIAL = [Potential(), Streamfunction(), CurlFreePart(), DivergenceFreePart()]
NOT_DIFFERENTIAL += [2.0 * Potential(), Gradient() @ Potential(), Stacked(Value(), CurlFreePart())]


@pytest.mark.parametrize("operator", NOT_DIFFERENTIAL, ids=str)
def test_operators_that_are_not_differential_have_no_matrix(operator):
    assert not isinstance(operator, DifferentialOperator)
    with pytest.raises(ValueError, match=r"expected a differential operator, got .*predict it from a model with feat"):
        operator.matrix(2, 2)


def test_components_do_not_mix_in_scalar_operators():
    for operator in (Value(), Partial(0, 1), Laplacian()):
        symbol = operator.symbol(frequencies(2), 3)
        diagonal = torch.diag_embed(symbol.diagonal(dim1=-2, dim2=-1))
        assert torch.equal(symbol, diagonal)


def test_operators_print_as_they_are_written():
    assert repr(Partial(0, 1)) == "Partial(0, 1)"
    assert repr(Stacked(Value(), Gradient())) == "Stacked(Value(), Gradient())"
    assert repr(Component(1)) == "Component(index=1)"


def test_symbols_are_differentiable_in_the_frequencies():
    w = frequencies(2, 1).requires_grad_()
    for operator in (Laplacian(), Potential(), CurlFreePart(), Streamfunction()):
        assert torch.autograd.gradcheck(lambda w, operator=operator: torch.view_as_real(operator.symbol(w, 2)), (w,))
