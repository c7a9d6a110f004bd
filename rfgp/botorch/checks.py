"""Checks of what a model for BoTorch is given."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.likelihoods import DirichletClassificationLikelihood
from torch import Tensor

from .._support import checks
from ..models import WeightSpaceGP


def check_training_data(x: Tensor, y: Tensor, noise: Tensor | None) -> None:
    """Raise a ValueError where targets are not columns of finite numbers with a row for each of the inputs."""
    checks.inputs(x, name="train_X")
    if x.dim() != 2:
        raise ValueError(
            f"expected train_X of shape (N, d), got {tuple(x.shape)}; make a model for each batch, and a ModelListGP "
            "of them"
        )
    for name, values in (("train_Y", y), ("train_Yvar", noise)):
        if values is not None or name == "train_Y":
            checks.same_kind(checks.floating(values, name), x, name, "train_X")
    if y.dim() != 2 or y.shape[:-1] != x.shape[:-1] or not y.shape[-1]:
        raise ValueError(
            f"expected train_Y of shape {(*x.shape[:-1], 'm')}, got {tuple(y.shape)}; pass a column for every output"
        )
    if noise is not None and noise.shape != y.shape:
        raise ValueError(f"expected train_Yvar of shape {tuple(y.shape)}, got {tuple(noise.shape)}; pass variances")


def check_model(gp: WeightSpaceGP) -> None:
    """Raise a ValueError where a model has no posterior of the weights that further rows can update."""
    checks.instance("gp", gp, WeightSpaceGP, "a WeightSpaceGP", "make one of a kernel and a likelihood")
    is_simple = gp.block_size is None and gp.num_draws == 1 and not gp.covar_module.is_complex
    if not is_simple or isinstance(gp.likelihood, DirichletClassificationLikelihood):
        raise ValueError(
            "expected a model of real features and targets with one draw of the weights and without blocks, got "
            "another; leave out block_size and num_draws, and use the :ctr form of complex features"
        )


def check_points(x: Tensor, batch_shape: torch.Size) -> None:
    """Raise a ValueError where points are not finite, or their batch does not go with that of the observations."""
    checks.finite(checks.inputs(x, name="X").detach(), "X")
    try:
        torch.broadcast_shapes(x.shape[:-2], batch_shape)
    except RuntimeError:
        raise ValueError(
            f"expected X of shape (..., q, d) whose batch goes with {tuple(batch_shape)}, that of the observations, "
            f"got {tuple(x.shape)}; give X dimensions of size one"
        ) from None


def check_observations(x: Tensor, y: Tensor, num_outputs: int) -> None:
    """Raise a ValueError where further observations are not finite columns (..., q, m) with a row for each input."""
    checks.inputs(x, name="X")
    checks.floating(y, "Y")
    if y.shape[-1:] != (num_outputs,) or x.shape[-2:-1] != y.shape[-2:-1]:
        raise ValueError(
            f"expected X (..., q, d) and Y (..., q, {num_outputs}), got {tuple(x.shape)} and {tuple(y.shape)}; give "
            "every output a column"
        )
    checks.finite(x.detach(), "X")
    checks.finite(y.detach(), "Y")


def checked_noise(noise: Tensor, x: Tensor, num_outputs: int) -> Tensor:
    """Noise variances, or a ValueError where they are not those of rows (..., q, m)."""
    checks.same_kind(checks.floating(noise, "noise"), x, "noise", "X")
    if noise.dim() < 2 or noise.shape[-2] not in (1, x.shape[-2]) or noise.shape[-1] not in (1, num_outputs):
        raise ValueError(
            f"expected noise variances of shape (..., {x.shape[-2]}, {num_outputs}), got {tuple(noise.shape)}; give "
            "every output a column"
        )
    if not bool((noise >= 0).all()):
        raise ValueError(f"expected noise variances of at least 0, got {float(noise.min()):g}; correct them")
    return noise


def output_numbers(outputs: Any, count: int) -> list[int]:
    """Numbers of outputs from 0, or a ValueError where there are no such outputs."""
    if not isinstance(outputs, list | tuple) or not all(type(index) is int for index in outputs):
        raise ValueError(f"expected a list of numbers of outputs, got {outputs!r}; such as [0]")
    if not outputs or not all(-count <= index < count for index in outputs):
        raise ValueError(f"expected numbers from 0 to {count - 1} of outputs, got {outputs}; correct them")
    return [index % count for index in outputs]
