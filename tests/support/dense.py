"""The dumbest correct posterior and evidence, dense and in float64, that every fast path is tested against."""

import math

import torch


def covariance(kernel, x, y):
    """The kernel matrix of the features, complex where they are."""
    return kernel.features(x) @ kernel.features(y).mH


def posterior(matrix, cross, prior, noise, residual):
    """Mean and covariance at the test points from K, K(x, x*), K(x*, x*), noise variances and residuals."""
    dtype = torch.promote_types(residual.dtype, matrix.dtype)
    total, cross, prior = (matrix + torch.diag(noise)).to(dtype), cross.to(dtype), prior.to(dtype)
    mean = cross.mH @ torch.linalg.solve(total, residual.to(dtype))
    return mean, prior - cross.mH @ torch.linalg.solve(total, cross)


def evidence(matrix, noise, residual):
    """The log density of the residuals under N(0, K + S), or CN(0, K + S) for complex ones."""
    total = matrix + torch.diag(noise)
    dtype = torch.promote_types(total.dtype, residual.dtype)
    quadratic = (residual.to(dtype).conj() * torch.linalg.solve(total.to(dtype), residual.to(dtype))).sum().real
    log_determinant = torch.linalg.slogdet(total)[1]
    if residual.is_complex():
        return -(quadratic + log_determinant + len(residual) * math.log(math.pi))
    return -0.5 * (quadratic + log_determinant + len(residual) * math.log(2.0 * math.pi))
