"""Validation of what users pass in: a ValueError says what was expected, what came and what to do."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from linear_operator.utils.errors import NanError
from torch import Generator, Tensor

from .torch_names import has_values

_LARGEST_SEED = 2**63 - 1
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Integers that PyTorch can hold, and neither compare nor sort."""


class NotFiniteError(ValueError, NanError):
    """Values that are not finite: a NanError of GPyTorch, after which line searches such as BoTorch's step back."""


def is_own(error: Exception) -> bool:
    """Whether an error is one of rfgp's, which says what was expected."""
    return isinstance(error, ValueError) and str(error).startswith("expected ")


def instance(name: str, value: Any, kinds: type | tuple[type, ...], what: str, advice: str) -> None:
    """Raise where ``value`` is not of one of the kinds; ``what`` and ``advice`` say in words what it has to be."""
    if not isinstance(value, kinds):
        got = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise ValueError(f"expected {what} for {name}, got {got}; {advice}")


def flag(name: str, value: Any) -> bool:
    """Return ``value``, or raise where it is neither True nor False."""
    if not isinstance(value, bool):
        raise ValueError(f"expected True or False for {name}, got {value!r}; choose one of the two")
    return value


def no_bar(progress: Any) -> bool | None:
    """Whether a bar stays away: what tqdm takes as ``disable``, None for terminals alone, or raise."""
    return None if progress is None else not flag("progress", progress)


def part(name: str, value: Any, what: str) -> None:
    """Raise where ``value`` is neither None nor a module, such as a prior or a constraint, which ``what`` names."""
    if value is not None:
        instance(name, value, torch.nn.Module, f"None or {what}", f"make one by its class, such as {what}")


def seed(value: Any, name: str = "seed") -> int:
    """Return ``value`` as an int, or raise where it is not an integer from 0 to 2^63 - 1."""
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_whole or not 0 <= value <= _LARGEST_SEED:
        raise ValueError(f"expected an integer from 0 to 2^63 - 1 for {name}, got {value!r}; choose one such as 0")
    return int(value)


def generator(value: Any, name: str = "generator") -> Generator | None:
    """Return ``value``, or raise where it is neither a CPU generator nor None."""
    if value is not None and not (isinstance(value, Generator) and value.device.type == "cpu"):
        got = f"one on {value.device}" if isinstance(value, Generator) else repr(value)
        raise ValueError(f"expected a CPU generator for {name}, got {got}; use torch.Generator().manual_seed(0)")
    return value


def positive(name: str, value: Any, advice: str = "choose a finite number above 0") -> float:
    """Return ``value`` as a float, or raise where it is not a positive finite number."""
    result = number(value)
    if not 0.0 < result < math.inf:
        raise ValueError(f"expected a positive {name}, got {value!r}; {advice}")
    return result


def share(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise where it is not between 0 and 1."""
    result = number(value)
    if not 0.0 < result < 1.0:
        raise ValueError(f"expected a {name} between 0 and 1, got {value!r}; such as 0.95")
    return result


def number(value: Any) -> float:
    """``value`` as a float, and NaN where it is no number."""
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_meta:
        value = value.item()
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    try:
        return float(value) if is_real else math.nan
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def positive_integer(name: str, value: Any, largest: int | None = None) -> int:
    """Return ``value`` as an int, or raise where it is not an integer in 1..largest, or of 2^63 and more."""
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_meta:
        value = value.item()
    whole = not isinstance(value, bool) and isinstance(value, int | float) and number(value).is_integer()
    if not whole or not 1 <= value <= (_LARGEST_SEED if largest is None else largest):
        limit = "a positive integer" if largest is None else f"an integer from 1 to {largest}"
        raise ValueError(f"expected {limit} for {name}, got {value!r}; choose another {name}")
    return int(value)


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return ``value``, or raise where it is not one of the allowed strings."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"expected one of {', '.join(allowed)} for {name}, got {value!r}; choose one of these")
    return value


def names(name: str, value: Any, count: int | None = None) -> tuple[str, ...]:
    """Return ``value`` as a tuple, or raise where it is not a sequence of strings, of ``count`` where that is given."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(v, str) for v in value)
    if not is_list or (count is not None and len(value) != count):
        wanted = "a list of strings" if count is None else f"a list of {count} strings"
        raise ValueError(f"expected {wanted} for {name}, got {value!r}; pass one name for each")
    return tuple(value)


def path(name: str, value: Any) -> None:
    """Raise where ``value`` is neither None nor the name of a file or directory."""
    if value is not None:
        instance(name, value, (str, os.PathLike), "a path", "pass a string or a pathlib.Path")


def file(name: str, value: Any, what: str) -> None:
    """Raise where ``value`` is not the name of a file."""
    instance(name, value, (str, os.PathLike), "a path", "pass a string or a pathlib.Path")
    if os.path.isdir(value):
        raise ValueError(f"expected a file that {what}, got the folder {os.fspath(value)!r}; name the file in it")


def shape(value: Any, name: str = "shape") -> tuple[int, ...]:
    """Return ``value`` as a tuple, or raise where it is not a sequence of integers of at least 0."""
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if not is_sequence or not all(type(n) is int and n >= 0 for n in value):
        raise ValueError(f"expected a sequence of integers of at least 0 for {name}, got {value!r}; such as (3,)")
    return tuple(value)


def floating_dtype(name: str, value: Any) -> torch.dtype:
    """Return ``value``, or raise where it is not a real floating-point dtype."""
    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        raise ValueError(f"expected a floating-point dtype for {name}, got {value!r}; use torch.float64")
    return value


def tensor(value: Any, name: str) -> Tensor:
    """Return ``value``, or raise where it is not a dense tensor that holds numbers."""
    if not isinstance(value, Tensor):
        raise ValueError(f"expected a torch.Tensor for {name}, got {type(value).__name__}; use torch.as_tensor")
    if value.layout is not torch.strided:
        raise ValueError(f"expected a dense {name}, got one of layout {value.layout}; use {name}.to_dense()")
    if value.is_meta:
        raise ValueError(f"expected {name} with numbers, got a tensor on the meta device, which has none; pass data")
    return value


def floating(value: Any, name: str) -> Tensor:
    """Return ``value``, or raise where it is not a dense tensor of real floating-point numbers."""
    if not tensor(value, name).is_floating_point():
        raise ValueError(f"expected floating-point {name}, got {value.dtype}; convert with {name}.double() or .float()")
    return value


def summed_dtype(x: Tensor) -> None:
    """Raise where sums over rows x would lose nearly all digits."""
    if x.dtype == torch.bfloat16:
        raise ValueError(f"expected rows of float64, float32 or float16, got {x.dtype}; convert model and rows first")


def product_dtype(value: Any) -> torch.dtype:
    """Return the dtype of Gram products, or raise where it is neither float32 nor float64."""
    if value not in (torch.float32, torch.float64):
        raise ValueError(
            f"expected torch.float32 or torch.float64 for product_dtype, got {value!r}; others lose the digits of sums"
        )
    return value


def weight_dtype(value: Any) -> torch.dtype:
    """Return a real floating-point dtype, the default one for None, or raise."""
    return torch.get_default_dtype() if value is None else floating_dtype("dtype", value)


def inputs(x: Any, input_dim: int | None = None, name: str = "x") -> Tensor:
    """Return floating-point inputs of shape (..., N, d) with N > 0, or raise; values are not looked at."""
    if type(x) is not Tensor or not x.is_floating_point() or x.layout is not torch.strided or x.is_meta:
        floating(x, name)
    if x.dim() < 2:
        row, column = f"{name}.unsqueeze(0) for a single row", f"{name}.unsqueeze(-1) for a single column"
        advice = row if input_dim not in (None, 1) else f"{row}, or {column}"
        raise ValueError(f"expected {name} of shape (..., N, d), got {tuple(x.shape)}; use {advice}")
    if x.shape[-2] == 0:
        raise ValueError(f"expected at least one row in {name}, got shape {tuple(x.shape)}; pass non-empty data")
    if x.shape[-1] == 0:
        raise ValueError(f"expected at least one column in {name}, got shape {tuple(x.shape)}; pass inputs")
    if input_dim is not None and x.shape[-1] != input_dim:
        if x.shape[-2:] == (input_dim, 1):
            advice = f"use {name}.unsqueeze(0) for a single row of {input_dim} numbers, before it is a column"
        else:
            advice = "pass the inputs that the features were made for, or make new ones"
        raise ValueError(f"expected {name} with {input_dim} columns, got {x.shape[-1]}; {advice}")
    return x


def columns(x: Any) -> Any:
    """Inputs of shape (N,) as a column (N, 1), as GPyTorch takes them; anything else as it is."""
    return x.unsqueeze(-1) if isinstance(x, Tensor) and x.dim() == 1 else x


def finite(x: Tensor, name: str = "x") -> Tensor:
    """Return ``x``, or raise where it has NaN or infinite entries."""
    if has_values() and not bool(torch.isfinite(x.sum())) and not bool(torch.isfinite(x).all()):
        bad = int((~torch.isfinite(x)).sum())
        raise ValueError(f"expected finite values in {name}, got {bad} NaN or infinite ones; remove or impute them")
    return x


def no_overflow(values: Tensor, x: Tensor, module: torch.nn.Module | None = None) -> Tensor:
    """Return what a module computed from finite inputs x, or raise where it is not finite."""
    numbers = values.detach()
    if has_values() and not bool(torch.isfinite(numbers.sum())) and not bool(torch.isfinite(numbers).all()):
        finite(x.detach())
        raise overflow(x, module)
    return values


def overflow(x: Tensor, module: torch.nn.Module | None = None) -> NotFiniteError:
    """What to raise where features of finite inputs are not finite: a parameter is not, or the inputs are large."""
    for name, value in () if module is None else module.named_parameters():
        numbers = value.detach()
        if not bool(torch.isfinite(numbers).all()):
            got = float(numbers[~torch.isfinite(numbers)][0])
            return NotFiniteError(f"expected finite parameters, got {got:g} in {name}; set it to finite values")
    largest = float(x.detach().abs().max())
    return NotFiniteError(
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
    if x.dtype != reference.dtype and has_values() and x.dtype.to_real() != reference.dtype.to_real():
        raise ValueError(
            f"expected {name} of dtype {reference.dtype} as {reference_name} has, got {x.dtype}; "
            "convert one of the two with .to(dtype)"
        )
    return x


def one_per_row(values: Tensor, x: Tensor, name: str) -> Tensor:
    """Return ``values``, or raise where they are not one per row of x."""
    if values.shape != x.shape[:-1]:
        raise ValueError(
            f"expected {name} of shape {tuple(x.shape[:-1])}, one per row of x, got {tuple(values.shape)}; "
            "pass as many, in one dimension"
        )
    return values


def targets(y: Any, x: Tensor, name: str = "y") -> Tensor:
    """Return finite real or complex targets of shape (N,) for inputs of shape (N, d), or raise."""
    tensor(y, name)
    if not (y.is_floating_point() or y.is_complex()):
        raise ValueError(f"expected floating-point or complex {name}, got {y.dtype}; convert with {name}.double()")
    one_per_row(y, x, name)
    same_kind(y, x, name, "x")
    return finite(y, name)


def integers(value: Any, name: str, what: str = "values") -> Tensor:
    """Return ``value``, or raise where it is not a dense tensor of integers."""
    is_other = isinstance(value, Tensor) and (
        value.is_floating_point() or value.is_complex() or value.dtype == torch.bool
    )
    if not isinstance(value, Tensor) or is_other or value.dtype in _UNSIGNED:
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"expected integer {what} for {name}, got {got}; convert with torch.as_tensor and .long()")
    return tensor(value, name)


def labels(y: Any, x: Tensor, num_classes: int, name: str = "y") -> Tensor:
    """Return integer class labels of shape (N,) in 0..num_classes - 1, or raise."""
    integers(y, name, "class labels")
    one_per_row(y, x, name)
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
    floating(value, name)
    one_per_row(value, x, name)
    same_kind(value, x, name, "x")
    finite(value.detach(), name)
    if bool((value <= 0).any()):
        raise ValueError(
            f"expected positive {name} variances, got a smallest one of {float(value.min()):g}; correct it"
        )
    return value


def fits_in_memory(num_bytes: float, what: str, advice: str) -> None:
    """Raise where something needs more than the physical memory of the machine (8 GiB where that is not known)."""
    tells_pages = hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if tells_pages else 2**33
    if num_bytes > available:
        raise ValueError(
            f"expected {what} to fit in {available / 2**30:.1f} GiB of memory, got a need of {num_bytes / 2**30:.1f} "
            f"GiB; {advice}"
        )


def real_tensor(values: Any, name: str) -> Tensor:
    """Return a tensor, or other numbers as one in their full precision, or raise where they are not real numbers."""
    if not isinstance(values, Tensor):
        what = type(values).__name__
        try:
            array = np.array(values, order="C")  # in order, where torch asks a pandas Series for its labels
            what = f"text, such as {str(array.flat[0])!r}" if array.dtype.kind in "US" and array.size else what
            result = torch.as_tensor(array)
            values = result.double() if result.is_floating_point() else result
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"expected numbers for {name}, got {what}; pass a tensor or an array") from None
    if tensor(values, name).is_complex() or values.dtype == torch.bool:
        raise ValueError(f"expected real numbers for {name}, got {values.dtype}; convert them")
    return values


def series(coefficients: Any) -> Tensor:
    """Return the coefficients a_0, a_1, ... of a dot-product kernel, or raise where they are not those of one."""
    values = real_tensor(coefficients, "coefficients")
    is_finite = values.dim() == 1 and len(values) > 1 and bool(torch.isfinite(values).all())
    if not is_finite or bool((values < 0).any()) or not bool((values[1:] > 0).any()):
        raise ValueError(
            f"expected finite non-negative coefficients a_0, a_1, ... with a positive one beyond a_0, got "
            f"{values.tolist()}; others give no kernel, or a constant one"
        )
    return values
