"""Where training starts: lengthscales, scales, noise and means in the units of the data."""

from __future__ import annotations

import math
from typing import Any

import gpytorch
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    CosineKernel,
    IndexKernel,
    Kernel,
    LinearKernel,
    MultitaskKernel,
    PeriodicKernel,
    PolynomialKernel,
    ProductKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.likelihoods import GaussianLikelihood, LaplaceLikelihood, MultitaskGaussianLikelihood, StudentTLikelihood
from gpytorch.means import ConstantMean, LinearMean, MultitaskMean
from torch import Tensor

from .._support.constrained import set_within
from ..approximation import FeatureKernel
from ..approximation.input_scales import leaves
from ..approximation.map_family import MapFamily
from ..features import FourierSeries, RandomFourier
from ..kernels import DecomposableKernel
from ..models import HeteroscedasticGP
from .moments import DataMoments

_SAMPLE = 1000


def random_rows(num_rows: int, size: int = _SAMPLE) -> Tensor:
    """The same random rows for the same number of rows, at most ``size`` of them."""
    return torch.randperm(num_rows, generator=torch.Generator().manual_seed(0))[:size]


def median_distances(x: Tensor) -> Tensor:
    """The median distance (d,) of two rows in every column of x (..., N, d), else the mean, else one; float64."""
    flat = x.detach().reshape(-1, x.shape[-1]).double()
    rows = flat[random_rows(len(flat)).to(flat.device)]
    distances = torch.cat([(rows - rows.roll(shift, 0)).abs() for shift in range(1, min(len(rows), 6))] or [rows * 0.0])
    median, mean = distances.median(0).values, distances.mean(0)
    result = torch.where(median > 0, median, mean)
    return torch.where(result > 0, result, torch.ones_like(result))


def start_from_data(model: Any, kernel: Kernel, x: Tensor, moments: DataMoments) -> tuple[set[int], set[int]]:
    """Set parameters with default values from the data, and return the identities of the guessed lengths and noises."""
    lengths: set[int] = set()
    with torch.no_grad():
        for leaf, columns in leaves(kernel, x):
            lengths |= _start_lengths(leaf, columns)
        noises = _start_noise(model.likelihood, moments)
        rows = x.reshape(-1, x.shape[-1])
        sample = rows[random_rows(len(rows), 512).to(rows.device)]
        _start_scale(kernel, sample, moments.targets.function_variances)
        for module in model.modules():
            if isinstance(module, MultitaskMean):
                for part, mean in zip(module.base_means, moments.targets.means, strict=False):
                    _start_mean(part, float(mean))
        _start_mean(getattr(model, "mean_module", None), float(moments.mean))
        if isinstance(model, HeteroscedasticGP):
            for leaf, columns in leaves(model.log_noise.covar_module.exact_kernel, x):
                lengths |= _start_lengths(leaf, columns)
            of_log_noise = moments.of_log_noise()
            _start_mean(model.log_noise.mean_module, float(of_log_noise.mean))
            _start_levels(model.log_noise.mean_module, of_log_noise.targets.means)
    return lengths, noises


def center_inputs(model: torch.nn.Module, x: Tensor) -> None:
    """Let shift-invariant kernels with features subtract the mean of the inputs (..., N, d), but for Maclaurin ones."""
    kernel = getattr(model, "covar_module", None)
    if not isinstance(kernel, Kernel):
        return
    for part in kernel.modules():
        for leaf, columns in part.family.leaves(x) if isinstance(part, FeatureKernel) else ():
            if not isinstance(leaf, MapFamily) or not leaf.is_shift_invariant or columns is None:
                continue
            if leaf.maps.center is None or isinstance(leaf.maps.feature_map, RandomFourier | FourierSeries):
                leaf.maps.center = columns.detach().reshape(-1, columns.shape[-1]).mean(0)


def _start_lengths(kernel: Kernel, x: Tensor) -> set[int]:
    """Set what is measured in units of the inputs, where it has its default value."""
    distances = median_distances(x)
    length = distances * math.sqrt(len(distances))
    if isinstance(kernel, PolynomialKernel):
        if _is_default(kernel, "offset"):
            set_within(kernel, "offset", x.double().square().sum(-1).mean())
        return set()
    if isinstance(kernel, SpectralMixtureKernel):
        return _start_mixture(kernel, distances)
    name = "period_length" if isinstance(kernel, PeriodicKernel | CosineKernel) else "lengthscale"
    if not hasattr(kernel, f"raw_{name}") or not _is_default(kernel, name):
        return set()
    raw = getattr(kernel, f"raw_{name}")
    start = 2.0 * distances if name == "period_length" else length
    set_within(kernel, name, start if raw.shape[-1] == len(start) else start.square().mean().sqrt())
    return {id(raw)}


def _start_mixture(kernel: SpectralMixtureKernel, distances: Tensor) -> set[int]:
    """Frequencies spread from zero to one per median distance."""
    names = ("mixture_means", "mixture_scales")
    if not all(_is_default(kernel, name) for name in names):
        return set()
    positions = (torch.arange(kernel.num_mixtures, dtype=torch.float64, device=distances.device) + 0.5) / (
        2.0 * kernel.num_mixtures
    )
    set_within(kernel, "mixture_means", (positions[:, None] / distances).unsqueeze(-2))
    set_within(kernel, "mixture_scales", (1.0 / (2.0 * math.pi * distances)).expand(kernel.num_mixtures, 1, -1))
    return {id(kernel.raw_mixture_means), id(kernel.raw_mixture_scales)}


def _is_default(kernel: Kernel, name: str) -> bool:
    """Whether a parameter learns and still has the value that GPyTorch gives it."""
    raw = getattr(kernel, f"raw_{name}")
    return bool(raw.requires_grad) and bool((raw == 0).all())


def _start_noise(likelihood: Any, moments: DataMoments) -> set[int]:
    """Set noises in the units of the targets."""
    variances = moments.first_noises
    smallest = variances.min() if hasattr(likelihood, "raw_task_noises") else variances.mean()
    wanted: list[tuple[gpytorch.Module, str, Tensor]] = []
    if isinstance(likelihood, GaussianLikelihood):
        wanted = [(likelihood.noise_covar, "noise", smallest)]
    if isinstance(likelihood, LaplaceLikelihood | StudentTLikelihood):
        wanted = [(likelihood, "noise", smallest)]
    if getattr(likelihood, "second_noise_covar", None) is not None:
        wanted = [(likelihood.second_noise_covar, "noise", smallest)]
    if isinstance(likelihood, MultitaskGaussianLikelihood):
        wanted = [(likelihood, "task_noises", variances), (likelihood, "noise", smallest)]
        factor = getattr(likelihood, "task_noise_covar_factor", None)
        if factor is not None and factor.requires_grad:
            size = factor.square().sum(-1, keepdim=True).clamp_min(1e-12)
            factor.mul_((variances.unsqueeze(-1) / size).sqrt().to(factor))
    existing = [(m, name, v) for m, name, v in wanted if getattr(m, f"raw_{name}", None) is not None]
    free = [(m, name, v) for m, name, v in existing if getattr(m, f"raw_{name}").requires_grad]
    for module, name, variance in free:
        set_within(module, name, variance)
    return {id(getattr(module, f"raw_{name}")) for module, name, _ in free}


def _start_mean(mean: Any, value: float) -> None:
    if isinstance(mean, ConstantMean) and mean.raw_constant.requires_grad:
        mean.initialize(constant=torch.full_like(mean.raw_constant, value))
    if isinstance(mean, LinearMean) and mean.weights.requires_grad:
        mean.weights.zero_()
        if mean.bias is not None:
            mean.bias.fill_(value)


def _start_levels(mean: Any, levels: Tensor) -> None:
    """Give each of a batch of constant means a value of its own."""
    if isinstance(mean, ConstantMean) and mean.raw_constant.requires_grad and mean.constant.shape == levels.shape:
        mean.initialize(constant=levels.to(mean.raw_constant))


def _start_scale(kernel: Kernel, x: Tensor, variances: Tensor) -> bool:
    """Give the kernel the variance of the outputs; parts of a sum have equal shares. Whether it has a scale to set."""
    if isinstance(kernel, AdditiveKernel):
        shares = variances / len(kernel.kernels)
        return any([_start_scale(part, x, shares) for part in kernel.kernels])
    if isinstance(kernel, MultitaskKernel | DecomposableKernel):
        tasks = kernel.task_covar_module
        if isinstance(tasks, IndexKernel) and len(variances) == len(tasks.covar_factor):
            _start_tasks(tasks, variances)
            _start_scale(kernel.data_covar_module, x, torch.ones_like(variances[:1]))
            return True
    level = float(kernel(x, diag=True).double().mean())
    if not math.isfinite(level) or level <= 0.0:
        return False
    return _multiply(kernel, float(variances.mean()) / level)


def _start_tasks(tasks: IndexKernel, variances: Tensor) -> None:
    """Scale the rows of the covariance of tasks to the variances of the outputs; correlations stay."""
    if not tasks.covar_factor.requires_grad:
        return
    factor = tasks.covar_factor
    present = factor.square().sum(-1) + tasks.var
    ratio = (variances / present.double()).to(factor)
    factor.mul_(ratio.sqrt().unsqueeze(-1))
    set_within(tasks, "var", tasks.var * ratio)


def _multiply(kernel: Kernel, factor: float) -> bool:
    """Multiply a kernel by a number through one of its parameters; whether it has one."""
    names = {ScaleKernel: "outputscale", LinearKernel: "variance", ConstantKernel: "constant"}
    names[SpectralMixtureKernel] = "mixture_weights"
    for kind, name in names.items():
        if isinstance(kernel, kind) and getattr(kernel, f"raw_{name}").requires_grad:
            set_within(kernel, name, factor * getattr(kernel, name).double())
            return True
    if isinstance(kernel, IndexKernel) and kernel.covar_factor.requires_grad:
        kernel.covar_factor.mul_(math.sqrt(factor))
        set_within(kernel, "var", factor * kernel.var.double())
        return True
    if isinstance(kernel, ProductKernel):
        return any(_multiply(part, factor) for part in kernel.kernels)
    return isinstance(kernel, ScaleKernel) and _multiply(kernel.base_kernel, factor)
