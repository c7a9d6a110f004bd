"""What the parts of a weight-space model have to agree in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from gpytorch.means import ConstantMean, LinearMean, Mean, MultitaskMean

from ...inference import NoiseModel
from ...inference.sums.grid_statistics import check_not_wide
from ...inference.sums.mean_basis import batch_shape, check_output_mean, num_columns
from ...inference.sums.sufficient_statistics import SufficientStatistics
from ...kernels import LinearlyObservedKernel
from ...kernels.observation import check_observed_mean
from .conditioned import checked
from .further_draws import check_draws

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel
    from .model import WeightSpaceGP


def check_parts(model: WeightSpaceGP) -> None:
    """Raise a ValueError where kernel, likelihood, mean and settings of a model do not go together."""
    noise = model.noise_if_known
    kernel, mean, has_blocks = model.covar_module, model.mean_module, model.block_size is not None
    check_observed_mean(kernel, mean)
    if noise is None:
        _check_output_kernel(kernel, mean)
    else:
        check_scalar_kernel(kernel, mean, noise)
    if has_blocks:
        _check_local_kernel(kernel, noise)
    if model.residual != "none":
        _check_residual(kernel, noise, has_blocks)
    if model.is_whitened or model.residual == "vfe":
        check_not_wide(kernel, noise, f'residual="{model.residual}"')
    check_draws(kernel, model.num_draws, has_blocks)


def _check_output_kernel(kernel: FeatureKernel, mean: Mean) -> None:
    """Raise a ValueError where a kernel of several outputs has batch dimensions, or a mean that is not one of them."""
    shape: Any = kernel.batch_shape
    if shape:
        raise ValueError(
            f"expected a kernel of several outputs without batch dimensions, got {tuple(shape)}; make a model for each"
        )
    parts = [part for part in kernel.modules() if isinstance(part, LinearlyObservedKernel)]
    is_for_all = isinstance(mean, ConstantMean | LinearMean)
    if is_for_all and any(len(part.operators) > 1 for part in parts):
        raise ValueError(
            f"expected a mean for every observed quantity, got one {type(mean).__name__} for all; use a MultitaskMean, "
            "for instance of a ConstantMean for values and ZeroMeans for derivatives"
        )


def check_scalar_kernel(kernel: FeatureKernel, mean: Mean, noise: NoiseModel) -> None:
    """Raise a ValueError where a scalar kernel or its mean have batch dimensions that are not those of classes."""
    if isinstance(mean, MultitaskMean) and noise.is_of_parts:
        check_output_mean(mean, noise.num_outputs)
    elif isinstance(mean, MultitaskMean):
        raise ValueError(
            "expected a ZeroMean, ConstantMean or LinearMean for a scalar kernel, got a MultitaskMean; use a kernel of "
            "several outputs, such as a MultitaskKernel"
        )
    allowed = [torch.Size(), torch.Size([noise.num_systems])] if noise.is_batched else [torch.Size()]
    found, inner = [kernel.scale_shape, batch_shape(mean)], kernel.unscaled
    if inner.batch_shape or any(shape not in allowed for shape in found):
        shape = inner.batch_shape or next(shape for shape in found if shape not in allowed)
        raise ValueError(
            f"expected batch shapes () or (C,) of output scale and mean, and () inside the features, got "
            f"{tuple(shape)}; batch only the ScaleKernel and the mean, over classes"
        )


def _check_local_kernel(kernel: FeatureKernel, noise: NoiseModel | None) -> None:
    """Raise a ValueError where what the features of a kernel leave over cannot be modeled inside blocks."""
    if not kernel.has_residual_covariance:
        raise ValueError(
            "expected landmarks for block_size, whose features leave over a process of their own, got other features; "
            'use rfgp.approximate(kernel, num_features, method="landmarks", train_inputs=x)'
        )
    if (noise is not None and (noise.is_complex or noise.is_of_parts)) or kernel.batch_shape:
        raise ValueError(
            "expected real targets and a kernel without batch dimensions for block_size, got others; leave block_size "
            "out"
        )


def _check_residual(kernel: FeatureKernel, noise: NoiseModel | None, has_blocks: bool) -> None:
    """Raise a ValueError where training cannot take account of the residual variance of the features."""
    if has_blocks:
        raise ValueError('expected residual="none" beside block_size, whose blocks contain it; leave one of them out')
    if noise is None or noise.num_systems * noise.num_outputs > 1 or noise.is_complex or kernel.batch_shape:
        raise ValueError(
            "expected one output with Gaussian or fixed noise for residual, got class labels or several outputs; use "
            'residual="none"'
        )


def check_statistics(statistics: SufficientStatistics, model: WeightSpaceGP) -> None:
    """Raise a ValueError where statistics cannot be those of a model."""
    kernel, noise = model.features, model.noise
    if model.block_size is not None:
        return
    noise.check_groups(statistics)
    num_targets = num_columns(model.mean_module) + noise.num_outputs + (model.residual == "vfe")
    wanted = kernel.num_scalar_features, num_targets
    found = statistics.num_features, len(statistics.shift)
    if found != wanted:
        raise ValueError(
            f"expected statistics of {wanted[0]} features and {wanted[1]} target columns (the targets and the mean's "
            f"basis), got {found[0]} and {found[1]}; make them with this kernel and mean"
        )
    has_complex_targets = statistics.shift.is_complex()
    kinds = statistics.has_complex_features or has_complex_targets, has_complex_targets
    if kinds != (kernel.is_complex or noise.is_complex, noise.is_complex):
        raise ValueError(
            f"expected {'complex' if kernel.is_complex else 'real'} features and "
            f"{'complex' if noise.is_complex else 'real'} targets in the statistics, got others; make them with this "
            "kernel and likelihood"
        )


def check_alike(model: WeightSpaceGP, other: Any) -> None:
    """Raise a ValueError where the rows of another model cannot be added to those of a model."""
    names = ("block_size", "residual", "num_draws", "num_outputs")
    strange = [name for name in names if getattr(model, name) != getattr(other, name)]
    kinds = ("likelihood", "mean_module")
    strange += [name for name in kinds if type(getattr(model, name)) is not type(getattr(other, name))]
    strange += ["num_classes"] if model.noise.num_systems != other.noise.num_systems else []
    if not strange:
        mine, theirs = ((one, *one.further_draws.of(one)) for one in (model, other))
        for first, second in zip(mine, theirs, strict=True):
            strange += checked(second).record.changes(checked(first).record.tensors)
    if strange:
        raise ValueError(
            f"expected models with the same features to merge, got another {', '.join(dict.fromkeys(strange))}; "
            "load the state_dict of one model into the others before they are fitted"
        )
