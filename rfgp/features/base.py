"""The contract of every random feature map, and what polynomial sketches share."""

from __future__ import annotations

import abc
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Generator, Tensor

from .. import _checks, _state

_MAX_DEGREE = 20


class Moments(NamedTuple):
    r"""Second moments of a kernel estimate :math:`\hat k(x, y)`, each of shape (..., N, M).

    ``variance`` is :math:`E|\hat k - E \hat k|^2` and ``pseudo_variance`` is :math:`E(\hat k - E \hat k)^2`; for real
    maps the two agree.
    """

    variance: Tensor
    pseudo_variance: Tensor


class FeatureMap(torch.nn.Module, abc.ABC):
    r"""A random function :math:`\phi` with :math:`E[\phi(x) \phi(y)^H] = k(x, y)`; it has buffers and no parameters.

    :param input_dim: the number of columns d of the inputs.
    :param num_features: the number of columns D that come out; complex columns for complex maps.
    :param is_complex: whether the features are complex.
    :param generator: a CPU generator for the weights; PyTorch's default one where it is None.

    Weights are drawn in float64 on the CPU, so that one seed gives the same map on every device. They are rounded once,
    to the dtype that a map is made with (the default dtype where it is None), and follow ``.to()``: a map for float64
    inputs is made with ``dtype=torch.float64``, since ``.double()`` does not bring back what was rounded.
    """

    is_unbiased: bool = True
    """Whether ``target`` is the kernel that was asked for, and not one close to it."""
    has_unbiased_columns: bool = False
    """Whether every column alone, times the root of D, estimates the kernel without bias."""

    def __init__(self, input_dim: int, num_features: int, is_complex: bool = False) -> None:
        super().__init__()
        self.input_dim = _checks.positive_integer("input_dim", input_dim)
        self.num_features = _checks.positive_integer("num_features", num_features)
        self.is_complex = _checks.flag("is_complex", is_complex)
        self._draws = 0

    def forward(self, x: Tensor, **law: Tensor) -> Tensor:
        r"""Features of x, scaled so that :math:`\phi(x) \phi(y)^H` estimates the kernel.

        :param x: (..., N, d), of the dtype of the weights.
        :param law: kernel parameters that do not act through the inputs, for maps that have some; differentiable.
        :returns: (..., N, D); complex64 or complex128 for complex maps.
        :raises ValueError: where x has the wrong dtype, device or number of columns, or no rows.
        """
        if self.is_complex:
            return torch.complex(*self.planes(x, **law))
        return self._rows(x, **law)

    def planes(self, x: Tensor, **law: Tensor) -> tuple[Tensor, Tensor]:
        """Real and imaginary part of the features of a complex map, without a complex tensor of their size.

        :param x: (..., N, d).
        :param law: as for ``forward``.
        :returns: two (..., N, D) tensors: the left and the right half of one (..., N, 2 D) tensor.
        :raises ValueError: where the map is real.
        """
        if not self.is_complex:
            raise ValueError("expected a complex map for planes(), got a real one; call the map itself")
        real, imaginary = self._rows(x, **law).chunk(2, dim=-1)
        return real, imaginary

    @abc.abstractmethod
    def target(self, x: Tensor, y: Tensor, **law: Tensor) -> Tensor:
        """The exact kernel that the map approximates, (..., N, d) and (..., M, d) to (..., N, M)."""

    def moments(self, x: Tensor, y: Tensor, **law: Tensor) -> Moments | None:
        """Variance and pseudo-variance of the kernel estimate in closed form, or None where there is none.

        :param x: (..., N, d).
        :param y: (..., M, d).
        :param law: as for ``forward``.
        :raises ValueError: for bad inputs.
        """
        self._check_pair(x, y)
        return None

    @property
    @abc.abstractmethod
    def operations(self) -> float:
        """Real multiplications for the features of one input, to leading order: a prediction of the cost."""

    @property
    def draws(self) -> int:
        """How many times the weights have been replaced, by ``resample`` or ``load_state_dict``; caches compare it."""
        return sum(part._draws for part in self.modules() if isinstance(part, FeatureMap))

    def resample(self, generator: Generator | None = None) -> Self:
        """Draw new weights in place, and return the map.

        :param generator: a CPU generator; PyTorch's default one where it is None.
        """
        with weights_kept_on_error(self):
            for name, weight in self._draw(_checks.generator(generator)).items():
                getattr(self, name).copy_(weight)
            self._draws += 1
        return self

    @classmethod
    @abc.abstractmethod
    def examples(cls) -> Sequence[FeatureMap]:
        """Instances for the generic tests: every option, and widths on both sides of every case distinction."""

    @abc.abstractmethod
    def _draw(self, generator: Generator | None) -> dict[str, Tensor]:
        """New weights by buffer name: float64 (or integer) tensors on the CPU."""

    def _register_weights(self, generator: Generator | None, dtype: torch.dtype | None) -> None:
        stored = _checks.weight_dtype(dtype)
        for name, weight in self._draw(_checks.generator(generator)).items():
            self.register_buffer(name, weight.to(stored) if weight.is_floating_point() else weight)

    def _check(self, x: Tensor, name: str = "x") -> Tensor:
        _checks.inputs(x, self.input_dim, name)
        reference = next((b for b in self.buffers() if b.is_floating_point()), None)
        return x if reference is None else _checks.same_kind(x, reference, name, "the feature map")

    def _check_pair(self, x: Tensor, y: Tensor) -> None:
        self._check(x)
        self._check(y, "y")

    @abc.abstractmethod
    def _rows(self, x: Tensor, **law: Tensor) -> Tensor:
        """Features (..., N, D) of inputs that are checked here; [real, imaginary] side by side for complex maps."""

    @property
    def description(self) -> str:
        """Kind, sizes and settings of the map and its parts, without the weights: a state fits maps that share it."""
        maps = [(name, part) for name, part in self.named_modules() if isinstance(part, FeatureMap)]
        texts = [f"{name} {type(part).__name__}({part.extra_repr()})" for name, part in maps]
        return re.sub(r" at 0x[0-9a-f]+", "", "; ".join(texts))

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As for every module, but all or nothing.

        :raises ValueError: for the state of another map; this one stays as it was.
        """
        _state.check(self, state_dict, strict=strict)
        return super().load_state_dict(state_dict, strict, assign)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        _state.check(self, state_dict, prefix)
        before = [buffer.clone() for buffer in self.buffers(recurse=False)]
        super()._load_from_state_dict(state_dict, prefix, *args)
        pairs = zip(before, self.buffers(recurse=False), strict=True)
        self._draws += any(not torch.equal(old, new) for old, new in pairs)

    def prepare_for(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Raise a ValueError where a state, whose names begin with ``prefix``, is that of another map."""
        saved, own = state.get(f"{prefix}_extra_state"), self.get_extra_state()
        if saved is None or torch.equal(saved.to(own), own):
            return
        sizes = f", of {int(saved[1])} columns for inputs of {int(saved[0])}" if saved.shape == own.shape else ""
        raise ValueError(
            f"expected the state of {type(self).__name__} features ({self.extra_repr()}), got that of others{sizes}; "
            "approximate with the same method, num_features, train_inputs and seed as then, or pickle the model"
        )

    def get_extra_state(self) -> Tensor:
        """What a state has to agree in: the numbers of columns that go in and come out, and a code of the rest."""
        return torch.tensor([self.input_dim, self.num_features, _state.code(self.description)])

    def set_extra_state(self, state: Tensor) -> None:
        """Nothing is left to do where ``prepare_for`` has found the same."""

    def extra_repr(self) -> str:
        return f"input_dim={self.input_dim}, num_features={self.num_features}, is_complex={self.is_complex}"


@contextmanager
def weights_kept_on_error(module: torch.nn.Module) -> Iterator[None]:
    """Where anything is raised, also an interrupt, give all maps inside a module back the weights that they had."""
    maps = [part for part in module.modules() if isinstance(part, FeatureMap)]
    before = [(part, part._draws, {n: b.clone() for n, b in part.named_buffers(recurse=False)}) for part in maps]
    try:
        yield
    except BaseException:
        for part, draws, weights in before:
            part._draws = draws
            for name, weight in weights.items():
                getattr(part, name).copy_(weight)
        raise


class PolynomialSketch(FeatureMap):
    r"""A sketch of the homogeneous polynomial kernel :math:`k(x, y) = (x^\top y)^p` as a product of p linear maps.

    .. math:: \phi(x)_\ell = \prod_{i=1}^p (W_i x)_\ell / \sqrt D

    Concrete sketches say how one factor :math:`W_i x` is computed. Inhomogeneous kernels come from appending the square
    root of the offset to the inputs as one more column.
    """

    has_unbiased_columns = True
    block_bytes: ClassVar[int] = 2 * 2**20
    """The size of a block of rows of features: what suits the cache."""

    def __init__(self, input_dim: int, num_features: int, degree: int, is_complex: bool = False) -> None:
        super().__init__(input_dim, num_features, is_complex)
        self.degree = _checks.positive_integer("degree", degree, largest=_MAX_DEGREE)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, degree={self.degree}"

    def target(self, x: Tensor, y: Tensor, **law: Tensor) -> Tensor:
        r"""The polynomial kernel :math:`(x^\top y)^p`, (..., N, d) and (..., M, d) to (..., N, M)."""
        return (self._check(x) @ self._check(y, "y").mT) ** self.degree

    def forward_pair(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Compact bilinear pooling: features of the outer product :math:`x \otimes y` of two different inputs.

        .. math:: E[\phi(x, y) \phi(x', y')^H] = (x^\top x') (y^\top y')

        :param x: (..., N, d).
        :param y: (..., N, d).
        :returns: (..., N, D).
        :raises ValueError: where the degree of the sketch is not 2.

        Source: T 1.3.1 (Gao et al., 2016).
        """
        return self.forward_tensor(x, y)

    def forward_tensor(self, *factors: Tensor) -> Tensor:
        r"""Features of the tensor product :math:`x_1 \otimes \dots \otimes x_p`, one input per degree.

        :param factors: p tensors of shape (..., N, d).
        :returns: (..., N, D).
        :raises ValueError: where the number of inputs is not the degree, or their shapes differ.
        """
        if len(factors) != self.degree:
            raise ValueError(
                f"expected {self.degree} inputs, one per degree of the sketch, got {len(factors)}; "
                f"make a sketch of degree {len(factors)}"
            )
        for x in factors:
            self._check(x)
        if len({x.shape for x in factors}) > 1:
            raise ValueError(
                f"expected inputs of one shape, got {[tuple(x.shape) for x in factors]}; pair them row by row"
            )
        rows = self._rows(*factors)
        return torch.complex(*rows.chunk(2, dim=-1)) if self.is_complex else rows

    def _rows(self, *factors: Tensor, **law: Tensor) -> Tensor:
        for x in factors:
            self._check(x)
        batch, num_rows = factors[0].shape[:-2], factors[0].shape[-2]
        flat = [x.reshape(-1, self.input_dim) for x in factors]
        rows = blocked(self._columns, flat, self.num_features, self.is_complex, self.block_bytes)
        return rows.reshape(*batch, num_rows, rows.shape[-1])

    def _columns(self, *factors: Tensor, work: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Feature-major product of the p factors, (d, n) each (or one for all), to (D, n).

        ``work`` are two (D, n) tensors of the dtype of the features that may be written to.
        """
        inputs = factors if len(factors) == self.degree else factors * self.degree
        first, other = (None, None) if work is None else work
        result = self._factor(0, inputs[0] * self._scale, first)
        for i in range(1, self.degree):
            factor = self._factor(i, inputs[i], other)
            result = result.mul_(factor) if not result.requires_grad and not factor.requires_grad else result * factor
        return self._finish(result)

    @abc.abstractmethod
    def _factor(self, i: int, x: Tensor, out: Tensor | None = None) -> Tensor:
        """The i-th linear map of feature-major inputs, (d, n) to (D, n), complex for complex maps.

        The result may be written to ``out``, which saves fresh memory, and is not used elsewhere.
        """

    @property
    def _scale(self) -> float:
        """The factor 1/sqrt(D) of the features, applied to the inputs of the first linear map."""
        return 1.0 / math.sqrt(self.num_features)

    def _finish(self, product: Tensor) -> Tensor:
        """What remains to be done with the product of the factors."""
        return product


def blocked(
    columns: Callable[..., Tensor], inputs: Sequence[Tensor], num_features: int, is_complex: bool, block_bytes: int
) -> Tensor:
    """Evaluate a feature-major function on row-major inputs, in blocks of rows that stay in the cache.

    :param columns: takes one (d, n) tensor per input, and working memory, and returns (D, n) features, real or complex.
    :param inputs: (N, d) tensors.
    :param num_features: D.
    :param is_complex: whether the features are complex.
    :param block_bytes: the size of a block of features.
    :returns: (N, D), or (N, 2 D) with real and imaginary parts side by side.

    With gradients the rows are taken at once, since autograd keeps the intermediate results anyway.
    """
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        result = columns(*[x.mT for x in inputs])
        return torch.cat([result.real, result.imag]).mT if is_complex else result.mT
    num_rows = inputs[0].shape[0]
    rows = inputs[0].new_empty(num_rows, num_features * (2 if is_complex else 1))
    block_rows = min(max(block_bytes // (rows.shape[1] * rows.element_size()), 32), block_bytes // 8192)
    dtype = rows.dtype.to_complex() if is_complex else rows.dtype
    memory = torch.empty(2, num_features, min(block_rows, num_rows), dtype=dtype, device=rows.device)
    for start in range(0, num_rows, block_rows):
        stop = min(start + block_rows, num_rows)
        work = memory if stop - start == memory.shape[-1] else torch.empty_like(memory[..., : stop - start])
        block = columns(*[x[start:stop].mT.contiguous() for x in inputs], work=(work[0], work[1]))
        if is_complex:
            rows[start:stop, :num_features] = block.real.mT
            rows[start:stop, num_features:] = block.imag.mT
        else:
            rows[start:stop] = block.mT
    return rows
