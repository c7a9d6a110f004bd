"""Fields with one measure, and the factors of their spectra."""

import pytest
import torch
from gpytorch.kernels import RBFKernel

import rfgp
from rfgp.approximation.spectral_factor import SpectralFactor
from rfgp.kernels import CurlFreeKernel, DivergenceFreeKernel


def test_fields_that_share_a_measure_are_all_asked_for_their_covariance():
    scalar = RBFKernel()
    with pytest.raises(ValueError, match="at least two columns for a divergence-free field"):
        rfgp.approximate(CurlFreeKernel(scalar) + DivergenceFreeKernel(scalar), 8, input_dim=1, seed=0)


def test_what_frequencies_leave_over_has_variances_above_zero_and_no_correlation_beyond_one():
    """Of the frequency zero, and of one that stands for its opposite too."""
    values = torch.tensor([[[1.0], [1.0]], [[0.5], [-0.5]]], dtype=torch.float64)
    explained = 1.0 + 2.0 * 0.25
    left = torch.tensor([[0.25, 0.9], [0.9, 0.04]], dtype=torch.float64)
    total = torch.tensor([[explained, 0.5], [0.5, explained]], dtype=torch.float64) + left
    wanted = torch.tensor([[0.25, 0.1], [0.1, 0.04]], dtype=torch.float64)
    torch.testing.assert_close(SpectralFactor(values, total).cut_off, wanted)
    signs = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(SpectralFactor(values, total - left + signs * left).cut_off, signs * wanted)
    assert bool((SpectralFactor(values, total - torch.eye(2)).cut_off.diagonal() > 0.0).all())
