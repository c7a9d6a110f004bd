"""From rows to sufficient statistics: features in chunks, at constant memory, with gradients where they are wanted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from .. import _checks
from ..linalg import row_chunks
from .class_statistics import ClassStatistics
from .noise import NoiseModel
from .rows import Rows
from .statistics import GramStatistics
from .summation import ClassStatisticsOfRows, HeldPositions, Make, Pairs, Part, Piece, StatisticsOfRows, summed
from .training_residual import TrainingResidual


class ScalarFeatures(Protocol):
    """The protocol of kernels with scalar features, such as those made by :func:`rfgp.approximate`.

    >>> import gpytorch, rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 16, input_dim=2)
    >>> kernel.num_scalar_features, kernel.scalar_features(torch.randn(5, 2)).shape
    (16, torch.Size([5, 16]))
    """

    @property
    def is_complex(self) -> bool:
        """Whether the features are complex."""

    @property
    def num_scalar_features(self) -> int:
        """The number D of features; a ValueError where a map waits for its first inputs."""

    def scalar_features(self, x: Tensor) -> Tensor:
        """The features (..., N, D) of inputs (..., N, d)."""

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters that the features depend on."""

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """All parameters."""

    def shared(self) -> Any:
        """A context with ``tensors`` that the features of all rows have in common, computed once for all chunks."""


def accumulate(
    kernel: ScalarFeatures,
    noise: NoiseModel,
    x: Tensor,
    rows: Rows,
    product_dtype: torch.dtype,
    known: GramStatistics | None = None,
    residual: TrainingResidual | None = None,
) -> GramStatistics:
    """Sum the statistics of rows in chunks, and add them to known ones.

    Gradients run through all of it, at the memory of one chunk: see :func:`summed`.

    :param kernel: the kernel whose scalar features are summed.
    :param noise: the noise model, which knows how statistics are merged.
    :param x: inputs, (N, d).
    :param rows: what the rows add beside their features.
    :param product_dtype: the dtype of the products inside a chunk.
    :param known: statistics to add to, in place where there are no gradients; default: none.
    :param residual: what the rows gain by the variance that their features lack; default: nothing.
    :raises ValueError: where statistics and factors would not fit in memory.

    >>> import gpytorch, rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 16, input_dim=2)
    >>> noise = rfgp.inference.noise_model(gpytorch.likelihoods.GaussianLikelihood())
    >>> x, y = torch.randn(50, 2), torch.randn(50)
    >>> rows = noise.rows(x, y, None, torch.empty(50, 0), is_all=True)
    >>> accumulate(kernel, noise, x, rows, torch.float64).gram.shape
    torch.Size([1, 16, 16])
    """
    width = _width(kernel, x) if known is None else known.num_features
    shared = kernel.shared()
    parameters = [*(kernel.feature_parameters() if residual is None else kernel.parameters()), *shared.tensors]
    tracks = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (x, *rows[:3], *parameters)
    )
    is_open = known is not None and not tracks and len(known.count) == rows.num_groups
    total = known if is_open and known is not None else _empty(kernel, noise, width, rows, known)
    if isinstance(total, ClassStatistics):
        total.expect(rows.group_numbers)
    make, parts = _maker(kernel, shared, residual), _parts(total, x, rows)
    total = summed(make, x, rows, parts, parameters, total, product_dtype)
    return total if is_open else noise.merged(known, total)


class SumsAgain:
    """The gradients of sums over the rows of batches that are given once more, and are forgotten again.

    :param kernel: the kernel whose scalar features were summed.
    :param noise: the noise model.
    :param total: the sums over all batches.
    :param residual: what the rows gain by the variance that their features lack; default: nothing.
    """

    def __init__(
        self,
        kernel: ScalarFeatures,
        noise: NoiseModel,
        total: GramStatistics,
        residual: TrainingResidual | None = None,
    ) -> None:
        self.kernel, self.noise = kernel, noise
        self.total = total.with_differentiable([value.detach() for value in total.differentiable()])
        shared = kernel.shared()
        self.make = _maker(kernel, shared, residual)
        self.parameters = [*(kernel.feature_parameters() if residual is None else kernel.parameters()), *shared.tensors]

    def pieces(self, gradients: Sequence[Tensor]) -> Callable[[Tensor, Rows, torch.dtype], Piece]:
        """Takes the inputs, the rows and the dtype of products of a batch; batches come as they came before.

        :param gradients: those of the differentiable sums, :meth:`GramStatistics.differentiable`.
        """
        total = self.total
        positions = HeldPositions(total.held_counts) if isinstance(total, ClassStatistics) else None

        @functools.cache
        def pull(num_groups: int, product_dtype: torch.dtype) -> Callable[..., Pairs]:
            if isinstance(total, ClassStatistics):
                return ClassStatisticsOfRows(self.make, total, product_dtype).pullback(*gradients)
            own = self._of_groups(gradients, num_groups)
            return StatisticsOfRows(self.make, total.shift, num_groups, product_dtype).pullback(*own)

        def piece(x: Tensor, rows: Rows, product_dtype: torch.dtype) -> Piece:
            further = () if positions is None else (positions.next(rows.group_numbers),)
            parts = _parts(total, x, rows)
            return Piece(pull(rows.num_groups, product_dtype), parts, (x, *rows[:4], *further))

        return piece

    def _of_groups(self, gradients: Sequence[Tensor], num_groups: int) -> Sequence[Tensor]:
        """The gradients of the sums of a batch, which had no more groups than this when it was merged."""
        if num_groups >= len(gradients[0]):
            return gradients
        with torch.enable_grad():
            own = [g.new_zeros(num_groups, *g.shape[1:]).requires_grad_() for g in gradients]
            of_batch, of_all = (GramStatistics.of_differentiable(sums, self.total.shift) for sums in (own, gradients))
            aligned, _ = self.noise.aligned(of_batch, of_all)
            return torch.autograd.grad(aligned.differentiable(), own, gradients)


def _maker(kernel: ScalarFeatures, shared: Any, residual: TrainingResidual | None) -> Make:
    """What makes features of inputs, and adds to rows what the features lack."""

    def make(x: Tensor, rows: Rows) -> tuple[Tensor, Rows]:
        with shared:
            return kernel.scalar_features(x), rows if residual is None else residual.added(kernel, x, rows)

    return make


def _width(kernel: ScalarFeatures, x: Tensor) -> int:
    """The number of features, whose maps are made where they wait for their first inputs."""
    try:
        return kernel.num_scalar_features
    except ValueError:
        with torch.no_grad():
            return kernel.scalar_features(x[:1]).shape[-1]


def _parts(total: GramStatistics, x: Tensor, rows: Rows) -> list[Part]:
    """Chunks of rows, each of one group where a row is in one group that has a Gram matrix."""
    width, itemsize = total.num_features, x.element_size() * (2 if total.has_complex_features else 1)
    if rows.groups is None:
        return [*row_chunks(len(rows.targets), width, itemsize)]
    names = [*range(rows.num_groups)]
    blocks: list[Tensor] = []
    if isinstance(total, ClassStatistics):
        is_dense = total.is_dense()
        blocks, names = [(~is_dense[rows.groups]).nonzero().squeeze(-1)], is_dense.nonzero().squeeze(-1).tolist()
    blocks += [(rows.groups == group).nonzero().squeeze(-1) for group in names]
    return [members[part] for members in blocks for part in row_chunks(len(members), width, itemsize)]


def _empty(
    kernel: ScalarFeatures, noise: NoiseModel, width: int, rows: Rows, known: GramStatistics | None
) -> GramStatistics:
    """Statistics without rows, with the shift of those known, if there are any."""
    kind = noise.statistics_kind if known is None else type(known)
    has_complex_features = kernel.is_complex
    itemsize = 16 if has_complex_features else 8
    if kind is ClassStatistics:
        count = min(rows.num_groups * width, len(rows.targets)) + width
        what = f"rows and factors of {count} x {width} numbers"
    else:
        count = rows.num_groups * width
        what = f"statistics and factors of {rows.num_groups} x {width} x {width} numbers"
    _checks.fits_in_memory(2.0 * count * width * itemsize, what, "use fewer features")
    shift = rows.center if known is None else known.shift
    is_complex, device = (has_complex_features, shift.is_complex()), rows.targets.device
    return kind(width, len(shift), rows.num_groups, *is_complex, device, shift.detach())
