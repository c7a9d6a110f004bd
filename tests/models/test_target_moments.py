"""Units of targets: their spread, and what stands for it where there is none."""

import pytest
import torch
from gpytorch.means import ConstantMean, ZeroMean

from rfgp.models.target_moments import target_moments

X = torch.linspace(-1, 1, 20, dtype=torch.float64).unsqueeze(-1)


def test_units_of_targets():
    """The spread, or else the rounding of the values, or that of others; and the level, where none is learned."""
    columns = torch.stack([torch.ones(4), torch.tensor([1.0, -1.0, 1.0, -1.0]), torch.zeros(4)], -1).double()
    known = target_moments(columns, ZeroMean(), X[:4])
    rounding = (1e3 * torch.finfo(torch.float64).eps) ** 2
    assert known.variances.tolist() == pytest.approx([rounding, 1.0, 0.5])
    assert known.function_variances.tolist() == pytest.approx([1.0, 1.0, 0.5])
    learned = target_moments(columns[:, :1], ConstantMean(), X[:4])
    assert float(learned.function_variances) == float(learned.least_noise) == pytest.approx(rounding)
    assert float(target_moments(columns[:, 2:], None, X[:4]).variances) == 1.0
    assert float(target_moments(1j * columns[:, :1], ZeroMean(), X[:4]).function_variances) == pytest.approx(1.0)
    frozen = ConstantMean().requires_grad_(False)
    assert float(target_moments(columns[:, :1], frozen, X[:4]).function_variances) == pytest.approx(1.0)


def test_small_spreads_around_a_large_level_stay():
    y = 1e3 + 1e-4 * torch.tensor([[1.0], [-1.0], [1.0], [-1.0]], dtype=torch.float64)
    assert float(target_moments(y, None, X[:4]).variances) == pytest.approx(1e-8, rel=1e-4)
