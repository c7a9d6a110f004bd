"""Validation of what users pass in: a ValueError says what was expected, what came and what to do."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor


def positive_integer(name: str, value: Any, largest: int | None = None) -> int:
    """Return ``value`` as an int, or raise where it is not an integer in 1..largest."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    whole = not isinstance(value, bool) and isinstance(value, int | float) and float(value).is_integer()
    if not whole or value < 1 or (largest is not None and value > largest):
        limit = "a positive integer" if largest is None else f"an integer from 1 to {largest}"
        raise ValueError(f"expected {limit} for {name}, got {value!r}; choose another {name}")
    return int(value)


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return ``value``, or raise where it is not one of the allowed strings."""
    if value not in allowed:
        raise ValueError(f"expected one of {', '.join(allowed)} for {name}, got {value!r}; choose one of these")
    return value


def product_dtype(value: Any) -> torch.dtype:
    """Return the dtype of Gram products, or raise where it is neither float32 nor float64."""
    if value not in (torch.float32, torch.float64):
        raise ValueError(
            f"expected torch.float32 or torch.float64 for product_dtype, got {value!r}; others lose the digits of sums"
        )
    return value


def weight_dtype(value: Any) -> torch.dtype:
    """Return a real floating-point dtype, the default one for None, or raise."""
    if value is None:
        return torch.get_default_dtype()
    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        raise ValueError(f"expected a real floating-point dtype, got {value!r}; use torch.float64 or torch.float32")
    return value


def generator(value: Any) -> torch.Generator | None:
    """Return a CPU generator or None, or raise."""
    if value is not None and (not isinstance(value, torch.Generator) or value.device.type != "cpu"):
        got = f"one on {value.device}" if isinstance(value, torch.Generator) else repr(value)
        raise ValueError(
            f"expected a CPU torch.Generator or None for generator, got {got}; use torch.Generator().manual_seed(seed)"
        )
    return value


def flag(name: str, value: Any) -> bool:
    """Return ``value``, or raise where it is neither True nor False."""
    if not isinstance(value, bool):
        raise ValueError(f"expected True or False for {name}, got {value!r}; choose one")
    return value


def number(name: str, value: Any, above: float = 0.0) -> float:
    """Return ``value`` as a float, or raise where it is not a finite number above a bound."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not above < value < float("inf"):
        raise ValueError(f"expected a finite number above {above:g} for {name}, got {value!r}; choose another {name}")
    return float(value)


def inputs(x: Any, input_dim: int | None = None, name: str = "x") -> Tensor:
    """Return floating-point inputs of shape (..., N, d) with N > 0, or raise; values are not looked at."""
    if not isinstance(x, Tensor):
        raise ValueError(f"expected a torch.Tensor for {name}, got {type(x).__name__}; use torch.as_tensor")
    if not x.is_floating_point():
        raise ValueError(f"expected floating-point {name}, got {x.dtype}; convert with {name}.double() or .float()")
    if x.dim() < 2:
        raise ValueError(f"expected {name} of shape (..., N, d), got {tuple(x.shape)}; use {name}.unsqueeze(-1)")
    if x.shape[-2] == 0:
        raise ValueError(f"expected at least one row in {name}, got shape {tuple(x.shape)}; pass non-empty data")
    if input_dim is not None and x.shape[-1] != input_dim:
        raise ValueError(
            f"expected {name} with {input_dim} columns, got {x.shape[-1]}; pass the inputs that the features were "
            "made for, or make new ones"
        )
    return x


def finite(x: Tensor, name: str = "x") -> Tensor:
    """Return ``x``, or raise where it has NaN or infinite entries."""
    if not bool(torch.isfinite(x.sum())) and not bool(torch.isfinite(x).all()):
        bad = int((~torch.isfinite(x)).sum())
        raise ValueError(f"expected finite values in {name}, got {bad} NaN or infinite ones; remove or impute them")
    return x


def no_overflow(values: Tensor, x: Tensor) -> Tensor:
    """Return what was computed from finite inputs x, or raise where it is not finite."""
    known = values.detach()
    if not bool(torch.isfinite(known.sum())) and not bool(torch.isfinite(known).all()):
        finite(x.detach())
        raise overflow(x)
    return values


def overflow(x: Tensor) -> ValueError:
    """What to raise where features of finite inputs are not finite."""
    largest = float(x.detach().abs().max())
    return ValueError(
        f"expected inputs whose features are finite in {x.dtype}, got entries up to {largest:.3g}, with which "
        "they overflow; rescale the inputs, or use float64"
    )


def same_kind(x: Tensor, reference: Tensor, name: str, reference_name: str) -> Tensor:
    """Return ``x``, or raise where its device or real precision differs from the reference's."""
    if x.device != reference.device:
        raise ValueError(
            f"expected {name} on {reference.device}, where {reference_name} is, got {x.device}; "
            f"move it with .to({str(reference.device)!r})"
        )
    if x.dtype.to_real() != reference.dtype.to_real():
        raise ValueError(
            f"expected {name} of dtype {reference.dtype} as {reference_name} has, got {x.dtype}; "
            "convert one of the two with .to(dtype)"
        )
    return x


def targets(y: Any, x: Tensor, name: str = "y") -> Tensor:
    """Return finite real or complex targets of shape (N,) for inputs of shape (N, d), or raise."""
    if not isinstance(y, Tensor):
        raise ValueError(f"expected a torch.Tensor for {name}, got {type(y).__name__}; use torch.as_tensor")
    if not (y.is_floating_point() or y.is_complex()):
        raise ValueError(f"expected floating-point or complex {name}, got {y.dtype}; convert with {name}.double()")
    if y.shape != x.shape[:-1]:
        raise ValueError(f"expected {name} of shape {tuple(x.shape[:-1])}, one per row of x, got {tuple(y.shape)}")
    same_kind(y, x, name, "x")
    return finite(y, name)


def labels(y: Any, x: Tensor, num_classes: int, name: str = "y") -> Tensor:
    """Return integer class labels of shape (N,) in 0..num_classes - 1, or raise."""
    if not isinstance(y, Tensor) or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        got = y.dtype if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(f"expected integer class labels for {name}, got {got}; convert with {name}.long()")
    if y.shape != x.shape[:-1]:
        raise ValueError(f"expected {name} of shape {tuple(x.shape[:-1])}, one per row of x, got {tuple(y.shape)}")
    if y.device != x.device:
        raise ValueError(f"expected {name} on {x.device}, where x is, got {y.device}; move it with .to({x.device!s})")
    if y.numel() and (int(y.min()) < 0 or int(y.max()) >= num_classes):
        raise ValueError(
            f"expected labels from 0 to {num_classes - 1} in {name}, got {int(y.min())} to {int(y.max())}; "
            "fit with a likelihood that knows all classes"
        )
    return y.long()


def noise(value: Any, x: Tensor, name: str = "noise") -> Tensor:
    """Return positive finite noise variances of shape (N,), or raise."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"expected a floating-point tensor for {name}, got {got}; pass one variance per row")
    if value.shape != x.shape[:-1]:
        raise ValueError(f"expected {name} of shape {tuple(x.shape[:-1])}, one per row of x, got {tuple(value.shape)}")
    same_kind(value, x, name, "x")
    finite(value.detach(), name)
    if bool((value <= 0).any()):
        raise ValueError(f"expected positive {name} variances, got a smallest one of {float(value.min()):g}")
    return value


def fits_in_memory(num_bytes: float, what: str, advice: str) -> None:
    """Raise where something needs more than the physical memory of the machine (8 GiB where that is not known)."""
    known = hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if known else 2**33
    if num_bytes > available:
        raise ValueError(
            f"expected {what} to fit in {available / 2**30:.1f} GiB of memory, got a need of {num_bytes / 2**30:.1f} "
            f"GiB; {advice}"
        )


def series(coefficients: Any) -> Tensor:
    """Return the coefficients a_0, a_1, ... of a dot-product kernel, or raise where they are not those of one."""
    values = torch.as_tensor(coefficients)
    is_finite = values.dim() == 1 and len(values) > 1 and bool(torch.isfinite(values).all())
    if not is_finite or bool((values < 0).any()) or not bool((values[1:] > 0).any()):
        raise ValueError(
            f"expected finite non-negative coefficients a_0, a_1, ... with a positive one beyond a_0, got "
            f"{values.tolist()}; others give no kernel, or a constant one"
        )
    return values
