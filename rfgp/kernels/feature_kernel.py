"""An exact GPyTorch kernel together with the random features that approximate it."""

from __future__ import annotations

import abc
import copy
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from linear_operator.operators import LinearOperator
from torch import Tensor

from .. import _checks, _state
from ..features import FeatureMap
from ..inference import OutputFactor
from ..linalg import row_chunks
from ..operators import Operator
from .checked import CheckedKernel
from .families import Family, family
from .families.operator_valued import OperatorFamily
from .feature_operator import FeatureCrossLinearOperator, FeatureLinearOperator
from .operator_valued import without_dims
from .output_features import OutputFeatures
from .prediction import FeaturePredictionStrategy
from .recipe import MapRecipe


class FeatureStructure(CheckedKernel, abc.ABC):
    """What every kernel returned by :func:`rfgp.approximate` has beside being a GPyTorch kernel."""

    @property
    @abc.abstractmethod
    def exact_kernel(self) -> Kernel:
        """The exact kernel, with the same parameters."""

    @property
    @abc.abstractmethod
    def is_complex(self) -> bool:
        """Whether the features are complex; the kernel is then their real part."""

    @property
    @abc.abstractmethod
    def version(self) -> int:
        """How many times the weights have been drawn anew; caches compare it."""

    active_dims: Tensor | None
    modules: Callable[[], Iterator[torch.nn.Module]]

    def __call__(self, x1: Tensor, x2: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """GPyTorch's lazy kernel matrix; inputs of another dtype or device are refused at once."""
        for x in (x1, x2):
            if isinstance(x, Tensor) and x.is_floating_point():
                _checks.same_kind(x, reference(self, x), "x", "the kernel")
        kernel: Any = super()
        return kernel.__call__(x1, x2, *args, **kwargs)

    @abc.abstractmethod
    def active_features(self, x: Tensor) -> Tensor:
        """The features (..., N, D) of inputs whose ``active_dims`` have been selected, without the output factor."""

    def scalar_features(self, x: Tensor) -> Tensor:
        """The features (..., N, D) of the full inputs (..., N, d), without the output factor."""
        _checks.same_kind(_checks.inputs(x), reference(self, x), "x", "the kernel")
        with all_or_nothing(self):
            return self.active_features(self._select(x))

    def active_residual_variance(self, x: Tensor) -> Tensor | None:
        """The residual variance at inputs (..., N, d) whose ``active_dims`` have been selected."""
        return None

    def residual_variance(self, x: Tensor) -> Tensor | None:
        r"""The prior variance that features of a truncated series lack, :math:`\max(0, k(x, x) - \|\phi(x)\|^2)`.

        Predictions add it, independently between points, so that far from the data the variance of the prior comes
        back. Features that estimate the whole kernel lack nothing on average, and have none.

        :param x: the full inputs, (..., N, d).
        :returns: (..., N), or (..., N T) for several outputs, with the output scale; None where nothing is left out.
        :raises ValueError: where a map has not been made yet.
        """
        selected = self._select(_checks.inputs(x))
        chunks = row_chunks(x.shape[-2], self.num_scalar_features)
        parts = [self.active_residual_variance(selected[..., rows, :]) for rows in chunks]
        known = [part for part in parts if part is not None]
        return torch.cat(known, dim=-1) if known else None

    def _select(self, x: Tensor) -> Tensor:
        if self.active_dims is None:
            return x
        if int(self.active_dims.max()) >= x.shape[-1]:
            raise ValueError(
                f"expected x with more than {int(self.active_dims.max())} columns as active_dims says, got "
                f"{x.shape[-1]}; correct one of the two"
            )
        return x.index_select(-1, self.active_dims)

    @property
    @abc.abstractmethod
    def num_scalar_features(self) -> int:
        """The number of columns of the scalar features.

        :raises ValueError: where a map has not been made yet.
        """

    @property
    def input_dim(self) -> int:
        """The number of columns that ``active_dims`` leave to the features of an operator-valued kernel.

        :raises ValueError: where its map has not been made yet.
        """
        parts = [part for part in self.modules() if isinstance(part, FeatureKernel)]
        return parts[0]._made_map().input_dim

    @property
    def has_output_factor(self) -> bool:
        """Whether the kernel is operator-valued, with an OutputFactor."""
        return False

    @abc.abstractmethod
    def output_factor(self, operator: Operator | None = None) -> Tensor | OutputFactor:
        """The root (..., 1, 1) of the output scale for scalar kernels, else the factor of the outputs.

        :param operator: what is predicted instead of the outputs of an operator-valued kernel.
        :raises ValueError: where there is no such operator for the kernel, or a map has not been made yet.
        """

    @abc.abstractmethod
    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters that ``scalar_features`` depends on."""

    @abc.abstractmethod
    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new weights in place, and return the kernel."""

    @property
    def has_unbiased_columns(self) -> bool:
        """Whether every column alone, times the root of D, estimates the kernel without bias."""
        return False

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor | LinearOperator:
        """The kernel matrix of selected inputs, as an operator that knows its features, or its diagonal."""
        if last_dim_is_batch:
            raise ValueError("expected last_dim_is_batch=False, got True; sum kernels over active_dims instead")
        for x in (x1, x2):
            _checks.inputs(x)
        same = x1 is x2 or (x1.shape == x2.shape and torch.equal(x1, x2))
        if self.has_output_factor:
            return self._output_covariance(x1, None if same else x2, diag)
        with all_or_nothing(self):
            left = _checks.no_overflow(self._real_features(x1), x1)
            right = left if same else _checks.no_overflow(self._real_features(x2), x2)
        if diag:
            return (left * right).sum(-1)
        if not same:
            return FeatureCrossLinearOperator(left, right.mT)
        return FeatureLinearOperator(left, functools.partial(self.active_residual_variance, x1))

    def _output_covariance(self, x1: Tensor, x2: Tensor | None, diag: bool) -> Tensor | LinearOperator:
        with all_or_nothing(self):
            left = self.active_output_features(x1)
            right = left if x2 is None else self.active_output_features(x2)
        if diag:
            return (left.to_dense() * right.to_dense()).sum(-1)
        if x2 is not None:
            return FeatureCrossLinearOperator(left, right.mT)
        return FeatureLinearOperator(left, functools.partial(self.active_residual_variance, x1))

    def active_output_features(self, x: Tensor) -> OutputFeatures:
        """The features (..., N T, K) of many outputs at selected inputs, as an operator."""
        scalar = _checks.no_overflow(self.active_features(_checks.finite(x)), x)
        return OutputFeatures.of(scalar, self._many_outputs())

    def _many_outputs(self) -> OutputFactor:
        factor = self.output_factor()
        if not isinstance(factor, OutputFactor):
            raise ValueError("expected a kernel of several outputs, got a scalar one; use features(x)")
        return factor

    def _real_features(self, x: Tensor) -> Tensor:
        """Real features of selected inputs: complex ones as real and imaginary part side by side."""
        features = self.active_features(_checks.finite(x))
        return torch.cat([features.real, features.imag], dim=-1) if features.is_complex() else features

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> int:
        """One, or the number of outputs of the exact kernel."""
        return self.exact_kernel.num_outputs_per_input(x1, x2) if self.has_output_factor else 1

    def prediction_strategy(
        self,
        train_inputs: list[Tensor],
        train_prior_dist: MultivariateNormal,
        train_labels: Tensor,
        likelihood: Likelihood,
    ) -> FeaturePredictionStrategy:
        """Predictions in weight space."""
        return FeaturePredictionStrategy(train_inputs, train_prior_dist, train_labels, likelihood)

    def features(self, x: Tensor) -> Tensor:
        r"""Features with :math:`\phi(x) \phi(y)^H` = the kernel (its real part for complex maps).

        :param x: the full inputs, (..., N, d), of the dtype of the kernel; ``active_dims`` are applied here.
        :returns: (..., N, D), or (..., N T, K) for T outputs, rows interleaved.
        :raises ValueError: for inputs of another dtype, or with which the features overflow.
        """
        with all_or_nothing(self):
            return _checks.no_overflow(self.all_features(x), x)

    def all_features(self, x: Tensor) -> Tensor:
        """What :meth:`features` returns, unchecked."""
        scalar, factor = self.scalar_features(x), self.output_factor()
        return factor.features(scalar) if isinstance(factor, OutputFactor) else scalar * factor.to(scalar.dtype)

    def feature_operator(self, x: Tensor) -> OutputFeatures:
        """The features of many outputs as a linear operator, for iterative solvers: nothing of its size is formed.

        :param x: the full inputs, (..., N, d).
        :returns: (..., N T, K), with ``matvec`` and ``rmatvec`` at O(N n T) for n scalar features.
        :raises ValueError: for a scalar kernel, whose features are ``features(x)``.

        Source: B 5.4, Eq. 29 and 30.
        """
        with all_or_nothing(self):
            return OutputFeatures.of(self.scalar_features(x), self._many_outputs())

    @property
    def description(self) -> str:
        """What a state has to agree in beside its tensors: the kind of the kernel, and settings that are no tensors."""
        return f"{type(self).__name__}(is_complex={self.is_complex})"

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As for every module, but all or nothing.

        :raises ValueError: for the state of another kernel, method or width; this kernel stays as it was.
        """
        with all_or_nothing(self):
            _state.check(self, state_dict, strict=strict)  # type: ignore[arg-type]
            return super().load_state_dict(state_dict, strict, assign)  # type: ignore[misc]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        with all_or_nothing(self):
            _state.check(self, state_dict, prefix)  # type: ignore[arg-type]
            super()._load_from_state_dict(state_dict, prefix, *args)  # type: ignore[misc]

    def prepare_for(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Raise a ValueError where a state, whose names begin with ``prefix``, is that of another kind of kernel."""
        saved = state.get(f"{prefix}_extra_state")
        if saved is not None and int(saved.flatten()[0]) != _state.code(self.description):
            raise ValueError(
                f"expected the state of {self.description}, got that of another kernel; load it into a kernel that is "
                "made as the saved one was"
            )

    def get_extra_state(self) -> Tensor:
        """A code of what a state has to agree in."""
        return torch.tensor([_state.code(self.description)])

    def set_extra_state(self, state: Tensor) -> None:
        """Nothing is left to do where ``prepare_for`` has found the same."""


class FeatureKernel(FeatureStructure, Kernel):
    r"""An exact kernel and the random features that approximate it: :math:`k(x, y) \approx \phi(z(x)) \phi(z(y))^H`.

    The base kernel keeps all hyperparameters, constraints and priors; z(x) are inputs scaled by them. Where the map is
    complex, the kernel is the real part, that is the kernel of the complex-to-real features.

    :param base_kernel: an exact kernel of a family in :data:`rfgp.kernels.families.FAMILIES`.
    :param feature_map: a map of the base kernel's family, or a :class:`MapRecipe` from which one is made at the first
        call, when the number of columns is known.
    :param center: a point (d,) that is subtracted from the inputs; for shift-invariant kernels.
    :raises ValueError: where the map does not fit the kernel.

    >>> import gpytorch, rfgp
    >>> sketch = rfgp.features.TensorSRHT(3, 64, degree=2)
    >>> kernel = FeatureKernel(gpytorch.kernels.PolynomialKernel(power=2), sketch)
    >>> kernel(torch.randn(5, 2)).shape
    torch.Size([5, 5])
    """

    recipe: MapRecipe | None
    feature_map: FeatureMap | None
    center: Tensor | None

    def __init__(self, base_kernel: Kernel, feature_map: FeatureMap | MapRecipe, center: Tensor | None = None) -> None:
        _checks.instance("base_kernel", base_kernel, Kernel, "an exact GPyTorch kernel", "such as an RBFKernel()")
        wanted = (FeatureMap, MapRecipe)
        _checks.instance("feature_map", feature_map, wanted, "a FeatureMap or a MapRecipe", "see rfgp.features")
        if center is not None and _checks.finite(_checks.floating(center, "center"), "center").dim() != 1:
            raise ValueError(f"expected a center of shape (d,), got {tuple(center.shape)}; pass one point")
        super().__init__(active_dims=base_kernel.active_dims)
        self.base_kernel = base_kernel
        self.recipe = feature_map if isinstance(feature_map, MapRecipe) else None
        self.feature_map = None if isinstance(feature_map, MapRecipe) else feature_map
        self.register_buffer("center", None if center is None else center.detach().clone())
        if self.recipe is not None:
            self.family.check_method(self.recipe)
        if self.feature_map is not None:
            self.family.check_map(self.feature_map)

    @property
    def family(self) -> Family:
        """What the family of the base kernel knows about its maps."""
        return family(self.base_kernel)

    @property
    def has_unbiased_columns(self) -> bool:
        """Whether every column of the map alone estimates the kernel without bias."""
        return self.feature_map is not None and self.feature_map.has_unbiased_columns

    @property
    def exact_kernel(self) -> Kernel:
        """The base kernel."""
        return self.base_kernel

    @property
    def is_complex(self) -> bool:
        """Whether the features are complex; the kernel is then their real part."""
        source = self.recipe if self.feature_map is None else self.feature_map
        return source is not None and source.is_complex

    @property
    def version(self) -> int:
        """How many times the weights have been drawn anew."""
        return 0 if self.feature_map is None else self.feature_map.version

    def active_features(self, x: Tensor) -> Tensor:
        """Features of selected inputs: (..., N, d) to (..., N, D), complex for complex maps."""
        feature_map, law = self.bound_map(x)
        features, scale = feature_map(self.map_inputs(x), **law), self.family.scale(feature_map)
        return features if scale == 1.0 else scale * features

    def active_residual_variance(self, x: Tensor) -> Tensor | None:
        if not self.family.is_truncated(self._map(x)):
            return None
        prior = self.base_kernel.forward(x, x, diag=True)
        missing: Tensor = prior - self.forward(x, x, diag=True)
        return missing.clamp_min(torch.finfo(missing.dtype).tiny)  # not zero, where its root has no gradient

    def _real_features(self, x: Tensor) -> Tensor:
        feature_map, law = self.bound_map(_checks.finite(x))
        if not feature_map.is_complex:
            return super()._real_features(x)
        planes = torch.cat(feature_map.planes(self.map_inputs(x), **law), dim=-1)
        return self.family.scale(feature_map) * planes

    def map_inputs(self, x: Tensor) -> Tensor:
        """What the map is fed with for selected inputs (..., N, d): centred, and scaled by the parameters."""
        feature_map = self._map(x)
        _checks.inputs(x, feature_map.input_dim - self.family.extra_columns(feature_map))
        centred = x if self.center is None else x - self.center
        inputs = self.family.inputs(feature_map, centred)
        batch = torch.broadcast_shapes(self.batch_shape, inputs.shape[:-2])
        return inputs.expand(*batch, *inputs.shape[-2:])

    def bound_map(self, x: Tensor) -> tuple[FeatureMap, dict[str, Tensor]]:
        """The map, made for inputs like x where there is none yet, and the kernel parameters that it takes."""
        feature_map = self._map(x)
        return feature_map, self.family.law(feature_map)

    @property
    def num_scalar_features(self) -> int:
        """The number of columns of the map."""
        return self._made_map().num_features

    @property
    def has_output_factor(self) -> bool:
        """Whether the base kernel is operator-valued."""
        return isinstance(self.family, OperatorFamily)

    def output_factor(self, operator: Operator | None = None) -> Tensor | OutputFactor:
        """One, of shape (1, 1), or the factor that the frequencies of the map have for an operator-valued kernel."""
        known = self.family
        if not isinstance(known, OperatorFamily):
            no_operator(operator)
            return reference(self).new_ones(1, 1)
        feature_map = self._made_map()
        if operator is None:
            return known.output_factor(feature_map)
        _checks.instance("operator", operator, Operator, "an operator of rfgp.operators", "such as Divergence()")
        w, columns = known.frequencies(feature_map), feature_map.input_dim
        outputs = known.kernel.num_outputs(columns)
        known.check_operator(operator, columns)
        return known.output_factor(feature_map, operator.symbol(w, outputs))

    def all_features(self, x: Tensor) -> Tensor:
        """The features of the full inputs, (..., N, d) to (..., N, D) or (..., N T, K)."""
        return super().all_features(x) if self.has_output_factor else self.scalar_features(x)

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """All parameters of the base kernel."""
        return self.base_kernel.parameters()

    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new weights in place, and return the kernel.

        :param generator: a CPU generator; PyTorch's default one where it is None.
        :raises ValueError: where the map has not been made yet.
        """
        self._made_map().resample(generator)
        return self

    def _made_map(self) -> FeatureMap:
        if self.feature_map is None:
            raise ValueError("expected a kernel whose map is made, got one that waits for its first inputs; call it")
        return self.feature_map

    def _map(self, x: Tensor) -> FeatureMap:
        like = reference(self, x)
        _checks.same_kind(_checks.inputs(x), like, "x", "the kernel")
        return self._build(x.shape[-1], like) if self.feature_map is None else self.feature_map

    def _build(self, input_dim: int, like: Tensor, known: Family | None = None) -> FeatureMap:
        """Make the map from the recipe, with weights of the dtype and on the device of ``like``."""
        if self.recipe is None:
            raise ValueError("expected a recipe for the feature map, got none; pass a FeatureMap or a MapRecipe")
        feature_map = (known or self.family).make(self.recipe, input_dim, None, like)
        self.family.check_map(feature_map)
        self.feature_map = feature_map
        return feature_map

    def _with_base(self, base_kernel: Kernel) -> FeatureKernel:
        base_kernel.active_dims = self.active_dims
        source = self.recipe if self.feature_map is None else self.feature_map
        if source is None:
            raise ValueError("expected a kernel with a feature map or a recipe for one, got neither")
        twin = FeatureKernel(base_kernel, source, self.center)
        twin.recipe = self.recipe
        return twin.train(self.training)

    def __getitem__(self, index: Any) -> FeatureKernel:
        return self._with_base(without_dims(self.base_kernel)[index]) if self.batch_shape else self

    def expand_batch(self, *sizes: Any) -> FeatureKernel:
        return self._with_base(without_dims(self.base_kernel).expand_batch(*sizes))

    @property
    def description(self) -> str:
        """Kind and settings of the base kernel; the map describes itself."""
        kernels = [(n, part) for n, part in self.base_kernel.named_modules(remove_duplicate=False)]
        texts = [f"{name} {_described(part)}" for name, part in kernels if isinstance(part, Kernel)]
        return f"{type(self).__name__}({'; '.join(texts).strip()})"

    def prepare_for(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Have a map where the state has one, and none where it has none.

        :raises ValueError: for the state of another kernel, or where there is no recipe for its map.
        """
        super().prepare_for(state, prefix)
        weights = [value for name, value in state.items() if name.startswith(f"{prefix}feature_map.")]
        saved = state.get(f"{prefix}_extra_state")
        if saved is None:
            return
        center = state.get(f"{prefix}center")
        self.center = None if center is None else reference(self.base_kernel).new_empty(center.shape)
        if bool(weights) == (self.feature_map is not None):
            return
        if self.recipe is None:
            raise ValueError(
                f"expected a state with the weights of {type(self.feature_map).__name__} features, got that of a "
                "kernel that waits for its first inputs; save it after the first call"
            )
        if not weights:
            self.feature_map = None
            return
        like = next((torch.empty(0, dtype=v.dtype) for v in weights if v.is_floating_point()), None)
        own = f"{prefix}base_kernel."
        values = {name.removeprefix(own): value for name, value in state.items() if name.startswith(own)}
        trained = copy.deepcopy(self.base_kernel)  # a map may depend on the parameters that it is made with
        _state.check(trained, values)
        trained.load_state_dict(values, strict=False)
        made = self._build(int(saved[1]), reference(self.base_kernel, like), family(trained))
        made.prepare_for(state, f"{prefix}feature_map.")

    def get_extra_state(self) -> Tensor:
        """A code of what a state has to agree in, and the number of input columns; zero before the first inputs."""
        made = self.feature_map
        columns = 0 if made is None else made.input_dim - self.family.extra_columns(made)
        return torch.tensor([_state.code(self.description), columns])


_SETTINGS = ("nu", "power", "num_mixtures", "exponent", "skewness", "operators", "measure")
"""What kernels have that is neither a tensor nor a part: what their classes and states do not tell."""


def _described(kernel: Kernel) -> str:
    known = {name: vars(kernel)[name] for name in _SETTINGS if name in vars(kernel)}
    texts = [f"{k}={float(v) if isinstance(v, int) else v!r}" for k, v in known.items()]
    return re.sub(r" at 0x[0-9a-f]+", "", f"{type(kernel).__name__}({', '.join(texts)})")


def check_parts(kernels: Iterable[Any]) -> None:
    """Raise a ValueError where the parts of a composition are not kernels with features, or there are none."""
    parts = list(kernels)
    for part in parts or [None]:
        _checks.instance(
            "every part", part, FeatureStructure, "a kernel with features", "wrap it with rfgp.approximate"
        )


def no_operator(operator: Operator | None) -> None:
    """Raise a ValueError where an operator is asked for from a kernel that has no frequencies to apply it to."""
    if operator is not None:
        raise ValueError(
            f"expected an operator-valued kernel for the prediction of {operator}, got a scalar or decomposable one; "
            "observe a scalar Gaussian or Matern kernel by LinearlyObservedKernel(kernel, [Value()])"
        )


@contextmanager
def all_or_nothing(kernel: Any) -> Iterator[None]:
    """Where anything is raised, also an interrupt, give the kernels inside back the maps that they had, or none."""
    parts = [part for part in kernel.modules() if isinstance(part, FeatureKernel)]
    before = [(part, part.feature_map, part.center) for part in parts]
    try:
        yield
    except BaseException:
        for part, feature_map, center in before:
            part.feature_map, part.center = feature_map, center
        raise


def reference(module: Any, default: Tensor | None = None) -> Tensor:
    """A tensor of the dtype and on the device of a module: its first parameter or buffer, else the default one."""
    tensors = [*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())]
    return tensors[0] if tensors else torch.empty(0) if default is None else default
