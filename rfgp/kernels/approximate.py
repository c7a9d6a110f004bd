"""The one new line: an exact kernel in, a kernel with random features out."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import gpytorch
import torch
from gpytorch.kernels import AdditiveKernel, IndexKernel, Kernel, MultitaskKernel, ProductKernel, ScaleKernel
from torch import Tensor

from .. import _checks
from ..features import FeatureMap
from .composition import FeatureProductKernel, FeatureScaleKernel, FeatureSumKernel
from .families import Family, family, unsupported
from .families.operator_valued import OperatorFamily
from .feature_kernel import FeatureKernel, FeatureStructure, reference
from .multitask import FeatureIndexKernel, FeatureMultitaskKernel
from .observed import LinearlyObservedKernel
from .operator_valued import OperatorValuedKernel
from .recipe import MapRecipe
from .scale import with_scale_of


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

    :param kernel: a kernel of a supported family, or ScaleKernel, AdditiveKernel, ProductKernel and MultitaskKernel of
        them; for one task per row a product with an IndexKernel.
    :param num_features: the number of columns D that come out (of scalar columns, for several outputs); fewer where
        exact parts, such as a linear kernel, need fewer, or where the parts of a sum or product leave some over.
    :param input_dim: the number of columns of the inputs; where it is None it is taken from ``train_inputs``,
        ``active_dims`` or ARD, and else from the first inputs the kernel sees.
    :param method: "auto", the name of a method, or a ready FeatureMap of ``num_features`` columns; see
        :class:`rfgp.kernels.MapRecipe`. "auto" takes the method with the smallest predicted error on ``train_inputs``,
        see :func:`rfgp.selection.best_method`; without them, exact features for linear kernels, orthogonal Fourier
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
        if width > train_inputs.shape[-2] and kernel.num_outputs_per_input(train_inputs, train_inputs) == 1:
            warnings.warn(
                f"num_features={width} exceeds the {train_inputs.shape[-2]} training rows: the exact kernel costs less",
                stacklevel=2,
            )
    elif input_dim is not None:
        input_dim = _checks.positive_integer("input_dim", input_dim)
    seed = int(torch.randint(0, 2**31 - 1, ())) if seed is None else _checks.seed(seed)
    like = reference(kernel, train_inputs)
    return _approximate(kernel, _Wish(width, input_dim, method, train_inputs, like, itertools.count(seed)))


@dataclass(frozen=True)
class _Wish:
    """What is asked for: of the whole kernel at first, then of its parts."""

    num_features: int
    input_dim: int | None
    method: str | FeatureMap
    x: Tensor | None
    like: Tensor
    """A tensor whose dtype and device weights take where a part of the kernel has none of its own."""
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
    if isinstance(kernel, LinearlyObservedKernel) and (distributed := kernel.distributed()) is not kernel:
        return _approximate(distributed, wish)
    if isinstance(kernel, MultitaskKernel):
        return _multitask(kernel, wish)
    if isinstance(kernel, IndexKernel):
        return FeatureIndexKernel(kernel)
    if isinstance(kernel, AdditiveKernel) and _has_one_scalar_kernel(kernel):
        return _one_measure(kernel, wish)
    if isinstance(kernel, AdditiveKernel | ProductKernel) and isinstance(wish.method, FeatureMap):
        raise ValueError(
            f"expected the name of a method for {type(kernel).__name__}, whose parts need features of their own, got a "
            f"{type(wish.method).__name__}; approximate the parts one by one"
        )
    if isinstance(kernel, AdditiveKernel):
        return _sum(_terms(kernel), wish)
    if isinstance(kernel, ProductKernel):
        return _product(kernel, wish)
    return _leaf(kernel, wish)


def _leaf(kernel: Kernel, wish: _Wish) -> FeatureKernel:
    known = family(kernel)
    if isinstance(wish.method, FeatureMap):
        return _with_map(kernel, wish.method, wish.num_features)
    whole, wish = wish, wish.select(kernel)
    columns = _num_columns(kernel, wish.input_dim)
    is_ranked = not isinstance(kernel, OperatorValuedKernel) and _exact_columns(kernel, whole) is None
    if wish.method == "auto" and whole.x is not None and is_ranked:
        from ..selection import best_method

        wish = replace(wish, method=best_method(kernel, wish.num_features, whole.x))
    recipe = MapRecipe(wish.name(known), wish.num_features, next(wish.seeds))
    known.check_method(recipe)
    if columns is None:
        return FeatureKernel(kernel, recipe)
    feature_map = known.make(recipe, columns, wish.x, reference(kernel, wish.like))
    made = FeatureKernel(kernel, feature_map, known.center(recipe, wish.x))
    made.recipe = recipe
    return made


def _with_map(kernel: Kernel, feature_map: FeatureMap, num_features: int) -> FeatureKernel:
    made = FeatureKernel(kernel, feature_map)  # which raises where the map is another kernel's
    if feature_map.num_features != num_features:
        raise ValueError(
            f"expected num_features={feature_map.num_features}, the columns of the {type(feature_map).__name__} given "
            f"as method, got {num_features}; make the two agree"
        )
    return made


def _multitask(kernel: MultitaskKernel, wish: _Wish) -> FeatureMultitaskKernel:
    data = kernel.data_covar_module
    if data.active_dims is not None:
        raise ValueError(
            "expected active_dims on the MultitaskKernel, got them on its data kernel, where GPyTorch ignores them; "
            "move them"
        )
    return FeatureMultitaskKernel(_approximate(data, wish.select(kernel)), kernel)


def _has_one_scalar_kernel(kernel: AdditiveKernel) -> bool:
    """Whether a sum is one of operator-valued kernels with the very same scalar kernel of the same inputs."""
    leaves = [_unscaled(term) for term in _terms(kernel)]
    if not all(isinstance(leaf, OperatorValuedKernel) and leaf.scalar_kernel is not leaf for leaf in leaves):
        return False
    dims = {_dims(part) for part in [*_terms(kernel), *leaves]}
    return len(dims) == len({id(leaf.scalar_kernel) for leaf in leaves}) == 1


def _dims(kernel: Kernel) -> tuple[int, ...] | None:
    return None if kernel.active_dims is None else tuple(kernel.active_dims.tolist())


def _one_measure(kernel: AdditiveKernel, wish: _Wish) -> FeatureSumKernel:
    """A sum whose terms share one map, with frequencies that suit all of them (M Example 5)."""
    terms = _terms(kernel)
    leaves = [_unscaled(term) for term in terms]
    if not isinstance(wish.method, FeatureMap):
        columns = _num_columns(leaves[0], wish.select(leaves[0]).input_dim)
        if columns is None:
            raise ValueError("expected input_dim for a sum of kernels that share one measure, got none; pass it")
        known = OperatorFamily(leaves[0])
        like = reference(kernel, wish.like)
        recipe = MapRecipe(wish.name(known), wish.num_features, next(wish.seeds), like.dtype)
        known.check_method(recipe)
        for leaf in leaves:
            leaf.covariance(columns)  # which raises where there is none
        powers = {power for leaf in leaves for power in leaf.powers(columns)}
        shared = known.weighted_map(recipe, columns, tuple(sorted(powers))).to(like.device)
        wish = replace(wish, method=shared)
    return FeatureSumKernel(*[_approximate(term, wish) for term in terms])


def _unscaled(kernel: Kernel) -> Kernel:
    while isinstance(kernel, ScaleKernel) and not isinstance(kernel, FeatureStructure):
        kernel = kernel.base_kernel
    return kernel


def _terms(kernel: Kernel) -> list[Kernel]:
    """The parts of nested sums."""
    if isinstance(kernel, AdditiveKernel) and not isinstance(kernel, FeatureStructure):
        return [term for part in kernel.kernels for term in _terms(part)]
    return [kernel]


def _sum(terms: list[Kernel], wish: _Wish) -> FeatureSumKernel:
    exact = [_exact_columns(term, wish) for term in terms]
    open_ended = [term for term, columns in zip(terms, exact, strict=True) if columns is None]
    shares = _shares(wish.num_features - sum(c or 0 for c in exact), [_has_pairs(term, wish) for term in open_ended])
    widths = [next(shares) if columns is None else columns for columns in exact]
    return FeatureSumKernel(
        *[_approximate(term, replace(wish, num_features=width)) for term, width in zip(terms, widths, strict=True)]
    )


def _shares(total: int, has_pairs: list[bool]) -> Iterator[int]:
    """Equal shares of a number of features, in pairs; single ones go where columns need no pairs, if anywhere."""
    count = len(has_pairs)
    needed = sum(2 if paired else 1 for paired in has_pairs)
    if total < needed:
        raise ValueError(
            f"expected at least {needed} features for {count} approximated parts of a sum, beside the columns of exact "
            f"parts, got {total}; use {needed - total} more"
        )
    if total < 2 * count:
        shares, single = [2 if paired else 1 for paired in has_pairs], total - needed
    else:
        pairs, single = divmod(total, 2)
        shares = [2 * (pairs // count + (i < pairs % count)) for i in range(count)]
    for i in reversed(range(count)):
        if single and not has_pairs[i]:
            shares[i], single = shares[i] + 1, single - 1
    return iter(shares)


def _has_pairs(kernel: Kernel, wish: _Wish) -> bool:
    """Whether the features of a part that is approximated come in pairs, or may do so."""
    kernel = _unscaled(kernel)
    if isinstance(kernel, FeatureStructure | IndexKernel):
        return False
    if isinstance(kernel, MultitaskKernel):
        return _has_pairs(kernel.data_covar_module, wish)
    if isinstance(kernel, AdditiveKernel | ProductKernel):
        return not str(wish.method).endswith(":complex")
    known = family(kernel)
    is_open = wish.method == "auto" and wish.x is not None
    names = known.applicable(wish.x.shape[-1]) if is_open and wish.x is not None else (wish.name(known),)
    return any(MapRecipe(name, 2, 0).has_pairs for name in names)


def _exact_columns(kernel: Kernel, wish: _Wish) -> int | None:
    """The columns of the exact features of a part of a sum, or None where it is approximated."""
    if isinstance(kernel, ScaleKernel):
        inner = wish if kernel.base_kernel.active_dims is not None else wish.select(kernel)
        return _exact_columns(kernel.base_kernel, inner)
    if isinstance(kernel, MultitaskKernel) and not isinstance(kernel, FeatureStructure):
        return _exact_columns(kernel.data_covar_module, wish.select(kernel))
    if isinstance(kernel, IndexKernel):
        return kernel.covar_factor.shape[-2]
    if isinstance(kernel, AdditiveKernel | ProductKernel | FeatureStructure) or isinstance(wish.method, FeatureMap):
        return None
    known, wish = family(kernel), wish.select(kernel)
    return known.exact_columns(MapRecipe(wish.name(known), 2, 0), _num_columns(kernel, wish.input_dim))


def _product(kernel: ProductKernel, wish: _Wish) -> Kernel:
    products = _expanded(kernel)
    if len(products) > 1:
        seen: set[tuple[int, ...]] = set()
        terms = [[_with_new_priors(factor, seen) for factor in factors] for factors in products]
        return _sum([ProductKernel(*factors) if len(factors) > 1 else factors[0] for factors in terms], wish)
    (factors,) = products
    if any(isinstance(_unscaled(factor), MultitaskKernel | OperatorValuedKernel) for factor in factors):
        raise ValueError(
            "expected scalar kernels in a product, got one of several outputs; multiply inside MultitaskKernel"
        )
    exact = [_exact_columns(factor, wish) for factor in factors]
    indices = [isinstance(_unscaled(factor), IndexKernel) for factor in factors]
    small = [is_index or (c is not None and c <= _SMALL) for is_index, c in zip(indices, exact, strict=True)]
    methods = [_method_in_product(factor, wish) for factor in factors]
    open_ended = [method for method, is_small in zip(methods, small, strict=True) if not is_small]
    is_complex = str(wish.method).endswith(":complex")
    becomes_pairs = not is_complex and any(str(method).endswith(":complex") for method in open_ended)
    width = wish.num_features // 2 if becomes_pairs else wish.num_features
    for columns, is_small, is_index in zip(exact, small, indices, strict=True):
        width //= (columns or 1) if is_small and not is_index else 1
    groups = open_ended.count(None) + int(any(method is not None for method in open_ended))
    share = int(width ** (1.0 / max(groups, 1)) + 1e-9)
    parts = []
    for factor, is_small, method in zip(factors, small, methods, strict=True):
        own = wish if is_small else replace(wish, method=method or _own_method(factor, wish))
        if not is_small:
            columns = share - share % 2 if _has_pairs(factor, own) else share
            if not columns and not isinstance(factor, FeatureStructure):
                raise ValueError(
                    f"expected more features for a product of {len(factors)} parts, got {wish.num_features}, which "
                    "leaves none to some of them; use more"
                )
            own = replace(own, num_features=columns)
        parts.append(_approximate(factor, own))
    return FeatureProductKernel(*parts, is_complex=is_complex)


_SMALL = 4
"""Exact features of at most so many columns multiply the number of features of a product."""


def _expanded(kernel: Kernel) -> list[list[Kernel]]:
    """The factors of the products whose sum is the kernel; scales of sums and products go to their first factors."""
    if isinstance(kernel, FeatureStructure):
        return [[kernel]]
    if isinstance(kernel, AdditiveKernel):
        return [factors for part in kernel.kernels for factors in _expanded(part)]
    if isinstance(kernel, ProductKernel):
        choices = itertools.product(*[_expanded(part) for part in kernel.kernels])
        return [[factor for factors in chosen for factor in factors] for chosen in choices]
    if not isinstance(kernel, ScaleKernel) or not any(
        isinstance(part, AdditiveKernel | ProductKernel) for part in kernel.base_kernel.modules()
    ):
        return [[kernel]]
    if kernel.active_dims is not None:
        raise ValueError(
            "expected active_dims on the parts of a sum or a product inside a product, got them on a ScaleKernel "
            "around it; move them inside"
        )
    return [[with_scale_of(kernel, first), *others] for first, *others in _expanded(kernel.base_kernel)]


def _with_new_priors(kernel: Kernel, seen: set[tuple[int, ...]]) -> Kernel:
    """A factor; where some of its priors have been seen, one with the very same parameters that leaves those out.

    GPyTorch counts a prior as often as its kernel occurs, and multiplying out repeats kernels.
    """
    own = {
        (id(prior), *(id(parameter) for parameter in module.parameters(recurse=False)))
        for module in kernel.modules()
        if isinstance(module, gpytorch.Module)
        for prior, *_ in module._priors.values()
    }
    if not own & seen:
        seen |= own
        return kernel
    shared = [*kernel.parameters(), *(constraint for _, constraint in kernel.named_constraints())]
    twin = copy.deepcopy(kernel, {id(part): part for part in shared})
    for module, original in zip(twin.modules(), kernel.modules(), strict=True):
        if isinstance(original, gpytorch.Module):
            parameters = [id(parameter) for parameter in original.parameters(recurse=False)]
            known = [name for name, (prior, *_) in original._priors.items() if (id(prior), *parameters) in seen]
            module._priors = type(original._priors)((k, v) for k, v in module._priors.items() if k not in known)
    seen |= own
    return twin


def _own_method(kernel: Kernel, wish: _Wish) -> str:
    """The method asked for, or "auto" for a factor that has no such method."""
    kernel = _unscaled(kernel)
    name = str(wish.method).partition(":")[0]
    has_name = isinstance(kernel, FeatureStructure | IndexKernel) or name in family(kernel).methods
    return str(wish.method) if has_name else "auto"


def _method_in_product(kernel: Kernel, wish: _Wish) -> str | None:
    """The method whose single columns are without bias, complex where it can be; None where there is none."""
    kernel = _unscaled(kernel)
    if isinstance(kernel, FeatureStructure | IndexKernel | MultitaskKernel):
        return None
    known = family(kernel)
    name = str(wish.method).partition(":")[0]
    chosen = known.in_products if wish.method == "auto" or name not in known.methods else name
    if chosen is None or chosen.endswith(("maclaurin", "hadamard")) or chosen in ("linear", "series"):
        return None
    return chosen if chosen == "optical" else f"{chosen}:complex"


def _num_columns(kernel: Kernel, input_dim: int | None) -> int | None:
    """The number of columns that reach the kernel, or None where nothing tells."""
    kernel = kernel.scalar_kernel if isinstance(kernel, OperatorValuedKernel) else kernel
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
    if isinstance(kernel, MultitaskKernel):
        return FeatureMultitaskKernel(with_features(kernel.data_covar_module), kernel)
    raise ValueError(
        f"expected a kernel with random features, got {type(kernel).__name__}; wrap it with rfgp.approximate"
    )
