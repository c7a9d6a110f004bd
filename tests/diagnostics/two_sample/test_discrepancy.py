"""Discrepancies of two samples against sums over all pairs, and their variance against many samples."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PolynomialKernel, RBFKernel, ScaleKernel
from linear_operator import to_linear_operator

import rfgp
from rfgp.diagnostics.two_sample import block_mmd, kernel_inception_distance, mmd, permutation_test, sums


def samples(n=40, m=30, shift=0.3, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(size, 3, generator=generator, dtype=dtype) for size in (n, m))
    return x, y + shift


def approximated(method="fourier", num_features=16):
    kernel = ScaleKernel(RBFKernel().double()).double()
    kernel.outputscale = 2.5
    return rfgp.approximate(kernel, num_features, input_dim=3, method=method, seed=0)


KERNELS = {
    "exact": ScaleKernel(MaternKernel(nu=1.5)).double(),
    "real": approximated("fourier:real"),
    "complex": approximated("fourier:complex"),
    "ctr": rfgp.approximate(PolynomialKernel(power=3).double(), 16, input_dim=3, method="tensor_srht:ctr", seed=0),
}


def by_hand(x, y, kernel):
    xx, yy, xy = (kernel(a, b).to_dense() for a, b in ((x, x), (y, y), (x, y)))
    n, m = len(x), len(y)
    within = (xx.sum() - xx.trace()) / (n * (n - 1)) + (yy.sum() - yy.trace()) / (m * (m - 1))
    return (within - 2.0 * xy.mean()).item()


@pytest.mark.parametrize("name", KERNELS)
def test_equals_the_sum_over_pairs(name, monkeypatch):
    monkeypatch.setattr(sums, "_TILE", 16)
    x, y = samples()
    found = mmd(x, y, KERNELS[name])
    assert found.squared == pytest.approx(by_hand(x, y, KERNELS[name]), rel=1e-11)
    assert found.null_standard_error > 0.0


def trace_of_square(gram):
    """tr C^2 without bias, as the mean over all rows i, j, k, m that differ."""
    products = [
        gram[i, j] * (gram[i, j] - 2.0 * gram[i, k] + gram[k, m])
        for i, j, k, m in itertools.permutations(range(len(gram)), 4)
    ]
    return torch.stack(products).mean()


def test_the_standard_error_of_few_rows_is_that_of_its_formula():
    x, y = samples(9, 8)
    n, m, kernel = len(x), len(y), KERNELS["exact"]
    xx, yy, xy = (kernel(a, b).to_dense().detach() for a, b in ((x, x), (y, y), (x, y)))
    centered = xy - xy.mean(0) - xy.mean(1, keepdim=True) + xy.mean()
    cross = centered.square().sum() / ((n - 1) * (m - 1))
    squares = 2.0 * trace_of_square(xx) / (n * (n - 1)) + 2.0 * trace_of_square(yy) / (m * (m - 1))
    variance = float(squares + 4.0 * cross / (n * m))
    assert mmd(x, y, kernel).null_standard_error == pytest.approx(math.sqrt(max(variance, 0.0)), rel=1e-10)
    assert variance > 0.0


@pytest.mark.parametrize("kept_bytes", [0, 2**20])
def test_features_and_their_kernel_values_agree(kept_bytes, monkeypatch):
    monkeypatch.setattr(sums, "_KEPT_BYTES", kept_bytes)
    x, y = samples(600, 500)
    chosen = torch.tensor([5, 0, 77, 599]), torch.tensor([3, 499, 2])
    linear, dense = (made(KERNELS["ctr"], x, y, chosen) for made in (sums.FeaturePairSums, sums.DenseSums))
    assert (linear.features_x is None) == (kept_bytes == 0)
    torch.testing.assert_close(linear.totals(), dense.totals(), rtol=1e-12, atol=0)
    parts = torch.tensor([3, 0]), torch.tensor([1])
    for a, b in zip(linear.block(*parts), dense.block(*parts), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=0)


@pytest.mark.parametrize("name, shift", [("real", 0.0), ("real", 0.5), ("exact", 0.3)])
def test_no_bias_and_the_variance(name, shift):
    """The mean over samples is that of the distributions; the estimated variances have the mean of the squares.

    Where both distributions are the same, these are the variances without the terms which are zero then.
    """
    kernel, count = KERNELS[name], 150
    found = [mmd(*samples(40, 60, shift, seed), kernel) for seed in range(count)]
    values = torch.tensor([f.squared for f in found])
    truth = mmd(*samples(3000, 3000, shift, 10**6), kernel)
    apart = abs(float(values.mean()) - truth.squared)
    assert apart < 4.0 * math.hypot(float(values.std()) / math.sqrt(count), truth.standard_error)
    squares = (values - values.mean()).square()
    variances = torch.tensor([(f.standard_error if shift else f.null_standard_error) ** 2 for f in found])
    error = math.hypot(float(squares.std()), float(variances.std())) / math.sqrt(count)
    assert abs(float(squares.mean()) - float(variances.mean())) < 4.0 * error


def test_standard_errors_do_not_depend_on_the_origin_of_the_embeddings():
    x, y = samples()
    here, there = (mmd(x + origin, y + origin, LinearKernel().double()) for origin in (0.0, 1000.0))
    assert there.standard_error == pytest.approx(here.standard_error, rel=1e-6)


def test_standard_errors_of_equal_distributions_are_not_zero():
    found = [mmd(*samples(20, 20, 0.0, seed), KERNELS["exact"]) for seed in range(20)]
    assert all(f.standard_error >= f.null_standard_error > 0.0 for f in found)


def test_no_bias_over_draws_of_features():
    x, y = samples()
    exact = mmd(x, y, KERNELS["exact"].base_kernel).squared
    draws = [
        mmd(x, y, rfgp.approximate(MaternKernel(nu=1.5).double(), 32, input_dim=3, method="fourier", seed=s)).squared
        for s in range(60)
    ]
    draws = torch.tensor(draws)
    assert abs(float(draws.mean()) - exact) < 4.0 * float(draws.std()) / math.sqrt(60)


def test_blocks():
    x, y = samples(400, 300)
    kernel = KERNELS["exact"]
    whole, blocks = mmd(x, y, kernel), block_mmd(x, y, kernel, block_size=50, num_blocks=60)
    assert abs(blocks.squared - whole.squared) < 4.0 * blocks.standard_error
    assert block_mmd(x, y, kernel, block_size=300, num_blocks=2).null_standard_error > 0
    assert blocks.squared == block_mmd(x, y, kernel, block_size=50, num_blocks=60).squared


@pytest.mark.parametrize("degree", [3, 6])
def test_inception_distance(degree):
    x, y = samples(50, 40)
    exact = kernel_inception_distance(x, y, degree=degree)
    assert exact.squared == pytest.approx(
        by_hand(x, y, lambda a, b: to_linear_operator((a @ b.mT / 3.0 + 1.0) ** degree)), rel=1e-10
    )
    fast = torch.tensor(
        [kernel_inception_distance(x, y, degree=degree, num_features=128, seed=s).squared for s in range(60)]
    )
    assert abs(float(fast.mean()) - exact.squared) < 4.0 * float(fast.std()) / math.sqrt(60)


@pytest.mark.parametrize("name", KERNELS)
def test_permutations_equal_discrepancies_of_dealt_rows(name):
    x, y = samples(20, 30)
    kernel, rows = KERNELS[name], torch.cat(samples(20, 30))
    found = permutation_test(x, y, kernel, num_permutations=5, seed=3)
    generator, first = torch.Generator().manual_seed(3), torch.arange(50) < 20
    for value in found.permuted.tolist():
        dealt = first[torch.randperm(50, generator=generator)]
        assert value == pytest.approx(by_hand(rows[dealt], rows[~dealt], kernel), rel=1e-9, abs=1e-12)
    assert found.squared == pytest.approx(by_hand(x, y, kernel), rel=1e-10)


def test_level_and_power_of_permutations():
    kernel = KERNELS["real"]
    p_values = [permutation_test(*samples(30, 30, 0.0, s), kernel, num_permutations=19).p_value for s in range(150)]
    share = sum(p <= 0.1 for p in p_values) / 150
    assert abs(share - 0.1) < 4.0 * math.sqrt(0.09 / 150)
    assert permutation_test(*samples(60, 60, 1.0), kernel, num_permutations=19).p_value == 0.05


def test_equal_samples_in_single_precision():
    x, y = samples(500, 500, 0.0, dtype=torch.float32)
    for kernel in (RBFKernel(), rfgp.approximate(RBFKernel(), 64, input_dim=3)):
        assert abs(mmd(x, y, kernel).z) < 4.0
        assert mmd(x, x, kernel).squared < 0.0
        assert permutation_test(x, y, kernel, num_permutations=9).p_value > 0.1


def test_rows_in_large_units_and_single_precision():
    x, y = samples(60, 60, 1.0, dtype=torch.float32)
    features = {"num_features": 64, "method": "rademacher:real", "seed": 0}
    small, large = (kernel_inception_distance(u * x, u * y, offset=u**2, **features) for u in (1.0, 1e9))
    assert large.squared == pytest.approx(1e54 * small.squared, rel=1e-4)
    for found in (kernel_inception_distance, lambda *rows: permutation_test(*rows, PolynomialKernel(power=3))):
        with pytest.raises(ValueError, match="they overflow; rescale"):
            found(1e15 * x, 1e15 * y)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"x": torch.zeros(3, 3)}, "N >= 8"),
        ({"y": torch.zeros(9, 2)}, "same columns"),
        ({"y": torch.zeros(9, 3).double()}, "same columns and dtype"),
        ({"x": torch.full((9, 3), math.nan)}, "finite"),
        ({"kernel": "rbf"}, "GPyTorch kernel"),
        ({"kernel": RBFKernel(batch_shape=torch.Size([2]))}, "without batches"),
    ],
)
def test_bad_samples(change, message):
    arguments = {"x": torch.zeros(9, 3), "y": torch.ones(9, 3), "kernel": RBFKernel(), **change}
    with pytest.raises(ValueError, match=message):
        mmd(**arguments)


def test_bad_numbers():
    x, y = samples(dtype=torch.float32)
    for arguments in ({"block_size": 31}, {"block_size": 1}, {"num_blocks": 1}, {"seed": -1}):
        with pytest.raises(ValueError, match="expected"):
            block_mmd(x, y, RBFKernel(), **{"block_size": 5, "num_blocks": 3, **arguments})
    with pytest.raises(ValueError, match="num_permutations"):
        permutation_test(x, y, RBFKernel(), num_permutations=0)
    for arguments in ({"degree": 0}, {"offset": 0.0}, {"num_features": 0}, {"method": "none"}):
        with pytest.raises(ValueError, match="expected"):
            kernel_inception_distance(x, y, **{"num_features": 8, **arguments})
