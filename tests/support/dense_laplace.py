"""Laplace's approximation with N x N matrices, by derivatives in closed form: a reference for weight space."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy import special


class Derivatives(NamedTuple):
    """The log density of every row, its first derivatives (N,), and minus its second ones, (N, N)."""

    log_density: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray


def probit(f, y):
    sign = 2.0 * y - 1.0
    log_density = special.log_ndtr(sign * f)
    ratio = np.exp(-0.5 * f**2 - 0.5 * np.log(2.0 * np.pi) - log_density)
    return Derivatives(log_density, sign * ratio, np.diag(ratio**2 + sign * f * ratio))


def logit(f, y):
    p = special.expit(f)
    return Derivatives(special.log_expit((2.0 * y - 1.0) * f), y - p, np.diag(p * (1.0 - p)))


def poisson(f, y):
    return Derivatives(y * f - np.exp(f) - special.gammaln(y + 1.0), y - np.exp(f), np.diag(np.exp(f)))


def negative_binomial(f, y, dispersion):
    r, mean = 1.0 / dispersion, np.exp(f)
    norm = special.gammaln(y + r) - special.gammaln(r) - special.gammaln(y + 1.0)
    log_density = norm + r * np.log(r / (r + mean)) + y * np.log(mean / (r + mean))
    return Derivatives(log_density, r * (y - mean) / (r + mean), np.diag(r * mean * (r + y) / (r + mean) ** 2))


def student_t(f, y, degrees, noise):
    residual, size = y - f, degrees * noise + (y - f) ** 2
    norm = special.gammaln(0.5 * (degrees + 1.0)) - special.gammaln(0.5 * degrees)
    log_density = (
        norm - 0.5 * np.log(degrees * np.pi * noise) - 0.5 * (degrees + 1.0) * np.log(size / (degrees * noise))
    )
    curvature = (degrees + 1.0) * (degrees * noise - residual**2) / size**2
    return Derivatives(log_density, (degrees + 1.0) * residual / size, np.diag(curvature))


def softmax(f, y, num_classes, is_block_diagonal=False):
    """Derivatives in functions of all classes one after the other, (C N,); Rasmussen and Williams, Eq. 3.33 to 3.38."""
    table = f.reshape(num_classes, -1)
    logs = special.log_softmax(table, axis=0)
    p = np.exp(logs)
    stacked = np.concatenate([np.diag(row) for row in p])
    curvature = np.diag(p.reshape(-1)) - stacked @ stacked.T
    if is_block_diagonal:
        curvature = np.diag(np.diag(curvature))
    hot = np.arange(num_classes)[:, None] == y
    return Derivatives(logs[y, np.arange(len(y))], (hot - p).reshape(-1), curvature)


def noisy_softmax(f, y, noise, scale, is_expected=False):
    """Labels of which a part is random; functions of all classes, then that of the noise, one after the other."""

    def probabilities(values):
        random = torch.sigmoid(np.log(noise / (1.0 - noise)) + scale * values[-1])
        return (1.0 - random) * torch.softmax(values[:-1], dim=-1) + random / (len(values) - 1)

    def information(values):
        jacobian = torch.func.jacrev(probabilities)(values)
        return jacobian.mT @ (jacobian / probabilities(values).unsqueeze(-1))

    return of_rows(lambda values, label: probabilities(values)[label].log(), f, y, information if is_expected else None)


def normal_of_two(f, y, is_expected=False):
    """Numbers whose log variance is the second function."""

    def log_density(values, target):
        return -0.5 * (np.log(2.0 * np.pi) + values[1] + (target - values[0]) ** 2 * torch.exp(-values[1]))

    def information(values):
        return torch.stack([torch.exp(-values[1]), torch.full_like(values[1], 0.5)]).diag_embed()

    return of_rows(log_density, f, y, information if is_expected else None)


def of_rows(log_density, f, y, information=None):
    """Derivatives of the log density of one row in its functions, (Q,), of functions one after the other, (Q N,).

    :param information: the expected curvature of a row, (Q, Q), in place of the curvature.
    """
    count, targets = len(f) // len(y), torch.as_tensor(y).unsqueeze(-1)
    table = torch.as_tensor(f).reshape(count, -1).mT

    def of_row(values, target):
        return log_density(values, target).squeeze(-1)

    value = torch.func.vmap(of_row)(table, targets)
    slope = torch.func.vmap(torch.func.grad(of_row))(table, targets)
    if information is None:
        second = -torch.func.vmap(torch.func.hessian(of_row))(table, targets)
    else:
        second = torch.func.vmap(information)(table)
    curvature = torch.diag_embed(second.permute(1, 2, 0)).transpose(1, 2).reshape(len(f), len(f))
    return Derivatives(value.numpy(), slope.mT.reshape(-1).numpy(), curvature.numpy())


def positive(curvature):
    """The part of a symmetric matrix that is not negative."""
    values, vectors = np.linalg.eigh(curvature)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


class Result(NamedTuple):
    """The mode of the function at the training inputs, the evidence, and latent means and covariance elsewhere."""

    mode: np.ndarray
    evidence: float
    mean: np.ndarray
    covariance: np.ndarray


def laplace(derivatives, prior, prior_mean, cross, test_prior, test_mean, final=None):
    """Newton's method on f = K a + m, damped, until nothing changes; Rasmussen and Williams, sections 3.4 and 3.5.

    :param derivatives: takes f and gives Derivatives.
    :param prior: K, (N, N).
    :param prior_mean: m, (N,).
    :param cross: the covariance of test and training points, (M, N).
    :param test_prior: that of the test points, (M, M).
    :param test_mean: (M,).
    :param final: the derivatives that evidence and predictions take; default: those of the steps.
    """
    a, identity = np.zeros(len(prior)), np.eye(len(prior))

    def value(a):
        with np.errstate(over="ignore", invalid="ignore"):
            return derivatives(prior @ a + prior_mean).log_density.sum() - 0.5 * a @ prior @ a

    for _ in range(200):
        found = derivatives(prior @ a + prior_mean)
        for part in (np.asarray, positive):
            weights = part(found.curvature)
            step = np.linalg.solve(identity + weights @ prior, weights @ (prior @ a) + found.slope) - a
            if step @ prior @ (found.slope - a) >= 0.0:
                break
        size = 1.0
        while size > 1e-8 and not value(a + size * step) >= value(a) - 1e-12 * abs(value(a)):
            size *= 0.5
        a = a + size * step
        if np.abs(prior @ step).max() < 1e-13:
            break
    f = prior @ a + prior_mean
    known = (final or derivatives)(f)
    system = identity + known.curvature @ prior
    evidence = known.log_density.sum() - 0.5 * a @ prior @ a - 0.5 * np.linalg.slogdet(system)[1]
    reduction = cross @ np.linalg.solve(system, known.curvature @ cross.T)
    return Result(f, evidence, test_mean + cross @ a, test_prior - reduction)


def of_model(derivatives, model, x, test, num_functions=1, final=None):
    """The dense result for a kernel with features and a mean function: one block per function."""
    with torch.no_grad():
        points = torch.cat([x, test])
        scalar = model.covar_module.scalar_features(points)
        real = torch.cat([scalar.real, scalar.imag], dim=-1) if scalar.is_complex() else scalar
        scales = model.covar_module.output_factor().reshape(-1).expand(num_functions).tolist()
        blocks = [scale**2 * (real @ real.mT).numpy() for scale in scales]
        mean = model.mean_module(points)
        means = (mean if mean.dim() == 2 else mean.expand(num_functions, -1)).numpy()
    n = len(x)

    def joined(rows, columns):
        size = len(blocks[0][rows, columns]), blocks[0][rows, columns].shape[1]
        whole = np.zeros((num_functions, size[0], num_functions, size[1]))
        for q, block in enumerate(blocks):
            whole[q, :, q] = block[rows, columns]
        return whole.reshape(num_functions * size[0], num_functions * size[1])

    old, new = slice(0, n), slice(n, None)
    parts = joined(old, old), means[:, old].reshape(-1), joined(new, old), joined(new, new), means[:, new].reshape(-1)
    return laplace(derivatives, *parts, final=final)
