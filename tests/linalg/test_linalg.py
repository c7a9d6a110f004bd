"""The fast Walsh-Hadamard transform, Gram matrices and Cholesky factors against dense algebra."""

from __future__ import annotations

import pytest
import scipy.linalg
import torch

from rfgp import linalg

ORDERS = [2**k for k in range(13)]


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("order", ORDERS)
def test_fwht_equals_dense_hadamard(order, dtype):
    x = randn(3, order, dtype=dtype)
    expected = x.double() @ torch.tensor(scipy.linalg.hadamard(order), dtype=torch.float64)
    result = linalg.fwht(x)
    assert result.dtype == dtype
    tolerance = 8.0 * torch.finfo(dtype).eps * order
    torch.testing.assert_close(result.double(), expected, rtol=0.0, atol=tolerance)


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("order", [1, 2, 16, 32, 64, 128])
def test_fwht_along_any_dimension(dim, order):
    shape = [3, 5, 2]
    shape[dim] = order
    x = randn(*shape)
    dense = torch.tensor(scipy.linalg.hadamard(order), dtype=torch.float64)
    expected = torch.movedim(torch.movedim(x, dim, -1) @ dense, -1, dim)
    torch.testing.assert_close(linalg.fwht(x, dim=dim), expected, rtol=0.0, atol=1e-12)
    strided = torch.movedim(torch.movedim(x, dim, 0).contiguous(), 0, dim)
    torch.testing.assert_close(linalg.fwht(strided, dim=dim), expected, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("order", [1, 4, 64, 2048])
def test_fwht_is_its_own_inverse(order):
    x = randn(2, order)
    before = x.clone()
    torch.testing.assert_close(linalg.fwht(linalg.fwht(x)) / order, x, rtol=0.0, atol=1e-12)
    assert torch.equal(x, before)


@pytest.mark.parametrize("dim", [-1, 0])
@pytest.mark.parametrize("order", [2, 64])
def test_fwht_gradients(order, dim):
    x = randn(*((2, order) if dim == -1 else (order, 2))).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: linalg.fwht(z, dim=dim), (x,))
    assert torch.autograd.gradgradcheck(lambda z: linalg.fwht(z, dim=dim) ** 2, (x,))


@pytest.mark.parametrize("order", [0, 3, 6, 12, 100])
def test_orders_that_are_not_powers_of_two_raise(order):
    with pytest.raises(ValueError, match="expected a power of two"):
        linalg.fwht(torch.ones(2, order))
    with pytest.raises(ValueError, match="expected a power of two"):
        linalg.hadamard(order)


@pytest.mark.parametrize("order", [1, 2, 8, 256])
def test_hadamard_equals_scipy(order):
    assert torch.equal(linalg.hadamard(order, torch.float64), torch.tensor(scipy.linalg.hadamard(order)).double())
    assert linalg.hadamard(order).dtype == torch.get_default_dtype()


def test_hadamard_can_be_written_to():
    linalg.hadamard(4).zero_()
    assert linalg.hadamard(4).abs().min() == 1.0


@pytest.mark.parametrize(("n", "expected"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (1023, 1024), (1025, 2048)])
def test_next_power_of_two(n, expected):
    assert linalg.next_power_of_two(n) == expected


def test_accurate_dtype():
    assert linalg.accurate_dtype(torch.float32) == torch.float64
    assert linalg.accurate_dtype(torch.complex64) == torch.complex128


def matrices(num_rows, width, columns, feature_dtype, target_dtype, has_weights):
    features = randn(num_rows, width, dtype=feature_dtype)
    targets = randn(num_rows, columns, seed=1, dtype=target_dtype)
    weights = randn(num_rows, seed=2).abs().add(0.1) if has_weights else None
    return features, targets, weights


def dense_gram(features, targets, weights):
    exact = linalg.accurate_dtype(features.dtype)
    cross_dtype = torch.promote_types(exact, linalg.accurate_dtype(targets.dtype))
    f = features.to(exact)
    weighted = f if weights is None else f * weights.double().unsqueeze(-1)
    return f.mH @ weighted, weighted.mH.to(cross_dtype) @ targets.to(cross_dtype)


DTYPES = [(f, t) for f in (torch.float64, torch.complex128) for t in (torch.float64, torch.complex128)]


@pytest.mark.parametrize("has_weights", [False, True])
@pytest.mark.parametrize(("feature_dtype", "target_dtype"), [*DTYPES, (torch.float32, torch.float32)])
@pytest.mark.parametrize(("num_rows", "width"), [(7, 3), (2 * 8192 + 11, 5), (20, 1100), (1, 1)])
def test_gram_equals_dense(num_rows, width, feature_dtype, target_dtype, has_weights):
    features, targets, weights = matrices(num_rows, width, 2, feature_dtype, target_dtype, has_weights)
    product, cross = linalg.gram(features, targets, weights)
    expected, expected_cross = dense_gram(features, targets, weights)
    assert product.dtype == expected.dtype and cross.dtype == expected_cross.dtype
    torch.testing.assert_close(product, expected, rtol=1e-12, atol=1e-11)
    torch.testing.assert_close(cross, expected_cross, rtol=1e-12, atol=1e-11)
    assert torch.equal(product.triu(1), product.tril(-1).mH)


@pytest.mark.parametrize("feature_dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("has_weights", [False, True])
def test_gram_with_float32_products(feature_dtype, has_weights):
    num_rows = 8192 + 100
    features, targets, weights = matrices(num_rows, 4, 2, feature_dtype, torch.float32, has_weights)
    product, cross = linalg.gram(features, targets, weights, torch.float32)
    expected, expected_cross = dense_gram(features, targets, weights)
    assert product.dtype == expected.dtype and cross.dtype == expected_cross.dtype
    scale = float(expected.diagonal().real.max() if expected.is_complex() else expected.diagonal().max())
    rounding = 64.0 * torch.finfo(torch.float32).eps * scale
    torch.testing.assert_close(product, expected, rtol=0.0, atol=rounding)
    torch.testing.assert_close(cross, expected_cross, rtol=0.0, atol=rounding)
    assert (product - expected).abs().max() > 1e-14 * scale


@pytest.mark.parametrize("has_weights", [False, True])
@pytest.mark.parametrize(("feature_dtype", "target_dtype"), DTYPES)
@pytest.mark.parametrize(("num_rows", "width"), [(6, 4), (8192 + 50, 3), (5, 600)])
def test_gram_gradients_equal_those_of_dense_algebra(num_rows, width, feature_dtype, target_dtype, has_weights):
    leaves = [t for t in matrices(num_rows, width, 2, feature_dtype, target_dtype, has_weights) if t is not None]
    gradients = []
    for function in (linalg.gram, dense_gram):
        inputs = [leaf.clone().requires_grad_() for leaf in leaves]
        product, cross = function(*(inputs if has_weights else [*inputs, None]))
        left, right = randn(*product.shape, seed=3, dtype=product.dtype), randn(*cross.shape, seed=4, dtype=cross.dtype)
        loss = (left * product).sum() + (right * cross * cross.conj()).sum()
        gradients.append(torch.autograd.grad(loss.real if loss.is_complex() else loss, inputs))
    for leaf, actual, expected in zip(leaves, *gradients, strict=True):
        assert actual.dtype == leaf.dtype
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-9)


def in_groups(kind, weights):
    """Weights and groups of rows, the number of groups, and the weight of every row in every group; one has no rows."""
    groups = torch.arange(len(weights)) % 3
    in_every = torch.where(torch.arange(3 * len(weights)).reshape(-1, 3) % 4 == 0, 0.0, 0.5).requires_grad_()
    one_hot = torch.nn.functional.one_hot(groups, 4).double()
    return {
        "one": (None, None, 1, torch.ones(len(weights), 1)),
        "weights": (weights, None, 1, weights.unsqueeze(-1)),
        "groups": (None, groups, 4, one_hot),
        "weights and groups": (weights, groups, 4, weights.unsqueeze(-1) * one_hot),
        "weights in every group": (in_every, None, 3, in_every),
    }[kind]


@pytest.mark.parametrize("kind", ["one", "weights", "groups", "weights and groups", "weights in every group"])
@pytest.mark.parametrize(("feature_dtype", "target_dtype"), DTYPES)
def test_products_by_group_and_their_gradients_are_those_of_dense_algebra(feature_dtype, target_dtype, kind):
    features, columns, weights = (t.requires_grad_() for t in matrices(17, 4, 2, feature_dtype, target_dtype, True))
    weights, groups, num_groups, in_group = in_groups(kind, weights)
    leaves = [t for t in (features, columns, weights) if t is not None]
    mixed = torch.promote_types(feature_dtype, target_dtype)
    expected = (
        torch.einsum("ng,nd,ne->gde", in_group.to(feature_dtype), features.conj(), features),
        torch.einsum("ng,nd,nk->gdk", in_group.to(mixed), features.conj().to(mixed), columns.to(mixed)),
        torch.einsum("ng,nk,nl->gkl", in_group.to(target_dtype), columns.conj(), columns),
    )
    arguments = features, columns, weights, groups, num_groups
    for one, other in zip(linalg.products_by_group(*arguments), expected, strict=True):
        torch.testing.assert_close(one, other)
    slopes = [randn(*value.shape, seed=i, dtype=value.dtype) for i, value in enumerate(expected)]
    wanted = torch.autograd.grad(expected, leaves, slopes, allow_unused=True)
    found = torch.autograd.grad([*linalg.products_by_group(*arguments, has_values=False)], leaves, slopes)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("feature_dtype", "target_dtype"), DTYPES)
def test_gram_gradcheck(feature_dtype, target_dtype):
    features, targets, weights = matrices(4, 3, 2, feature_dtype, target_dtype, True)
    inputs = [t.requires_grad_() for t in (features, targets, weights)]
    assert torch.autograd.gradcheck(linalg.gram, inputs)


def test_gram_gradients_keep_the_dtype_of_single_precision_inputs():
    features, targets = randn(5, 3, dtype=torch.float32).requires_grad_(), randn(5, 1, dtype=torch.float32)
    product, cross = linalg.gram(features, targets)
    (product.sum() + cross.sum()).backward()
    expected = 2.0 * features.detach().sum(-1, keepdim=True) + targets
    assert features.grad.dtype == torch.float32
    torch.testing.assert_close(features.grad, expected.expand(5, 3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_additions_then_one_mirror(dtype):
    first, second = randn(9, 600, dtype=dtype), randn(4, 600, seed=1, dtype=dtype)
    product, cross = torch.zeros(600, 600, dtype=dtype), torch.zeros(600, 1, dtype=dtype)
    for part in (first, second):
        linalg.add_gram_(product, cross, part, part[:, :1])
    both = torch.cat([first, second])
    torch.testing.assert_close(linalg.mirror_(product), both.mH @ both, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(cross, both.mH @ both[:, :1], rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_cholesky_and_log_determinant(dtype):
    root = randn(2, 4, 4, dtype=dtype)
    matrix = root @ root.mH + torch.eye(4, dtype=dtype)
    factor = linalg.cholesky(matrix)
    torch.testing.assert_close(factor @ factor.mH, matrix)
    assert torch.equal(factor, factor.tril())
    log_determinant = linalg.log_determinant(factor)
    assert log_determinant.shape == (2,) and not log_determinant.is_complex()
    torch.testing.assert_close(log_determinant, torch.linalg.slogdet(matrix).logabsdet)


def test_log_determinant_gradient_is_the_inverse():
    root = randn(4, 4)
    matrix = (root @ root.mT + torch.eye(4, dtype=torch.float64)).requires_grad_()
    (gradient,) = torch.autograd.grad(linalg.log_determinant(linalg.cholesky(matrix)), matrix)
    torch.testing.assert_close(gradient, torch.linalg.inv(matrix.detach()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("kind", ["indefinite", "singular", "nan", "infinite", "one of a batch"])
def test_cholesky_of_anything_else_raises(kind, dtype):
    matrix = torch.eye(3, dtype=dtype)
    if kind == "one of a batch":
        matrix = torch.stack([matrix, -matrix])
    else:
        matrix[1, 1] = {"indefinite": -1.0, "singular": 0.0, "nan": float("nan"), "infinite": float("inf")}[kind]
    with pytest.raises(ValueError, match="expected a positive definite matrix"):
        linalg.cholesky(matrix)
