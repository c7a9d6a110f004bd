"""How features of one output become features of many, without ever forming them for all rows and outputs."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from ...linalg import largest_square
from .products import feature_product


class OutputFactor:
    r"""Linear combinations of scalar features that are the features of T outputs.

    .. math:: F_t(x)_k = \sum_{l=1}^L \psi(x)_{j_{lk}}\, c_{lkt}, \qquad k \le K

    L = 1 for separable kernels and real spectral factors b(w), L = 2 for complex ones. The posterior follows from
    scalar
    Gram matrices: only :meth:`features` forms an (N T) x K matrix.

    :param index: the scalar columns j, (L, K), integers below ``num_scalar``.
    :param coefficient: c, (..., L, K, T).
    :param num_scalar: the number n of scalar columns.
    :param covariance_root: the matrix A (..., T, R) where the factor is the Kronecker product with it.

    Source: identity 2 of the errata, in real form.

    >>> factor = OutputFactor.kronecker(torch.eye(2), 3)
    >>> factor.features(torch.ones(5, 3)).shape
    torch.Size([10, 6])
    """

    def __init__(
        self, index: Tensor, coefficient: Tensor, num_scalar: int, covariance_root: Tensor | None = None
    ) -> None:
        self.index, self.coefficient = index, coefficient
        self.num_scalar = num_scalar
        self.covariance_root = covariance_root

    @classmethod
    def kronecker(cls, matrix: Tensor, num_scalar: int) -> OutputFactor:
        r"""The factor of a separable kernel :math:`k(x, y) A A^\top` with the matrix A, (..., T, R)."""
        return KroneckerFactor(matrix, num_scalar)

    @classmethod
    def spectral(cls, b: Tensor) -> OutputFactor:
        r"""The factor of features :math:`e^{i w_j^\top x} b(w_j)`, (..., m, T, r), on scalar columns [cosines, sines].

        The columns are the real parts of all (j, r), then the imaginary parts.
        """
        frequencies, rank = b.shape[-3], b.shape[-1]
        columns = b.mT.flatten(-3, -2)
        cosine = torch.arange(frequencies, device=b.device).repeat_interleave(rank)
        sine = frequencies + cosine
        if not b.is_complex():
            return cls(
                torch.cat([cosine, sine])[None], torch.cat([columns, columns], -2).unsqueeze(-3), 2 * frequencies
            )
        index = torch.stack([cosine, sine]).repeat(1, 2)
        on_cosine = torch.cat([columns.real, columns.imag], dim=-2)
        on_sine = torch.cat([-columns.imag, columns.real], dim=-2)
        return cls(index, torch.stack([on_cosine, on_sine], dim=-3), 2 * frequencies)

    @classmethod
    def on_grid(cls, b: Tensor) -> OutputFactor:
        r"""The factor of :math:`b(\omega_j)`, (..., H + 1, T, r), on the scalar columns of a :class:`FrequencyGrid`.

        The first frequency is zero, where b is real.
        """
        others, zero = cls.spectral(b[..., 1:, :, :]), b[..., :1, :, :].real.mT
        missing = zero.new_zeros(*zero.shape[:-3], others.num_terms - 1, *zero.shape[-2:])
        coefficient = torch.cat([torch.cat([zero, missing], dim=-3), others.coefficient], dim=-2)
        index = torch.nn.functional.pad(1 + others.index, (b.shape[-1], 0))
        return cls(index, coefficient, 1 + others.num_scalar)

    @classmethod
    def concatenate(cls, factors: Sequence[OutputFactor], on_same_columns: bool = False) -> OutputFactor:
        """The factor of a sum of kernels with the same outputs, on the scalar columns of its parts side by side.

        :param on_same_columns: whether the parts have the same scalar columns instead.
        :raises ValueError: where the numbers of outputs differ.
        """
        if len(factors) == 1:
            return factors[0]
        if len({factor.num_outputs for factor in factors}) > 1:
            outputs = [factor.num_outputs for factor in factors]
            raise ValueError(f"expected parts with one number of outputs in a sum, got {outputs}; correct the kernels")
        terms = max(factor.num_terms for factor in factors)
        batch = torch.broadcast_shapes(*[factor.coefficient.shape[:-3] for factor in factors])
        indices, coefficients, start = [], [], 0
        for factor in factors:
            missing = terms - factor.num_terms
            coefficient = factor.coefficient.expand(*batch, *factor.coefficient.shape[-3:])
            zeros = coefficient.new_zeros(*batch, missing, *coefficient.shape[-2:])
            coefficients.append(torch.cat([coefficient, zeros], dim=-3))
            indices.append(start + torch.cat([factor.index, factor.index[:1].expand(missing, -1)]))
            start += 0 if on_same_columns else factor.num_scalar
        width = factors[0].num_scalar if on_same_columns else start
        return cls(torch.cat(indices, dim=-1), torch.cat(coefficients, dim=-2), width)

    @property
    def device(self) -> torch.device:
        """Where the coefficients are."""
        return self.coefficient.device

    @property
    def num_terms(self) -> int:
        """How many scalar columns enter a column, L."""
        return self.index.shape[0]

    @property
    def num_columns(self) -> int:
        """The number K of columns."""
        return self.index.shape[1]

    @property
    def num_outputs(self) -> int:
        """The number T of outputs."""
        return self.coefficient.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        """The batch dimensions of the coefficients."""
        return self.coefficient.shape[:-3]

    def scaled(self, scale: Tensor) -> OutputFactor:
        """The factor times numbers (...)."""
        root = None if self.covariance_root is None else self.covariance_root * scale[..., None, None]
        return OutputFactor(self.index, self.coefficient * scale[..., None, None, None], self.num_scalar, root)

    def double(self) -> OutputFactor:
        """The factor in float64."""
        root = None if self.covariance_root is None else self.covariance_root.double()
        return OutputFactor(self.index, self.coefficient.double(), self.num_scalar, root)

    def __getitem__(self, index: int) -> OutputFactor:
        """One of a batch of factors; the factor itself where it has no batch."""
        if not self.batch_shape:
            return self
        root = None if self.covariance_root is None else self.covariance_root[index]
        return OutputFactor(self.index, self.coefficient[index], self.num_scalar, root)

    def features(self, scalar: Tensor) -> Tensor:
        """The features of all outputs, rows interleaved: (..., N, n) to (..., N T, K), of the dtype of ``scalar``."""
        if self.covariance_root is not None:
            root = self.covariance_root.to(scalar.dtype)[..., None, :, None, :]
            return (scalar[..., :, None, :, None] * root).flatten(-2).flatten(-3, -2)
        terms = zip(self.index, self.coefficient.to(scalar.dtype).unbind(-3), strict=True)
        parts = [scalar[..., index][..., :, None, :] * c.mT[..., None, :, :] for index, c in terms]
        return sum(parts[1:], parts[0]).flatten(-3, -2)

    def gram(self, scalar_gram: Tensor, precision: Tensor) -> Tensor:
        r"""The Gram matrix :math:`F^\top (I \otimes S^{-1}) F`, (..., K, K), from the scalar one, (..., n, n)."""
        parts = []
        for term in range(self.num_terms):
            for other in range(term, self.num_terms):
                inner = self._term(term) @ precision @ self._term(other).mT
                part = inner * self._take(self._take(scalar_gram, term, -2), other, -1)
                parts.append(part if term == other else part + part.mT)
        return sum(parts[1:], parts[0])

    def largest_square(self, scalar: Tensor) -> float:
        """The largest squared norm of the features of one output, for scalar features (..., N, n)."""
        if self.covariance_root is not None:
            return largest_square(scalar) * largest_square(self.covariance_root)
        return largest_square(self.features(scalar.detach()))

    def prior_variances(self, scalar: Tensor) -> Tensor:
        """The prior variances (..., N, T) of the outputs, for scalar features (..., N, n)."""
        if self.covariance_root is not None:
            squares = torch.linalg.vector_norm(scalar, dim=-1).square().unsqueeze(-1)
            return squares * self.covariance_root.to(squares.dtype).square().sum(-1).unsqueeze(-2)
        return self.features(scalar).square().sum(-1).unflatten(-1, (-1, self.num_outputs))

    def scalar_weights(self, weights: Tensor) -> Tensor:
        """Weights of the scalar features for every output, f_t(x) = psi(x) W_t: (..., K, S) to (..., n, T, S)."""
        if self.covariance_root is not None:
            columns = weights.unflatten(-2, (self.num_scalar, -1))
            return torch.einsum("...tr,...nrs->...nts", self.covariance_root.to(weights.dtype), columns)
        parts = [self._term(term).unsqueeze(-1) * weights.unsqueeze(-2) for term in range(self.num_terms)]
        total = parts[0].new_zeros(*parts[0].shape[:-3], self.num_scalar, *parts[0].shape[-2:])
        for index, part in zip(self.index, parts, strict=True):
            total = total.index_add(-3, index, part)
        return total

    def functions(self, scalar: Tensor, weights: Tensor) -> Tensor:
        """The functions of weights (..., K, S) with scalar features (..., N, n), in float64: (..., N, T, S)."""
        root = self.covariance_root
        if root is not None and root.shape[-2:] == (1, 1):
            return (root.double() * feature_product(scalar, weights)).unsqueeze(-2)
        by_output = self.scalar_weights(weights)
        return feature_product(scalar, by_output.flatten(-2)).unflatten(-1, by_output.shape[-2:])

    def adjoint(self, values: Tensor) -> Tensor:
        """The adjoint of :meth:`scalar_weights`: (..., n, T, S) to (..., K, S)."""
        if self.covariance_root is not None:
            root = self.covariance_root.to(values.dtype)
            return torch.einsum("...tr,...nts->...nrs", root, values).flatten(-3, -2)
        terms = zip(self.index, self.coefficient.to(values.dtype).unbind(-3), strict=True)
        parts = [(c.unsqueeze(-1) * values.index_select(-3, index)).sum(-2) for index, c in terms]
        return sum(parts[1:], parts[0])

    def _term(self, term: int) -> Tensor:
        return self.coefficient[..., term, :, :]

    def _take(self, matrix: Tensor, term: int, dim: int) -> Tensor:
        """Rows or columns of a matrix as a term has them; the matrix itself where it has all of them in order."""
        index = self.index[term]
        is_all = len(index) == self.num_scalar and bool((index == torch.arange(len(index), device=index.device)).all())
        return matrix if is_all else matrix.index_select(dim, index)


class KroneckerFactor(OutputFactor):
    """The factor of a separable kernel with the matrix A, (..., T, R); its coefficients are made only on demand."""

    def __init__(self, matrix: Tensor, num_scalar: int) -> None:
        self.num_scalar, self.covariance_root = num_scalar, matrix
        self.matrix = matrix

    @functools.cached_property
    def index(self) -> Tensor:  # type: ignore[override]
        """The scalar columns j, (1, n R)."""
        return torch.arange(self.num_scalar, device=self.device).repeat_interleave(self.matrix.shape[-1])[None]

    @functools.cached_property
    def coefficient(self) -> Tensor:  # type: ignore[override]
        """The coefficients c, (..., 1, n R, T)."""
        repeats = [1] * (self.matrix.dim() - 2)
        return self.matrix.mT.repeat(*repeats, self.num_scalar, 1).unsqueeze(-3)

    @property
    def device(self) -> torch.device:
        return self.matrix.device

    @property
    def num_terms(self) -> int:
        return 1

    @property
    def num_columns(self) -> int:
        return self.num_scalar * self.matrix.shape[-1]

    @property
    def num_outputs(self) -> int:
        return self.matrix.shape[-2]

    @property
    def batch_shape(self) -> torch.Size:
        return self.matrix.shape[:-2]

    def scaled(self, scale: Tensor) -> OutputFactor:
        return KroneckerFactor(self.matrix * scale[..., None, None], self.num_scalar)

    def double(self) -> OutputFactor:
        return self if self.matrix.dtype == torch.float64 else KroneckerFactor(self.matrix.double(), self.num_scalar)

    def __getitem__(self, index: int) -> OutputFactor:
        return KroneckerFactor(self.matrix[index], self.num_scalar) if self.batch_shape else self
