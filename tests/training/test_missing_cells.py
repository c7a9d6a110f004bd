"""Cells that are missing are replaced by their means given the other cells of the row."""

from __future__ import annotations

import math

import torch

from rfgp.training.missing_cells import complete, pairwise_covariance

COUNT = 5


def test_cells_are_means_given_the_others_of_the_row():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(COUNT, COUNT, generator=generator, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(root @ root.mT)
    covariance = vectors[:, 1:] * values[1:] @ vectors[:, 1:].mT + values[0] * torch.eye(COUNT, dtype=torch.float64)
    residual = torch.randn(8, COUNT, generator=generator, dtype=torch.float64)
    is_missing = torch.rand(8, COUNT, generator=generator) < 0.4
    is_missing[0] = False
    wanted = residual.clone()
    for row, missing in zip(wanted, is_missing, strict=True):
        known = ~missing
        row[missing] = covariance[missing][:, known] @ torch.linalg.solve(covariance[known][:, known], row[known])
    found = residual.masked_fill(is_missing, math.nan)
    complete(found, root @ root.mT)
    torch.testing.assert_close(found, wanted)


def test_covariances_are_those_of_rows_that_have_both():
    rows = torch.tensor([[1.0, 2.0], [-1.0, math.nan], [3.0, -1.0]], dtype=torch.float64)
    wanted = torch.tensor([[11.0 / 3.0, -0.5], [-0.5, 2.5]], dtype=torch.float64)
    torch.testing.assert_close(pairwise_covariance(rows), wanted)
