"""Compositions of kernels that keep the structure of their features: scales, sums and products."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from functools import reduce
from typing import Any, Self

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from torch import Tensor

from .. import _checks
from ..features import ComplexToReal, FeatureMap, FourierSeries, LinearFeatures, Maclaurin
from ..features.random_weights import weights_kept_on_error
from ..inference import OutputFactor
from ..operators import Operator
from .feature_kernel import FeatureKernel, FeatureStructure, check_parts, no_operator, reference
from .scale import share_scale


class FeatureScaleKernel(FeatureStructure, ScaleKernel):
    r"""A scaled kernel whose features are those of its base kernel times the root of the output scale.

    A batch of output scales over one base kernel shares the scalar features.

    :param base_kernel: a kernel with features.
    :param scale_kernel: the GPyTorch kernel whose parameter, constraint and prior are shared.

    >>> import gpytorch, rfgp
    >>> exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.LinearKernel())
    >>> kernel = rfgp.approximate(exact, num_features=2, input_dim=2)
    >>> kernel.raw_outputscale is exact.raw_outputscale
    True
    """

    def __init__(self, base_kernel: Kernel, scale_kernel: ScaleKernel) -> None:
        check_parts([base_kernel])
        _checks.instance("scale_kernel", scale_kernel, ScaleKernel, "a ScaleKernel", "whose output scale is shared")
        ScaleKernel.__init__(self, base_kernel, batch_shape=scale_kernel._batch_shape)
        self.active_dims = scale_kernel.active_dims
        share_scale(scale_kernel, self)

    @property
    def exact_kernel(self) -> ScaleKernel:
        """The exact scaled kernel, with the same parameters, constraints and priors."""
        exact = ScaleKernel(self.base_kernel.exact_kernel, batch_shape=self._batch_shape)
        exact.active_dims = self.active_dims
        share_scale(self, exact)
        return exact

    @property
    def is_complex(self) -> bool:
        """Whether the features are complex; the kernel is then their real part."""
        return self.base_kernel.is_complex

    @property
    def version(self) -> int:
        """How many times the weights have been drawn anew."""
        return self.base_kernel.version

    @property
    def has_unbiased_columns(self) -> bool:
        """Whether every column of the base kernel alone is without bias."""
        return self.base_kernel.has_unbiased_columns

    forward = ScaleKernel.forward

    def active_features(self, x: Tensor) -> Tensor:
        """The features of the base kernel, (..., N, D)."""
        return self.base_kernel.active_features(x)

    def active_residual_variance(self, x: Tensor) -> Tensor | None:
        """That of the base kernel times the output scale."""
        residual = self.base_kernel.active_residual_variance(x)
        return None if residual is None else self.outputscale.unsqueeze(-1) * residual

    @property
    def num_scalar_features(self) -> int:
        """The number of columns of the scalar features of the base kernel."""
        return self.base_kernel.num_scalar_features

    @property
    def has_output_factor(self) -> bool:
        """Whether the base kernel is operator-valued."""
        return self.base_kernel.has_output_factor

    def output_factor(self, operator: Operator | None = None) -> Tensor | OutputFactor:
        """The root of the output scale times the factor of the base kernel."""
        factor, root = self.base_kernel.output_factor(operator), self.outputscale.sqrt()
        return factor.scaled(root) if isinstance(factor, OutputFactor) else root[..., None, None] * factor

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters of the base kernel's scalar features."""
        return self.base_kernel.feature_parameters()

    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new weights in place, and return the kernel."""
        self.base_kernel.resample(generator)
        return self

    def __getitem__(self, index: Any) -> FeatureScaleKernel:
        if not self.batch_shape:
            return self
        return self._with(self.base_kernel[index], self._scale_alone()[index])

    def expand_batch(self, *sizes: Any) -> FeatureScaleKernel:
        return self._with(self.base_kernel.expand_batch(*sizes), self._scale_alone().expand_batch(*sizes))

    def _scale_alone(self) -> ScaleKernel:
        """The scale around nothing, without ``active_dims``, which GPyTorch would index as if they were batched."""
        scale = ScaleKernel(Kernel(), batch_shape=self.raw_outputscale.shape)
        share_scale(self, scale)
        return scale

    def _with(self, base_kernel: Kernel, scale_kernel: ScaleKernel) -> FeatureScaleKernel:
        scale_kernel.active_dims = self.active_dims
        return FeatureScaleKernel(base_kernel, scale_kernel).train(self.training)


class _Composite(FeatureStructure, Kernel):
    """What sums and products share: parts in ``kernels``, whose output scales belong to the features."""

    @property
    def parts(self) -> list[Any]:
        """The kernels with features that are composed."""
        return list(self.kernels)

    @property
    def version(self) -> int:
        """How many times the weights have been drawn anew."""
        return sum(kernel.version for kernel in self.parts)

    def output_factor(self, operator: Operator | None = None) -> Tensor | OutputFactor:
        """One, of shape (1, 1): the scales of the parts lie in the features."""
        no_operator(operator)
        return reference(self).new_ones(1, 1)

    def all_features(self, x: Tensor) -> Tensor:
        """The features of the full inputs, (..., N, d) to (..., N, D) or (..., N T, K)."""
        return super().all_features(x) if self.has_output_factor else self.scalar_features(x)

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """All parameters of the parts."""
        return self.parameters()

    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new weights in place, and return the kernel."""
        with weights_kept_on_error(self):
            for kernel in self.parts:
                kernel.resample(generator)
        return self

    @abc.abstractmethod
    def _with(self, kernels: list[Kernel]) -> Kernel:
        """The same composition of other parts."""

    def __getitem__(self, index: Any) -> Kernel:
        return self._with([kernel[index] for kernel in self.parts]) if self.batch_shape else self

    def expand_batch(self, *sizes: Any) -> Kernel:
        return self._with([kernel.expand_batch(*sizes) for kernel in self.parts])


class FeatureSumKernel(_Composite, AdditiveKernel):
    r"""A sum of kernels, whose features are those of its parts side by side.

    .. math:: \phi(x) = [\phi_1(x), \phi_2(x), \dots], \qquad D = D_1 + D_2 + \dots

    :param kernels: kernels with features, each with its own ``active_dims`` and output scale.

    >>> import gpytorch, rfgp
    >>> exact = gpytorch.kernels.RBFKernel(active_dims=[0]) + gpytorch.kernels.LinearKernel(active_dims=[1])
    >>> rfgp.approximate(exact, num_features=65, input_dim=2).features(torch.randn(3, 2)).shape
    torch.Size([3, 65])
    """

    def __init__(self, *kernels: Any) -> None:
        check_parts(kernels)
        if len({kernel.has_output_factor for kernel in kernels}) > 1:
            raise ValueError(
                "expected a sum of scalar kernels or one of kernels of several outputs, got both; give the scalar ones "
                "a covariance of the outputs by DecomposableKernel or MultitaskKernel"
            )
        AdditiveKernel.__init__(self, *kernels)

    @property
    def exact_kernel(self) -> AdditiveKernel:
        """The sum of the exact kernels, with the same parameters."""
        return AdditiveKernel(*[kernel.exact_kernel for kernel in self.parts])

    @property
    def is_complex(self) -> bool:
        """Whether any part is complex; the kernel is then the real part."""
        return any(kernel.is_complex for kernel in self.parts)

    @property
    def num_scalar_features(self) -> int:
        """The number of columns of all parts, or of the map that they share."""
        widths = [kernel.num_scalar_features for kernel in self.parts]
        return widths[0] if self.has_one_map else sum(widths)

    @property
    def has_one_map(self) -> bool:
        """Whether operator-valued parts share their scalar features: those of one measure."""
        leaves = [unscaled(kernel) for kernel in self.parts]
        if not all(isinstance(leaf, FeatureKernel) and leaf.has_output_factor for leaf in leaves):
            return False
        maps = {id(leaf.feature_map) for leaf in leaves}
        scalars = {id(leaf.base_kernel.scalar_kernel) for leaf in leaves}
        dims = [None if part.active_dims is None else part.active_dims.tolist() for part in [*self.parts, *leaves]]
        is_made = leaves[0].feature_map is not None
        return is_made and len(maps) == len(scalars) == 1 and all(own == dims[0] for own in dims)

    @property
    def has_output_factor(self) -> bool:
        """Whether the parts are operator-valued."""
        return self.parts[0].has_output_factor

    def active_features(self, x: Tensor) -> Tensor:
        """The scalar features of all parts side by side, (..., N, D)."""
        if self.has_one_map:
            return self.parts[0].scalar_features(x)
        if self.has_output_factor:
            return _concatenated([kernel.scalar_features(x) for kernel in self.parts])
        return _concatenated([kernel.all_features(x) for kernel in self.parts])

    def active_residual_variance(self, x: Tensor) -> Tensor | None:
        """The sum of those of the parts."""
        residuals = [kernel.residual_variance(x) for kernel in self.parts]
        return reduce(torch.add, known) if (known := [r for r in residuals if r is not None]) else None

    def output_factor(self, operator: Operator | None = None) -> Tensor | OutputFactor:
        """The factors of operator-valued parts, one after the other; one for scalar parts."""
        if not self.has_output_factor:
            return super().output_factor(operator)
        return OutputFactor.concatenate([k.output_factor(operator) for k in self.parts], self.has_one_map)

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """All parameters of scalar parts; those of the scalar features of operator-valued ones."""
        if not self.has_output_factor:
            return super().feature_parameters()
        return iter({id(p): p for kernel in self.parts for p in kernel.feature_parameters()}.values())

    def _with(self, kernels: list[Kernel]) -> FeatureSumKernel:
        return FeatureSumKernel(*kernels).train(self.training)


class FeatureProductKernel(_Composite, ProductKernel):
    r"""A product of kernels, whose features are products of the features of its parts.

    .. math:: \phi(x)_\ell = D^{(m - 1)/2} \prod_{i=1}^m \phi_i(x)_\ell \qquad \text{or} \qquad
        \phi(x)_{\ell \ell'} = \phi_1(x)_\ell\, \phi_2(x)_{\ell'}

    Element-wise over independent parts whose single columns are each without bias and of one width; row-wise Kronecker
    with all others. Complex features come out as real and imaginary part side by side, unless ``is_complex``.

    :param kernels: kernels with features, each with its own ``active_dims`` and output scale.
    :param is_complex: whether complex features come out as they are.
    :raises ValueError: where two parts have the same weights, which would bias the product.

    >>> import gpytorch, rfgp
    >>> exact = gpytorch.kernels.RBFKernel(active_dims=[0]) * gpytorch.kernels.MaternKernel(active_dims=[1])
    >>> rfgp.approximate(exact, num_features=64, input_dim=2).features(torch.randn(3, 2)).shape
    torch.Size([3, 64])
    """

    def __init__(self, *kernels: Any, is_complex: bool = False) -> None:
        check_parts(kernels)
        if any(kernel.has_output_factor for kernel in kernels):
            raise ValueError(
                "expected scalar kernels in a product, got one of several outputs; multiply inside MultitaskKernel"
            )
        for i, kernel in enumerate(kernels):
            if any(have_common_weights(kernel, other) for other in kernels[:i]):
                raise ValueError(
                    "expected parts with weights of their own, got two with the same ones, which would bias their "
                    "product; make one of them with another seed"
                )
        ProductKernel.__init__(self, *kernels)
        self._is_complex = _checks.flag("is_complex", is_complex)

    @property
    def exact_kernel(self) -> ProductKernel:
        """The product of the exact kernels, with the same parameters."""
        return ProductKernel(*[kernel.exact_kernel for kernel in self.parts])

    @property
    def is_complex(self) -> bool:
        """Whether complex features come out; the kernel is then their real part."""
        return self._is_complex and any(kernel.is_complex for kernel in self.parts)

    @property
    def num_scalar_features(self) -> int:
        """The number of columns of the product."""
        columnwise = {k.num_scalar_features for k in self.parts if k.has_unbiased_columns}
        others = [k.num_scalar_features for k in self.parts if not k.has_unbiased_columns]
        becomes_pairs = not self._is_complex and any(k.is_complex for k in self.parts)
        return math.prod([*columnwise, *others]) * (2 if becomes_pairs else 1)

    def active_features(self, x: Tensor) -> Tensor:
        """The products of the features of the parts, (..., N, D)."""
        parts = [kernel.all_features(x) for kernel in self.parts]
        groups: dict[int, list[Tensor]] = {}
        others = []
        for kernel, features in zip(self.parts, parts, strict=True):
            if kernel.has_unbiased_columns:
                groups.setdefault(features.shape[-1], []).append(features)
            else:
                others.append(features)
        columns = [reduce(_elementwise, group) for group in groups.values()]
        product = reduce(_kronecker, [*columns, *others])
        if product.is_complex() and not self._is_complex:
            return torch.cat([product.real, product.imag], dim=-1)
        return product

    def active_residual_variance(self, x: Tensor) -> Tensor | None:
        r"""The difference :math:`\prod_i (v_i + r_i) - \prod_i v_i` for variances v and residuals r of the parts."""
        residuals = [kernel.residual_variance(x) for kernel in self.parts]
        if all(residual is None for residual in residuals):
            return None
        product, missing = x.new_ones(()), x.new_zeros(())
        for kernel, residual in zip(self.parts, residuals, strict=True):
            variance, own = kernel(x, diag=True), x.new_zeros(()) if residual is None else residual
            missing = missing * (variance + own) + product * own
            product = product * variance
        return missing

    def _with(self, kernels: list[Kernel]) -> FeatureProductKernel:
        return FeatureProductKernel(*kernels, is_complex=self._is_complex).train(self.training)


def unscaled(kernel: Any) -> Any:
    """The kernel inside output scales."""
    return unscaled(kernel.base_kernel) if isinstance(kernel, ScaleKernel) else kernel


def _elementwise(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).mul_(math.sqrt(left.shape[-1]))


def _kronecker(left: Tensor, right: Tensor) -> Tensor:
    return (left.unsqueeze(-1) * right.unsqueeze(-2)).flatten(-2)


def have_common_weights(left: Kernel, right: Kernel) -> bool:
    """Whether random maps of two kernels have the same weights."""
    return any(have_same_weights(a, b) for a in random_maps(left) for b in random_maps(right))


def random_maps(kernel: Kernel) -> list[FeatureMap]:
    """The maps in a kernel that have weights of their own."""
    return [m for m in kernel.modules() if isinstance(m, FeatureMap) and not isinstance(m, _WITHOUT_WEIGHTS)]


def have_same_weights(a: FeatureMap, b: FeatureMap) -> bool:
    """Whether two maps are one, or have equal weights."""
    return a is b or (type(a) is type(b) and _same_buffers(a, b))


_WITHOUT_WEIGHTS = (LinearFeatures, FourierSeries, Maclaurin, ComplexToReal)  # of their own


def _same_buffers(a: FeatureMap, b: FeatureMap) -> bool:
    """Whether the weights agree, and are so many, or so far from whole numbers, that chance cannot be the reason."""
    pairs = list(zip(a.buffers(), b.buffers(), strict=False))
    is_chance = sum(x.numel() for x, _ in pairs) < 24 and all(bool((x == x.round()).all()) for x, _ in pairs)
    return not is_chance and all(x.shape == y.shape and bool((x == y.to(x)).all()) for x, y in pairs)


def _concatenated(parts: list[Tensor]) -> Tensor:
    batch = torch.broadcast_shapes(*[part.shape[:-2] for part in parts])
    return torch.cat([part.expand(*batch, *part.shape[-2:]) for part in parts], dim=-1)
