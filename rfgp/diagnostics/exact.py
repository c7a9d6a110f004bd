"""The exact posterior as a reference: dense, in float64, by Cholesky factors."""

from __future__ import annotations

import copy
from typing import Any

import gpytorch
import torch
from gpytorch.kernels import Kernel, MultitaskKernel
from gpytorch.likelihoods import Likelihood
from linear_operator.operators import DiagLinearOperator
from torch import Tensor
from torch.distributions import Normal

from .._support import checks
from .._support.gpytorch_names import EVALUATED_KERNELS, class_regressions, noise_of_rows
from ..kernels.checked import check_columns
from ..kernels.operator_valued import OperatorValuedKernel
from ..likelihoods import ComplexNormal
from ..likelihoods.complex_gaussian import ComplexNoise
from ..likelihoods.noise import has_fixed_noise, noise_covariance
from ..linalg import accurate_dtype, cholesky


def exact_posterior(
    kernel: Kernel,
    likelihood: Likelihood,
    train_inputs: Tensor,
    train_targets: Tensor,
    x: Tensor,
    mean: gpytorch.means.Mean | None = None,
    noise: Tensor | None = None,
) -> Normal | ComplexNormal:
    r"""Marginals of the exact posterior of the latent function, :math:`k(x, x) - k_x^\top (K + S)^{-1} k_x`.

    :param kernel: an exact kernel, or an approximated one whose exact kernel is taken.
    :param likelihood: a Gaussian, complex Gaussian, fixed-noise, Dirichlet, multitask Gaussian or multitask fixed-noise
        likelihood.
    :param train_inputs: (N, d).
    :param train_targets: (N,) or (N, T), NaN where missing; integer labels (N,) for a Dirichlet likelihood.
    :param x: the inputs of the posterior, (M, d).
    :param mean: the mean function; default: zero.
    :param noise: noise variances (N,) or (N, T), for a fixed-noise likelihood that does not know these rows.
    :returns: independent (complex) normal distributions in float64, (M,), (M, T), or (C, M) for a Dirichlet likelihood.
    :raises ValueError: where the matrices would not fit in memory, or inputs or targets are bad.

    >>> x, y = torch.rand(10, 2), torch.rand(10)
    >>> likelihood = gpytorch.likelihoods.GaussianLikelihood()
    >>> exact_posterior(gpytorch.kernels.RBFKernel(), likelihood, x, y, x[:3]).mean.shape
    torch.Size([3])
    """
    x, train_inputs = checks.columns(x), checks.columns(train_inputs)
    checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel", "such as ScaleKernel(RBFKernel())")
    checks.instance("likelihood", likelihood, Likelihood, "a GPyTorch likelihood", "such as GaussianLikelihood()")
    if mean is not None:
        checks.instance("mean", mean, gpytorch.means.Mean, "a GPyTorch mean", "such as ConstantMean()")
    checks.finite(checks.inputs(train_inputs, name="train_inputs"), "train_inputs")
    checks.finite(checks.inputs(x, train_inputs.shape[-1]))
    for name, value in (("train_inputs", train_inputs), ("x", x)):
        if value.dim() != 2:
            raise ValueError(f"expected {name} of shape (N, d), got {tuple(value.shape)}; compare one batch at a time")
    checks.tensor(train_targets, "train_targets")
    if noise is not None:
        checks.floating(noise, "noise")
        if not has_fixed_noise(likelihood):
            kind = type(likelihood).__name__
            raise ValueError(f"expected no noise beside a {kind}, got some; use a FixedNoiseGaussianLikelihood")
    exact = copy.deepcopy(getattr(kernel, "exact_kernel", kernel)).double()
    check_columns(exact, train_inputs)
    if train_targets.is_complex():
        train_inputs, train_targets, noise = _observed(likelihood, train_inputs, train_targets, noise)
    outputs = exact.num_outputs_per_input(train_inputs, x)
    num_rows, num_test = len(train_inputs) * outputs, len(x) * outputs
    needed = 8.0 * (3 * num_rows**2 + 2 * num_rows * num_test)
    checks.fits_in_memory(needed, f"the exact posterior of {num_rows} rows", "compare on a subset of the rows")
    data, points = train_inputs.double(), x.double()
    if train_targets.is_complex() and (outputs > 1 or getattr(likelihood, "has_pseudo_noise", False)):
        return _improper_marginals(exact, likelihood, data, train_targets, points, mean, noise)
    with torch.no_grad(), EVALUATED_KERNELS:
        covariance = exact(data, data).to_dense()
        cross = exact(data, points).to_dense()
        prior = exact(points, diag=True)
        has_tasks = any(isinstance(part, OperatorValuedKernel | MultitaskKernel) for part in exact.modules())
        if outputs > 1 or train_targets.dim() > 1 or has_tasks:
            matrices = covariance, cross, prior
            return _output_marginals(likelihood, matrices, data, train_targets, points, mean, noise)
        offset = data.new_zeros(num_rows) if mean is None else copy.deepcopy(mean).double()(data)
        at_points = points.new_zeros(num_test) if mean is None else copy.deepcopy(mean).double()(points)
        targets, noises = _targets_and_noise(likelihood, train_inputs, train_targets, noise)
        residuals = (targets - offset).expand(torch.broadcast_shapes(targets.shape, offset.shape))
        if targets.dim() == 1:
            latent, white = _conditional(covariance + torch.diag_embed(noises), cross, residuals)
            return independent_normal(latent + at_points, (prior - white.square().sum(-2)).clamp_min(0.0))
        means, variances = [], []
        for c in range(len(targets)):
            total = _element(covariance, c, 2) + torch.diag_embed(noises[c])
            latent, white = _conditional(total, _element(cross, c, 2), residuals[c])
            means.append(latent)
            variances.append(_element(prior, c, 1) - white.square().sum(-2))
        return independent_normal(torch.stack(means) + at_points, torch.stack(variances).clamp_min(0.0))


def independent_normal(mean: Tensor, variance: Tensor, pseudo: Tensor | None = None) -> Normal | ComplexNormal:
    """Independent normal distributions, complex where the mean is; variances may be zero."""
    if mean.is_complex():
        root = mean.new_zeros(*mean.shape, 1)
        return ComplexNormal(mean, covariance_root=root, diagonal=variance, pseudo_diagonal=pseudo)
    return Normal(mean, variance.sqrt(), validate_args=False)


def _observed(likelihood: Any, x: Tensor, y: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The rows whose complex targets are observed, with the noise that is known of them."""
    observed = ~torch.isnan(checks.one_per_row(y, x, "train_targets"))
    if bool(observed.all()):
        return x, y, noise
    if noise is None and isinstance(likelihood, gpytorch.likelihoods.FixedNoiseGaussianLikelihood):
        noise = likelihood.noise_covar.noise
    return x[observed], y[observed], noise if noise is None or noise.shape != y.shape else noise[observed]


@torch.no_grad()
def _improper_marginals(
    kernel: Kernel,
    likelihood: Any,
    x: Tensor,
    y: Tensor,
    points: Tensor,
    mean: gpytorch.means.Mean | None,
    noise: Tensor | None,
) -> Normal | ComplexNormal:
    """Marginals of a complex function of which kernel or noise are improper, by real and imaginary parts."""
    targets, variances = _targets_and_noise(likelihood, x, y.to(torch.complex128), noise)
    half = 0.5 * torch.eye(2, dtype=torch.float64, device=x.device)
    circularity = likelihood.circularity.reshape(()).to(torch.complex128)
    turned = torch.stack([circularity.real, circularity.imag, circularity.imag, -circularity.real]).reshape(2, 2)
    noises = torch.kron(torch.diag(variances), half + 0.5 * turned)
    with EVALUATED_KERNELS:
        if kernel.num_outputs_per_input(x, points) == 2:
            covariance, cross = kernel(x, x).to_dense(), kernel(x, points).to_dense()
            prior = kernel(points.unsqueeze(-2), points.unsqueeze(-2)).to_dense()
        else:
            covariance, cross = (torch.kron(kernel(x, z).to_dense(), half) for z in (x, points))
            prior = kernel(points, diag=True)[:, None, None] * half
    residual = torch.view_as_real(targets - _complex_mean(mean, x)).flatten()
    center, white = _conditional(covariance + noises, cross, residual)
    parts = white.unflatten(-1, (-1, 2))
    left = prior - torch.einsum("nmi,nmj->mij", parts, parts)
    real, imaginary = left.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).unbind(-1)
    pseudo = torch.complex(real - imaginary, 2.0 * left[:, 0, 1])
    variance = real + imaginary
    pseudo = pseudo * (variance / pseudo.abs().clamp_min(1e-300)).clamp_max(1.0)
    latent = torch.view_as_complex(center.reshape(-1, 2)) + _complex_mean(mean, points)
    return independent_normal(latent, variance, pseudo)


def _complex_mean(mean: gpytorch.means.Mean | None, x: Tensor) -> Tensor:
    """The mean function at x, (N,): that of the real part, or of both parts where it is one of two tasks."""
    if mean is None:
        return torch.zeros(len(x), dtype=torch.complex128, device=x.device)
    values = copy.deepcopy(mean).double()(x)
    return torch.view_as_complex(values.contiguous()) if values.dim() > 1 else values.to(torch.complex128)


def _output_marginals(
    likelihood: Any,
    matrices: tuple[Tensor, Tensor, Tensor],
    x: Tensor,
    y: Tensor,
    points: Tensor,
    mean: gpytorch.means.Mean | None,
    noise: Tensor | None,
) -> Normal | ComplexNormal:
    """Marginals of several outputs, of whose training targets (N, T) some may be missing."""
    covariance, cross, prior = matrices
    outputs = covariance.shape[-1] // len(x)
    if y.dim() == 1 and outputs == 1:
        y = y.unsqueeze(-1)
    if y.shape != (len(x), outputs):
        raise ValueError(
            f"expected train_targets of shape {(len(x), outputs)}, got {tuple(y.shape)}; pass a column per output"
        )
    offset, at_points = (_output_mean(mean, part, outputs) for part in (x, points))
    residual = (y.double() - offset).flatten()
    observed = ~torch.isnan(residual)
    total = (covariance + noise_covariance(likelihood, len(x), outputs, noise))[observed][:, observed]
    center, white = _conditional(total, cross[observed], residual[observed])
    latent = center.unflatten(0, (-1, outputs))
    variance = (prior - white.square().sum(-2)).clamp_min(0.0).unflatten(0, (-1, outputs))
    if outputs == 1:
        return independent_normal((latent + at_points).squeeze(-1), variance.squeeze(-1))
    return independent_normal(latent + at_points, variance)


def _output_mean(mean: gpytorch.means.Mean | None, x: Tensor, outputs: int) -> Tensor:
    if mean is None:
        return x.new_zeros(len(x), outputs)
    values = copy.deepcopy(mean).double()(x)
    return values if values.dim() == 2 else values.unsqueeze(-1).expand(-1, outputs)


def _element(value: Tensor, index: int, dims: int) -> Tensor:
    return value if value.dim() == dims else value[index]


def _conditional(total: Tensor, cross: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """Means (M,) given residuals (N,) of covariance ``total``, and the whitened covariances (N, M) of both."""
    factor = cholesky(total)
    white = torch.linalg.solve_triangular(factor, cross, upper=False)
    target = torch.linalg.solve_triangular(factor.to(residual.dtype), residual.unsqueeze(-1), upper=False)
    return (white.mT.to(residual.dtype) @ target).squeeze(-1), white


def _targets_and_noise(likelihood: Any, x: Tensor, y: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
    """Targets (N,) or (C, N), and noise variances of the same shape, in float64."""
    if isinstance(likelihood, gpytorch.likelihoods.DirichletClassificationLikelihood):
        labels = checks.labels(y, x, likelihood.num_classes, "train_targets")
        variances, targets = class_regressions(likelihood, labels, likelihood.alpha_epsilon, torch.float64)
        if likelihood.second_noise_covar is not None:
            variances = variances + likelihood.second_noise_covar.noise.detach().double()
        return targets.mT, variances
    targets = checks.targets(y, x, "train_targets")
    if targets.is_complex() and not isinstance(likelihood, ComplexNoise):
        raise ValueError(f"expected real train_targets, got {targets.dtype}; use ComplexGaussianLikelihood")
    targets = targets.to(accurate_dtype(targets.dtype))
    fixed = likelihood.noise_covar.noise if has_fixed_noise(likelihood) and noise is None else noise
    if fixed is not None and fixed.shape != targets.shape:
        raise ValueError(f"expected the noise of {len(targets)} rows, got {tuple(fixed.shape)}; pass noise=")
    return targets, _variances(likelihood, len(targets), noise)


def _variances(likelihood: Any, size: int, noise: Tensor | None) -> Tensor:
    """The variances (N,) of noise that a likelihood adds to a function, in float64."""
    if noise is not None:
        return noise_of_rows(likelihood, noise.double()).detach()
    zeros = likelihood.noise.detach().new_zeros(size)
    if isinstance(likelihood, ComplexNoise):
        noisy: Any = likelihood(zeros.to(zeros.dtype.to_complex()))
        return noisy.variance.detach().double()
    function = gpytorch.distributions.MultivariateNormal(zeros, DiagLinearOperator(zeros))
    return likelihood(function).lazy_covariance_matrix.diagonal().detach().double()
