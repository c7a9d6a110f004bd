"""The one new line: an exact kernel in, a kernel with random features out."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from torch import Tensor

from .. import _checks
from ..features import FeatureMap
from .composition import FeatureProductKernel, FeatureScaleKernel, FeatureSumKernel
from .families import Family, family, unsupported
from .feature_kernel import FeatureKernel, FeatureStructure, reference
from .recipe import MapRecipe


def approximate(
    kernel: Kernel,
    num_features: int,
    *,
    input_dim: int | None = None,
    method: str | FeatureMap = "auto",
    train_inputs: Tensor | None = None,
    seed: int | None = None,
) -> Kernel:
    r"""A kernel that shares the parameters of an exact one and computes with random features, at O(N D^2).

    .. math:: k(x, y) \approx \phi(x) \phi(y)^H, \qquad \phi(x) \in R^D \text{ or } C^D

    Sums are approximated part by part, with an equal share of the features each (exact parts take what they need);
    products of sums are multiplied out; other products are taken feature by feature.

    :param kernel: a GPyTorch kernel of a supported family, or ScaleKernel, AdditiveKernel and ProductKernel of them.
    :param num_features: the number of columns D that come out (exact parts, such as a linear kernel, may need fewer).
    :param input_dim: the number of columns of the inputs; where it is None it is taken from ``train_inputs``,
        ``active_dims`` or ARD, and else from the first inputs the kernel sees.
    :param method: "auto", the name of a method, or a ready FeatureMap; see :class:`rfgp.kernels.MapRecipe`. "auto"
        takes the method with the smallest predicted error on ``train_inputs``, see
        :func:`rfgp.selection.rank_methods`; without them, exact features for linear kernels, orthogonal Fourier
        features for shift-invariant ones and complex-to-real TensorSRHT for polynomials.
    :param train_inputs: the training inputs (N, d): the number of columns, and what maps are chosen and optimised for.
    :param seed: the seed of the weights; drawn from PyTorch's default generator where it is None.
    :returns: a kernel with ``features``, ``scalar_features``, ``output_factor`` and ``exact_kernel``.
    :raises ValueError: for a kernel without random features (with a list of those that have), an unknown method, or
        dimensions that disagree.

    >>> import gpytorch
    >>> exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PolynomialKernel(power=3))
    >>> kernel = approximate(exact, num_features=128, input_dim=4, seed=0)
    >>> kernel(torch.randn(10, 4)).shape
    torch.Size([10, 10])
    """
    width = _checks.positive_integer("num_features", num_features)
    if not isinstance(kernel, Kernel):
        raise unsupported(kernel)
    if train_inputs is not None:
        _checks.finite(_checks.inputs(train_inputs, input_dim, "train_inputs"), "train_inputs")
        input_dim = train_inputs.shape[-1]
        if width > train_inputs.shape[-2]:
            warnings.warn(
                f"num_features={width} exceeds the {train_inputs.shape[-2]} training rows: the exact kernel costs less",
                stacklevel=2,
            )
    elif input_dim is not None:
        input_dim = _checks.positive_integer("input_dim", input_dim)
    if seed is None:
        seed = int(torch.randint(0, 2**31 - 1, ()))
    return _approximate(kernel, _Wish(width, input_dim, method, train_inputs, itertools.count(seed)))


@dataclass(frozen=True)
class _Wish:
    """What is asked for: of the whole kernel at first, then of its parts."""

    num_features: int
    input_dim: int | None
    method: str | FeatureMap
    x: Tensor | None
    seeds: Iterator[int] = field(repr=False)

    def select(self, kernel: Kernel) -> _Wish:
        """The same for the inputs that are left by the ``active_dims`` of a kernel."""
        if kernel.active_dims is None:
            return self
        dims = kernel.active_dims
        if self.input_dim is not None and int(dims.max()) >= self.input_dim:
            raise ValueError(
                f"expected active_dims below input_dim={self.input_dim}, got {int(dims.max())}; correct one of the two"
            )
        x = None if self.x is None else self.x.index_select(-1, dims)
        return replace(self, input_dim=dims.numel(), x=x)

    def name(self, known: Family) -> str:
        """The method for a family: its default where nothing is known, or where it is exact and has no other."""
        name = str(self.method)
        if name == "auto":
            return known.default
        is_other = MapRecipe(name, 2, 0).name not in known.methods
        return known.default if is_other and known.default in ("linear", "series") else name


def _approximate(kernel: Kernel, wish: _Wish) -> Kernel:
    if isinstance(kernel, FeatureStructure):
        return kernel
    if isinstance(kernel, ScaleKernel):
        # GPyTorch copies the active_dims of a base kernel to the ScaleKernel around it: they select once
        inner = wish if kernel.base_kernel.active_dims is not None else wish.select(kernel)
        return FeatureScaleKernel(_approximate(kernel.base_kernel, inner), kernel)
    if isinstance(kernel, AdditiveKernel):
        return _sum(_terms(kernel), wish)
    if isinstance(kernel, ProductKernel):
        return _product(kernel, wish)
    return _leaf(kernel, wish)


def _leaf(kernel: Kernel, wish: _Wish) -> FeatureKernel:
    known = family(kernel)
    if isinstance(wish.method, FeatureMap):
        return FeatureKernel(kernel, wish.method)
    whole, wish = wish, wish.select(kernel)
    columns = _num_columns(kernel, wish.input_dim)
    if wish.method == "auto" and whole.x is not None and _exact_columns(kernel, whole) is None:
        from ..selection import best_method

        wish = replace(wish, method=best_method(kernel, wish.num_features, whole.x))
    recipe = MapRecipe(wish.name(known), wish.num_features, next(wish.seeds))
    known.check_method(recipe)
    if columns is None:
        return FeatureKernel(kernel, recipe)
    like = reference(kernel)
    feature_map = known.build(recipe, columns, wish.x).to(dtype=like.dtype, device=like.device)
    return FeatureKernel(kernel, feature_map, known.center(recipe, wish.x))


def _terms(kernel: Kernel) -> list[Kernel]:
    """The parts of nested sums."""
    if isinstance(kernel, AdditiveKernel) and not isinstance(kernel, FeatureStructure):
        return [term for part in kernel.kernels for term in _terms(part)]
    return [kernel]


def _sum(terms: list[Kernel], wish: _Wish) -> FeatureSumKernel:
    exact = [_exact_columns(term, wish) for term in terms]
    shares = _shares(wish.num_features - sum(c for c in exact if c is not None), exact.count(None))
    widths = [next(shares) if columns is None else columns for columns in exact]
    return FeatureSumKernel(
        *[_approximate(term, replace(wish, num_features=width)) for term, width in zip(terms, widths, strict=True)]
    )


def _shares(total: int, count: int) -> Iterator[int]:
    """Equal shares of a number of features, in pairs as far as that goes."""
    if total < count:
        raise ValueError(f"expected at least one feature for each of {count} parts, got {total}; use more features")
    pairs, single = divmod(total, 2) if total >= 2 * count else (0, 0)
    if not pairs:
        return iter([total // count + (i < total % count) for i in range(count)])
    shares = [2 * (pairs // count + (i < pairs % count)) for i in range(count)]
    if count:
        shares[-1] += single
    return iter(shares)


def _exact_columns(kernel: Kernel, wish: _Wish) -> int | None:
    """The columns of the exact features of a part of a sum, or None where it is approximated."""
    if isinstance(kernel, ScaleKernel):
        inner = wish if kernel.base_kernel.active_dims is not None else wish.select(kernel)
        return _exact_columns(kernel.base_kernel, inner)
    if isinstance(kernel, AdditiveKernel | ProductKernel | FeatureStructure) or isinstance(wish.method, FeatureMap):
        return None
    known, wish = family(kernel), wish.select(kernel)
    return known.exact_columns(MapRecipe(wish.name(known), 2, 0), _num_columns(kernel, wish.input_dim))


def _product(kernel: ProductKernel, wish: _Wish) -> Kernel:
    factors = _factors(kernel)
    choices = [_terms(factor) for factor in factors]
    if any(len(terms) > 1 for terms in choices):
        return _sum([ProductKernel(*terms) for terms in itertools.product(*choices)], wish)
    is_complex = isinstance(wish.method, str) and wish.method.endswith(":complex")
    width = wish.num_features if is_complex else wish.num_features // 2
    exact = [_exact_columns(factor, wish) for factor in factors]
    small = [columns is not None and columns <= _SMALL for columns in exact]
    for columns, is_small in zip(exact, small, strict=True):
        width //= (columns or 1) if is_small else 1
    methods = [_method_in_product(factor, wish) for factor in factors]
    open_ended = [method for method, is_small in zip(methods, small, strict=True) if not is_small]
    groups = open_ended.count(None) + int(any(method is not None for method in open_ended))
    share = max(int(width ** (1.0 / max(groups, 1)) + 1e-9), 1)
    parts = []
    for factor, is_small, method in zip(factors, small, methods, strict=True):
        own = wish if is_small else replace(wish, num_features=share, method=method or wish.method)
        parts.append(_approximate(factor, own))
    return FeatureProductKernel(*parts, is_complex=is_complex)


_SMALL = 4
"""Exact features of at most so many columns multiply the number of features of a product."""


def _method_in_product(kernel: Kernel, wish: _Wish) -> str | None:
    """The method whose single columns are without bias, complex where it can be; None where there is none."""
    if isinstance(wish.method, FeatureMap) or isinstance(kernel, FeatureStructure):
        return None
    while isinstance(kernel, ScaleKernel):
        kernel = kernel.base_kernel
    known = family(kernel)
    name = wish.method.partition(":")[0]
    chosen = known.in_products if wish.method == "auto" or name not in known.methods else name
    if chosen is None or chosen.endswith(("maclaurin", "hadamard")) or chosen in ("linear", "series"):
        return None
    return chosen if chosen == "optical" else f"{chosen}:complex"


def _factors(kernel: Kernel) -> list[Kernel]:
    """The parts of nested products."""
    if isinstance(kernel, ProductKernel) and not isinstance(kernel, FeatureStructure):
        return [factor for part in kernel.kernels for factor in _factors(part)]
    return [kernel]


def _num_columns(kernel: Kernel, input_dim: int | None) -> int | None:
    """The number of columns that reach the kernel, or None where nothing tells."""
    if kernel.ard_num_dims is not None and input_dim not in (None, kernel.ard_num_dims):
        raise ValueError(
            f"expected {kernel.ard_num_dims} columns as ard_num_dims says, got {input_dim}; correct one of the two"
        )
    return kernel.ard_num_dims if input_dim is None else input_dim


def with_features(kernel: Kernel) -> Kernel:
    """The kernel itself, with GPyTorch compositions around kernels with features replaced by ones that keep these.

    :param kernel: a kernel made by :func:`approximate`, or a ScaleKernel or AdditiveKernel of such.
    :raises ValueError: where there are no features inside.
    """
    if isinstance(kernel, FeatureStructure):
        return kernel
    if isinstance(kernel, ScaleKernel):
        return FeatureScaleKernel(with_features(kernel.base_kernel), kernel)
    if isinstance(kernel, AdditiveKernel):
        return FeatureSumKernel(*[with_features(part) for part in kernel.kernels])
    raise ValueError(
        f"expected a kernel with random features, got {type(kernel).__name__}; wrap it with rfgp.approximate"
    )
