"""What a WeightSpaceModel is made of where nothing else is asked for: BoTorch's priors, on random features."""

from __future__ import annotations

from typing import Any

import torch
from botorch.models.utils.gpytorch_modules import (
    MIN_INFERRED_NOISE_LEVEL,
    get_covar_module_with_dim_scaled_prior,
    get_gaussian_likelihood_with_lognormal_prior,
)
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, MultitaskKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, Mean, MultitaskMean
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from ..approximation import FeatureKernel
from ..approximation.entry import approximate
from ..likelihoods import MultitaskFixedNoiseGaussianLikelihood
from ..linalg.sampling import drawing_from


def default_kernel(num_inputs: int, num_outputs: int) -> Kernel:
    """BoTorch's Gaussian kernel with a lengthscale per input; one for all outputs, which are independent."""
    kernel: Kernel = get_covar_module_with_dim_scaled_prior(ard_num_dims=num_inputs)
    if num_outputs == 1:
        return kernel
    several = independent_outputs(kernel, num_outputs)
    several.task_covar_module.requires_grad_(False)
    return several


def independent_outputs(kernel: Kernel, num_outputs: int) -> Kernel:
    """Independent outputs with one kernel, each with an output scale of its own, which starts from 1."""
    with drawing_from(torch.Generator()):  # GPyTorch draws the scales that are set here
        several = MultitaskKernel(kernel, num_tasks=num_outputs, rank=0)
    several.task_covar_module.initialize(var=torch.ones(num_outputs))
    return several


def default_likelihood(num_outputs: int, noise: Tensor | None) -> Likelihood:
    """BoTorch's prior of the noise, for every output, or the known noise variances (N, m)."""
    if noise is not None:
        if num_outputs == 1:
            return FixedNoiseGaussianLikelihood(noise.squeeze(-1))
        return MultitaskFixedNoiseGaussianLikelihood(noise)
    if num_outputs == 1:
        single: Likelihood = get_gaussian_likelihood_with_lognormal_prior()
        return single
    prior = LogNormalPrior(loc=-4.0, scale=1.0)
    constraint = GreaterThan(MIN_INFERRED_NOISE_LEVEL, transform=None, initial_value=prior.mode)
    several = MultitaskGaussianLikelihood(num_outputs, rank=0, noise_constraint=constraint, has_global_noise=False)
    several.register_prior("raw_task_noises_prior", prior, _task_noises)
    return several


def _task_noises(likelihood: MultitaskGaussianLikelihood) -> Tensor:
    """What the prior of the noise is one of; a function with a name can be pickled."""
    noises: Tensor = likelihood.task_noises
    return noises


def default_mean(num_outputs: int) -> Mean:
    """A constant for every output."""
    if num_outputs == 1:
        return ConstantMean()
    return MultitaskMean([ConstantMean() for _ in range(num_outputs)], num_tasks=num_outputs)


def approximated(kernel: Kernel, num_features: int, x: Tensor, num_outputs: int, seed: int | None) -> Any:
    """A kernel with features of all outputs for transformed inputs (N, d); one that has them stays as it is."""
    has_features = any(isinstance(part, FeatureKernel) for part in kernel.modules())
    is_of_all = num_outputs == 1 or bool(getattr(kernel, "num_tasks", 0)) or getattr(kernel, "has_output_factor", False)
    if has_features:
        if not is_of_all:
            raise ValueError(
                f"expected a kernel of {num_outputs} outputs, got features of one output; pass the exact kernel, or "
                "rfgp.approximate(gpytorch.kernels.MultitaskKernel(...), num_features)"
            )
        return kernel
    whole = kernel if is_of_all else independent_outputs(kernel, num_outputs)
    return approximate(whole.to(x), num_features, input_dim=x.shape[-1], seed=seed)
