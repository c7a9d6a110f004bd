"""Random regressions whose exact posterior is known to more digits than float64 has."""

from __future__ import annotations

import functools
import math
import warnings

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, MaternKernel, ProductKernel, RBFKernel, RQKernel, ScaleKernel

from rfgp.diagnostics.certificates import certified_posterior

KINDS = {"gaussian": math.inf, "1/2": 0.5, "3/2": 1.5, "5/2": 2.5}


def long_kernel(kernel, x, y):
    """The values of scaled stationary kernels, their sums and products in 80-bit arithmetic, (N, M)."""
    if isinstance(kernel, AdditiveKernel | ProductKernel):
        first, second = (long_kernel(part, x, y) for part in kernel.kernels)
        return first + second if isinstance(kernel, AdditiveKernel) else first * second
    scale, base = np.longdouble(kernel.outputscale.item()), kernel.base_kernel
    lengths = base.lengthscale.detach().numpy().astype(np.longdouble)
    left, right = (part.numpy().astype(np.longdouble) / lengths for part in (x, y))
    squares = ((left[:, None, :] - right[None, :, :]) ** 2).sum(-1)
    if isinstance(base, RBFKernel):
        return scale * np.exp(-squares / 2)
    if isinstance(base, RQKernel):
        power = np.longdouble(base.alpha.item())
        return scale * (1 + squares / (2 * power)) ** -power
    t = np.sqrt(np.longdouble(2 * base.nu) * squares)
    return scale * np.exp(-t) * {0.5: 1, 1.5: 1 + t, 2.5: 1 + t + t**2 / 3}[base.nu]


def long_solution(matrix, right):
    """The solution of a positive definite system in 80-bit arithmetic, by a Cholesky factorization."""
    factor = matrix.copy()
    size = len(factor)
    for j in range(size):
        factor[j:, j] -= factor[j:, :j] @ factor[j, :j]
        factor[j:, j] /= np.sqrt(factor[j, j])
    found = right.copy()
    for j in range(size):
        found[j] = (found[j] - factor[j, :j] @ found[:j]) / factor[j, j]
    for j in reversed(range(size)):
        found[j] = (found[j] - factor[j + 1 :, j] @ found[j + 1 :]) / factor[j, j]
    return found


class Trial:
    """A random regression: kernel, noise, rows, points, landmarks, and a number of iterations to stop after.

    :param seed: the seed of all of these.
    """

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        self.random = random
        dims, rows = int(random.integers(1, 6)), int(random.integers(5, 61))
        self.kernel = self._kernel(dims)
        center, spread = 10.0 ** random.uniform(-1.0, 2.0), 10.0 ** random.uniform(-1.0, 0.5)
        self.x = torch.tensor(center + spread * random.standard_normal((rows, dims)))
        if random.random() < 0.3:
            self.x[: rows // 3] = self._near(self.x[-(rows // 3) :])
        self.variance = self.kernel(self.x[:1], diag=True).item()
        away = 10.0 ** random.uniform(-2.0, 1.0)
        self.points = self.x[random.integers(rows, size=4)] + away * torch.tensor(random.standard_normal((4, dims)))
        level = self.variance * 10.0 ** random.uniform(-8.0, 1.0)
        positive = gpytorch.constraints.Positive()
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=positive).double()
        self.likelihood.noise = level
        self.noise = self.likelihood.noise.detach().expand(rows)
        if random.random() < 0.5:
            levels = torch.tensor(level * 10.0 ** random.uniform(-2.0, 2.0, rows)).clamp_min(1e-6)
            self.likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(levels)
            self.noise = self.likelihood.noise_covar.noise
        smooth = torch.sin(self.x.sum(-1)) if random.random() < 0.5 else self._draw()
        self.y = smooth + self.noise.sqrt() * torch.tensor(random.standard_normal(rows))
        self.mean = gpytorch.means.ConstantMean().double()
        self.mean.constant = float(random.normal())
        self.num_landmarks = int(random.integers(1, rows + 1))
        self.num_iterations = int(random.integers(1, 25))

    def _kernel(self, dims):
        nu = self.random.choice(list(KINDS.values()))
        base = RBFKernel(ard_num_dims=dims) if math.isinf(nu) else MaternKernel(nu=nu, ard_num_dims=dims)
        kernel = ScaleKernel(base).double()
        base.lengthscale = torch.tensor(10.0 ** self.random.uniform(-1.0, 1.0, (1, dims)))
        kernel.outputscale = 10.0 ** self.random.uniform(-2.0, 2.0)
        return kernel

    def _near(self, x):
        """Rows to repeat, as they are."""
        return x

    def _draw(self):
        values = torch.linalg.eigh(self.kernel(self.x, self.x).to_dense().detach())
        root = values.eigenvectors * values.eigenvalues.clamp_min(0.0).sqrt()
        return root @ torch.tensor(self.random.standard_normal(len(self.x)))

    @functools.cached_property
    def posterior(self):
        """The certified posterior where it stopped."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return certified_posterior(
                self.kernel,
                self.likelihood,
                self.x,
                self.y,
                self.mean,
                tolerance=1e-14,
                num_landmarks=self.num_landmarks,
                max_iterations=self.num_iterations,
                progress=False,
            )

    @functools.cached_property
    def exact(self):
        """The exact posterior mean and variance at the points, in 80-bit arithmetic."""
        noise = self.noise.numpy().astype(np.longdouble)
        matrix = long_kernel(self.kernel, self.x, self.x) + np.diag(noise)
        columns = long_kernel(self.kernel, self.x, self.points)
        offset = np.longdouble(self.mean.constant.item())
        right = np.concatenate([self.y.numpy().astype(np.longdouble)[:, None] - offset, columns], axis=1)
        found = long_solution(matrix, right)
        prior = long_kernel(self.kernel, self.points[:1], self.points[:1])[0, 0]
        return offset + columns.T @ found[:, 0], prior - (columns * found[:, 1:]).sum(0)

    def ratios(self):
        """The errors of the mean as shares of their bounds, (4,): none above one."""
        found = self.posterior
        errors = np.abs(found.mean(self.points).numpy() - self.exact[0])
        return (errors / found.error_bound(self.points).numpy()).astype(float)

    def misses(self):
        """How far the exact variances are outside their bounds, in prior variances, (4,): none above zero."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = self.posterior.variance_bounds(self.points, max_iterations=self.num_iterations, progress=False)
        variance = self.exact[1]
        outside = np.maximum(found.lower.numpy() - variance, variance - found.upper.numpy())
        return (outside / self.variance).astype(float)


class ComposedTrial(Trial):
    """A random regression with a sum or product of two kernels, and rows very near to each other."""

    def _kernel(self, dims):
        parts = [super()._kernel(dims), super()._kernel(dims)]
        if self.random.random() < 0.3:
            parts[0] = ScaleKernel(RQKernel(ard_num_dims=dims)).double()
        return (AdditiveKernel if self.random.random() < 0.5 else ProductKernel)(*parts)

    def _near(self, x):
        return x + 1e-9 * torch.tensor(self.random.standard_normal(x.shape))
