"""Checks of draws against the moments of the distribution that they come from."""

import torch


def check_moments(draws, mean, covariance):
    """Mean, covariance and (for complex draws) vanishing pseudo-covariance within five standard errors.

    :param draws: (S, ..., M).
    :param mean: (..., M).
    :param covariance: (..., M, M).
    """
    scales = covariance.diagonal(dim1=-2, dim2=-1).real
    products = scales[..., :, None] * scales[..., None, :]
    centered = draws - mean
    assert ((draws.mean(0) - mean).abs() <= 5.0 * (scales / len(draws)).sqrt()).all()
    sample = torch.einsum("s...i,s...j->...ij", centered, centered.conj()) / len(draws)
    spread = products if draws.is_complex() else products + covariance.square()
    assert ((sample - covariance).abs() <= 5.0 * (spread / len(draws)).sqrt()).all()
    if draws.is_complex():
        pseudo = torch.einsum("s...i,s...j->...ij", centered, centered) / len(draws)
        assert (pseudo.abs() <= 5.0 * ((products + covariance.abs().square()) / len(draws)).sqrt()).all()
