"""Correlations of the errors of several targets."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

_FACTORS, _LEAST_OWN, _STEPS = 20, 0.05, 8
"""How many factors errors have at most, the least part of a variance that is of one target alone, and iterations."""


def correlation_root(scores: Tensor) -> tuple[Tensor, float]:
    """A root (K, T) of the correlations of columns (N, T), and by how much they are to be shrunk to zero.

    Source: Schaefer and Strimmer (2005).
    """
    count, num_columns = scores.shape
    standard = (scores - scores.mean(0)) / scores.std(0, correction=0).clamp_min(1e-12)
    _, values, axes = torch.linalg.svd(standard / count**0.5, full_matrices=False)
    of_correlations = float(values.pow(4).sum()) - num_columns
    squares = standard.square()
    of_products = float((squares.sum(1).square() - squares.square().sum(1)).sum())
    spread = count / (count - 1.0) ** 3 * (of_products - count * of_correlations)
    shrinkage = spread / of_correlations if of_correlations > spread > 0.0 else float(spread > 0.0)
    return values.unsqueeze(-1) * axes, shrinkage


def missing_draws(errors: Tensor, known: Tensor, generator: Generator) -> Tensor:
    r"""Draws (N, T) of standard normal errors given those of the same row that are known.

    .. math:: e = L f + \sqrt{d} \circ \epsilon, \qquad f, \epsilon \sim N(0, I)

    The loadings L of at most 20 factors f are principal components of the correlations of known pairs, shrunk.

    :param errors: errors (N, T), of which others than the known ones do not count.
    :param known: which are known, (N, T).
    """
    loadings = _loadings(torch.where(known, errors, 0.0), known.to(errors.dtype))
    own = 1.0 - loadings.square().sum(1)
    size, weight = loadings.shape[1], known / own
    products = (loadings.unsqueeze(-1) * loadings.unsqueeze(-2)).flatten(1)
    precision = (weight @ products).unflatten(1, (size, size)) + torch.eye(size, dtype=errors.dtype)
    factor = torch.linalg.cholesky(precision)
    mean = torch.cholesky_solve(((weight * errors) @ loadings).unsqueeze(-1), factor)
    normal = torch.randn(mean.shape, generator=generator, dtype=errors.dtype)
    factors = mean + torch.linalg.solve_triangular(factor.mT, normal, upper=True)
    noise = torch.randn(errors.shape, generator=generator, dtype=errors.dtype)
    return factors.squeeze(-1) @ loadings.mT + own.sqrt() * noise


def conditional_densities(errors: Tensor, known: Tensor) -> Tensor:
    """The log densities (N, T) of standard normal errors given all others of their row, guesses of missing ones too."""
    loadings = _loadings(torch.where(known, errors, 0.0), known.to(errors.dtype))
    own = 1.0 - loadings.square().sum(1)
    scaled = loadings / own.unsqueeze(-1)
    inner = torch.linalg.cholesky(loadings.mT @ scaled + torch.eye(loadings.shape[1], dtype=errors.dtype))
    half = torch.linalg.solve_triangular(inner, scaled.mT, upper=False)
    precision = 1.0 / own - half.square().sum(0)
    residual = (errors / own - (errors @ half.mT) @ half) / precision
    return 0.5 * (precision.log() - precision * residual.square() - math.log(2.0 * math.pi))


def _loadings(errors: Tensor, known: Tensor) -> Tensor:
    """Those (T, K) of errors (N, T), which are zero where they are not known."""
    squares, both = errors.square().mT @ known, (known.mT @ known).clamp_min(1.0)
    correlations = (errors.mT @ errors) / (squares * squares.mT).sqrt().clamp_min(1e-12)
    of_others = correlations - torch.diag(correlations.diagonal())
    spread = float(((1.0 - of_others.square()).square() / both).sum() - (1.0 / both.diagonal()).sum())
    size = max(float(of_others.square().sum()), 1e-12)
    shrunk = max(0.0, 1.0 - spread / size) * of_others
    shrunk.diagonal().fill_(1.0)
    values, vectors = _largest(shrunk)
    loadings = vectors * (values - _LEAST_OWN).clamp_min(0.0).sqrt()
    total = loadings.square().sum(1, keepdim=True).clamp_min(1e-12)
    return loadings * ((1.0 - _LEAST_OWN) / total).clamp_max(1.0).sqrt()


def _largest(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues of a symmetric matrix and their vectors, about, by subspace iteration."""
    count = min(_FACTORS, len(matrix))
    start = torch.randn(len(matrix), count, generator=Generator().manual_seed(0), dtype=matrix.dtype)
    basis = torch.linalg.qr(start).Q
    for _ in range(_STEPS):
        basis = torch.linalg.qr(matrix @ basis).Q
    values, turn = torch.linalg.eigh(basis.mT @ matrix @ basis)
    return values, basis @ turn
