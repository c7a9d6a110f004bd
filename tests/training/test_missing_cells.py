"""Covariances of outputs of which cells are missing."""

from __future__ import annotations

import math

import torch

from rfgp.training.missing_cells import covariance_of_pairs, pairwise_covariance


def test_covariances_are_those_of_rows_that_have_both():
    rows = torch.tensor([[1.0, 2.0], [-1.0, math.nan], [3.0, -1.0]], dtype=torch.float64)
    wanted = torch.tensor([[11.0 / 3.0, -0.5], [-0.5, 2.5]], dtype=torch.float64)
    torch.testing.assert_close(pairwise_covariance(rows), wanted)


def test_covariances_of_pairs_are_means_over_the_rows_that_have_both():
    nan = torch.nan
    residual = torch.tensor([[1.0, nan, 3.0], [nan, 2.0, nan], [4.0, nan, nan], [5.0, 6.0, nan]], dtype=torch.float64)
    wanted = [[42.0 / 3.0, 30.0, 3.0], [30.0, 20.0, 0.0], [3.0, 0.0, 9.0]]
    torch.testing.assert_close(covariance_of_pairs(residual), torch.tensor(wanted, dtype=torch.float64))
