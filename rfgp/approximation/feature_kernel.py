"""An exact GPyTorch kernel together with the features that approximate it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import gpytorch
import torch
from gpytorch.constraints import Interval
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel
from gpytorch.likelihoods import Likelihood
from gpytorch.module import RandomModuleMixin
from gpytorch.priors import Prior
from linear_operator.operators import LinearOperator
from torch import Tensor

from .._support import checks, states
from .._support.gpytorch_names import batch_shape_of, modules_of, own_names, set_batch_shape
from ..features import FeatureMap
from ..features.random_weights import weights_kept_on_error
from ..functionals import Operator
from ..inference import OutputFactor
from ..inference.posterior.covariance import ResidualCovariance
from ..kernels.batches import expanded, indexed
from ..kernels.checked import CheckedKernel, refuse_last_dim_is_batch
from ..linalg.frequency_grid import FrequencyGrid
from .checked_state import CheckedState
from .family import Family, KernelMoments, family
from .hooks.kernel_matrix import kernel_matrix, with_residual
from .hooks.output_features import OutputFeatures
from .hooks.prediction import FeaturePredictionStrategy
from .map_family import MapFamily
from .maps import DrawnMap, MapRecipe, drawn_maps, maps_kept_on_error
from .reference_tensor import reference_tensor
from .registry import HasFeatures, described, described_maps, without_features
from .waves import Waves
from .width_warning import warn_of_dense


class FeatureKernel(HasFeatures, CheckedKernel, CheckedState, Kernel):
    r"""An exact kernel and the features that approximate it: what :func:`rfgp.approximate` returns.

    .. math:: k(x, y) \approx \mathrm{Re}\, \phi(x) \phi(y)^H

    The exact kernel is the one that was given, with its parameters, priors and constraints; its attributes can be read
    and set here too, such as ``kernel.lengthscale`` or ``kernel.base_kernel``. How it has features is said by the
    family of its class, see :func:`rfgp.approximation.approximates`.

    :param exact_kernel: an exact kernel, whose parts may have features of their own.
    :param maps: the weights that were drawn for it; a feature map, or a ``MapRecipe`` from which one is made at the
        first call, for a kernel with one map.
    :raises ValueError: where the maps do not fit the kernel.

    >>> import gpytorch, rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=64, input_dim=3)
    >>> kernel.features(torch.zeros(5, 3)).shape
    torch.Size([5, 64])
    >>> sketch = rfgp.features.TensorSRHT(3, 64, degree=2)
    >>> FeatureKernel(gpytorch.kernels.PolynomialKernel(power=2), sketch)(torch.randn(5, 2)).shape
    torch.Size([5, 5])
    """

    maps: torch.nn.Module
    includes_residual: bool = False
    """Whether matrices have the variance that the features leave over: in GPyTorch's variational models, where nothing
    else adds it. It is :math:`r(x)` where two inputs are equal, and zero elsewhere."""

    def __init__(self, exact_kernel: Kernel, maps: torch.nn.Module | FeatureMap | MapRecipe) -> None:
        checks.instance("exact_kernel", exact_kernel, Kernel, "an exact GPyTorch kernel", "such as an RBFKernel()")
        what = "a FeatureMap, a MapRecipe or drawn maps"
        checks.instance("maps", maps, (torch.nn.Module, MapRecipe), what, "see rfgp.features")
        drawn = DrawnMap(maps) if isinstance(maps, FeatureMap | MapRecipe) else maps
        looked_at = family(exact_kernel, drawn)
        looked_at.check()
        super().__init__(active_dims=looked_at.active_dims)
        self.ard_num_dims = exact_kernel.ard_num_dims
        self.exact_kernel, self.maps = exact_kernel, drawn

    # The exact kernel

    @property
    def exact_kernel(self) -> Any:
        """The exact kernel, with the same parameters."""
        return without_features(modules_of(self)["exact_kernel"])

    @exact_kernel.setter
    def exact_kernel(self, value: Kernel) -> None:
        modules_of(self)["exact_kernel"] = value

    @property
    def family(self) -> Family:
        """The exact kernel with its maps, as the family of its class looks at them."""
        modules = modules_of(self)
        return family(modules["exact_kernel"], modules["maps"])

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            exact_kernel = vars(self).get("_modules", {}).get("exact_kernel")
            if exact_kernel is None or name.startswith("__") or hasattr(type(self), name):
                raise
        return getattr(exact_kernel, name)

    def __setattr__(self, name: str, value: Any) -> None:
        exact_kernel = vars(self).get("_modules", {}).get("exact_kernel")
        is_own = name in vars(self) or hasattr(type(self), name) or name in own_names(self)
        if exact_kernel is not None and not is_own and hasattr(exact_kernel, name):
            setattr(exact_kernel, name, value)
        else:
            super().__setattr__(name, value)
            if name == "active_dims" and exact_kernel is not None and value is not None:
                exact_kernel.active_dims = value  # GPyTorch sets None for a moment, where inputs are selected already

    @property
    def has_lengthscale(self) -> bool:
        """Whether the exact kernel has one."""
        exact_kernel = modules_of(self).get("exact_kernel")
        return exact_kernel is not None and exact_kernel.has_lengthscale

    @property
    def lengthscale(self) -> Tensor:
        """The lengthscale of the exact kernel."""
        return modules_of(self)["exact_kernel"].lengthscale

    @lengthscale.setter
    def lengthscale(self, value: Tensor | float) -> None:
        modules_of(self)["exact_kernel"].lengthscale = value

    @property
    def is_stationary(self) -> bool:
        """False: features of a stationary kernel need not have a stationary product."""
        return False

    def initialize(self, **kwargs: Any) -> Self:
        """Set parameters by name, those of the exact kernel there."""
        for name, value in kwargs.items():
            if name.partition(".")[0] in own_names(self):
                super().initialize(**{name: value})
            else:
                modules_of(self)["exact_kernel"].initialize(**{name: value})
        return self

    def register_constraint(self, param_name: str, constraint: Interval, replace: bool = True) -> None:
        """Register a constraint for a parameter of the exact kernel, there."""
        modules_of(self)["exact_kernel"].register_constraint(param_name, constraint, replace)

    def register_prior(
        self,
        name: str,
        prior: Prior,
        param_or_closure: str | Callable[..., Any],
        setting_closure: Callable[..., Any] | None = None,
    ) -> None:
        """Register a prior for a parameter of the exact kernel, there."""
        modules_of(self)["exact_kernel"].register_prior(name, prior, param_or_closure, setting_closure)

    @property
    def batch_shape(self) -> torch.Size:
        """That of the exact kernel, whose parts may have others where it sums over a batch."""
        return torch.broadcast_shapes(batch_shape_of(self), modules_of(self)["exact_kernel"].batch_shape)

    @batch_shape.setter
    def batch_shape(self, shape: torch.Size) -> None:
        set_batch_shape(self, shape)

    def __getitem__(self, index: Any) -> FeatureKernel:
        return self._with(indexed(modules_of(self)["exact_kernel"], index)) if self.batch_shape else self

    def expand_batch(self, *sizes: Any) -> FeatureKernel:
        return self._with(expanded(modules_of(self)["exact_kernel"], *sizes))

    def _with(self, exact_kernel: Kernel) -> FeatureKernel:
        return FeatureKernel(exact_kernel, self.maps).train(self.training)

    # The features

    def features(self, x: Tensor) -> Tensor:
        """Features (..., N, D) of the full inputs (..., N, d), or (..., N T, K) for T outputs, rows interleaved.

        :raises ValueError: for inputs of another dtype, or with which the features overflow.
        """
        x = checks.columns(x)
        with maps_kept_on_error(self):
            return checks.no_overflow(self.all_features(x), x, self)

    def all_features(self, x: Tensor) -> Tensor:
        """What :meth:`features` returns, which may be infinite."""
        return self.family.all_features(x)

    def scalar_features(self, x: Tensor) -> Tensor:
        """The features (..., N, D) of the full inputs (..., N, d), without output scale and output factor.

        :raises ValueError: for inputs of another dtype or device.
        """
        return self.family.scalar_features(x)

    def feature_operator(self, x: Tensor) -> OutputFeatures:
        """The features (..., N T, K) of many outputs as a linear operator, whose products cost O(N n T); B 5.4.

        :raises ValueError: for a scalar kernel, whose features are ``features(x)``.
        """
        with maps_kept_on_error(self):
            return OutputFeatures.of(self.scalar_features(x), self.outputs_factor())

    @property
    def num_scalar_features(self) -> int:
        """The number of columns D of the scalar features; a ValueError where a map has not been made yet."""
        return self.family.num_scalar_features

    @property
    def input_dim(self) -> int:
        """The number of columns that ``active_dims`` leave; a ValueError where a map has not been made yet."""
        return self.family.input_dim

    @property
    def is_complex(self) -> bool:
        """Whether the features are complex; the kernel is then their real part."""
        return self.family.is_complex

    @property
    def has_output_factor(self) -> bool:
        """Whether the kernel is operator-valued, with an OutputFactor."""
        return self.family.has_output_factor

    def output_factor(self, operator: Operator | None = None) -> Tensor | OutputFactor:
        """The root (..., 1, 1) of the output scale of scalar kernels, else the factor of the outputs or of an operator.

        :raises ValueError: where there is no such operator for the kernel, or a map has not been made yet.
        """
        return self.family.output_factor(operator)

    def outputs_factor(self) -> OutputFactor:
        """The factor of several outputs; a ValueError where there is one."""
        return self.family.outputs_factor()

    @property
    def scale_shape(self) -> torch.Size:
        """The batch shape of the output scale."""
        return self.family.scale_shape

    @property
    def total_outputscale(self) -> Tensor:
        """The product of the output scales around :attr:`unscaled`."""
        return self.family.total_outputscale

    @property
    def unscaled(self) -> Family:
        """The exact kernel inside output scales, with its maps."""
        return self.family.unscaled

    def summands(self) -> list[FeatureKernel]:
        """Kernels that add up to this one."""
        terms = self.family.summands()
        return [self] if len(terms) == 1 else [FeatureKernel(term.kernel, term.maps) for term in terms]

    def separated(self) -> tuple[FeatureKernel, Tensor] | None:
        """A scalar kernel and a covariance (T, T) of outputs whose product this is; None where there are none."""
        parts = self.family.separated()
        return None if parts is None else (FeatureKernel(parts[0].kernel, parts[0].maps), parts[1])

    def residual_variance(self, x: Tensor) -> Tensor | None:
        r"""The prior variance that landmarks, a grid or a truncated series lack, :math:`k(x, x) - \|\phi(x)\|^2`.

        Predictions add it. It is (..., N), or (..., N T) for T outputs; None for features of the whole kernel.

        :raises ValueError: where a map has not been made yet.
        """
        return self.family.residual_variance(x)

    def residual_covariance(self, x: Tensor) -> ResidualCovariance | None:
        r"""The residual covariance (T, T) of outputs at points, :math:`K(x, x) - F(x) F(x)^\top`.

        None for features of the whole kernel.

        :raises ValueError: where a map has not been made yet.
        """
        return self.family.residual_covariance(x)

    @property
    def has_residual_covariance(self) -> bool:
        r"""Whether :math:`k(x, y) - \phi(x) \phi(y)^\top` is positive semidefinite, as for landmarks."""
        return self.family.has_residual_covariance

    def moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        """Mean (..., N T, M T) and variance (..., N, M) of the estimate; None where there is no closed form."""
        return self.family.moments(x, y)

    def waves(self, input_dim: int) -> Waves:
        """The plane waves of Fourier features, per unit of the full inputs; a ValueError for other features."""
        return self.family.waves(input_dim)

    def feature_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters that ``scalar_features`` depends on."""
        return self.family.feature_parameters()

    @property
    def frequency_grid(self) -> FrequencyGrid | None:
        """The equispaced frequencies whose cosines and sines, times amplitudes, are the scalar features; else None."""
        return self.family.frequency_grid

    @property
    def summed_amplitudes(self) -> Tensor | None:
        """The amplitudes (D,) of the features of a frequency grid, which sums over rows do not contain."""
        return self.family.summed_amplitudes

    def summed_features(self, x: Tensor) -> Tensor:
        """The features (..., N, D) without these amplitudes; a ValueError for rows outside the box of a grid."""
        return self.family.summed_features(x)

    def summed_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters that sums over rows depend on: none for a frequency grid."""
        return self.family.summed_parameters()

    @property
    def feature_map(self) -> FeatureMap | None:
        """The feature map of a kernel that has one, None where it is not made yet; else a ValueError."""
        maps = [leaf.maps for leaf, _ in self.family.leaves()]
        if len(maps) != 1 or not isinstance(maps[0], DrawnMap):
            raise ValueError(f"expected a kernel with one feature map, got {len(maps)} maps; see maps")
        return maps[0].feature_map

    @property
    def version(self) -> int:
        """How many times the weights have been drawn anew; caches compare it."""
        return sum(drawn.feature_map.version for drawn in drawn_maps(self) if drawn.feature_map is not None)

    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new weights in place, from PyTorch's CPU generator by default; a ValueError before a map was made."""
        with weights_kept_on_error(self):
            for drawn in drawn_maps(self):
                drawn.made_map().resample(generator)
        return self

    # Sums and products

    def __add__(self, other: Kernel) -> Kernel:
        """The sum with another kernel, whose features are those of both side by side."""
        return _composed(super().__add__(other), other)

    def __mul__(self, other: Kernel) -> Kernel:
        """The product with another kernel; a ValueError where both have the same random weights."""
        return _composed(super().__mul__(other), other)

    # What GPyTorch calls

    def __call__(self, x1: Tensor, x2: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """GPyTorch's lazy kernel matrix; inputs of another dtype or device are refused at once."""
        for x in (x1, x2):
            if isinstance(x, Tensor) and x.is_floating_point():
                checks.same_kind(x, reference_tensor(self, x), "x", "the kernel")
        return super().__call__(x1, x2, *args, **kwargs)

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor | LinearOperator:
        """The kernel matrix of selected inputs, as an operator that knows its features, or its diagonal."""
        refuse_last_dim_is_batch(last_dim_is_batch)
        matrix = kernel_matrix(self, x1, x2, diag)
        return with_residual(self.family, matrix, x1, x2, diag) if self.includes_residual else matrix

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> int:
        """One, or the number of outputs of the exact kernel."""
        return modules_of(self)["exact_kernel"].num_outputs_per_input(x1, x2) if self.has_output_factor else 1

    def prediction_strategy(
        self,
        train_inputs: list[Tensor],
        train_prior_dist: MultivariateNormal,
        train_labels: Tensor,
        likelihood: Likelihood,
    ) -> FeaturePredictionStrategy:
        """Predictions in weight space."""
        return FeaturePredictionStrategy(train_inputs, train_prior_dist, train_labels, likelihood)

    def to_random_module(self) -> Self:
        """GPyTorch's copy for Pyro, whose parameters become those that are sampled; parts that occur twice stay one."""
        twin = copy.deepcopy(self)
        for part in twin.modules():
            if isinstance(part, gpytorch.Module) and not isinstance(part, RandomModuleMixin | Prior):
                kind = type(part)
                part.__class__ = type(f"_Random{kind.__name__}", (RandomModuleMixin, kind), {})
        return twin

    # States

    @property
    def description(self) -> str:
        """The classes and settings of the kernel and its maps, which a loaded state has to match."""
        return f"FeatureKernel({described(modules_of(self)['exact_kernel'])}, {described_maps(self.maps)})"

    def prepare_for(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Make maps where the state has them, else drop them; a ValueError where the state is not of this kernel."""
        super().prepare_for(state, prefix)
        for name, drawn in self.maps.named_modules(prefix=f"{prefix}maps"):
            if isinstance(drawn, DrawnMap) and (saved := state.get(f"{name}._extra_state")) is not None:
                center, like = state.get(f"{name}.center"), reference_tensor(modules_of(self)["exact_kernel"])
                drawn.center = None if center is None else like.new_empty(center.shape)
                weights = [value for key, value in state.items() if key.startswith(f"{name}.feature_map.")]
                self._prepare_map(drawn, weights, int(saved.flatten()[0]), state, prefix, name)

    def _prepare_map(
        self,
        drawn: DrawnMap,
        weights: list[Tensor],
        num_columns: int,
        state: Mapping[str, Tensor],
        prefix: str,
        name: str,
    ) -> None:
        if bool(weights) == (drawn.feature_map is not None):
            return
        if drawn.recipe is None:
            raise ValueError(
                f"expected a state with the weights of {type(drawn.feature_map).__name__} features, got that of a "
                "kernel that waits for its first inputs; save it after the first call"
            )
        if not weights:
            drawn.feature_map = None
            return
        exact_kernel = modules_of(self)["exact_kernel"]
        like = next((torch.empty(0, dtype=v.dtype) for v in weights if v.is_floating_point()), None)
        start = f"{prefix}exact_kernel."
        values = {key.removeprefix(start): value for key, value in state.items() if key.startswith(start)}
        trained = copy.deepcopy(exact_kernel)  # a map may depend on the parameters that it is made with
        states.check(trained, values)
        trained.load_state_dict(values, strict=False)
        leaves = [leaf for leaf, _ in family(trained, self.maps).leaves() if leaf.maps is drawn]
        if leaves and isinstance(leaves[0], MapFamily):
            made = leaves[0].rebuild(num_columns, reference_tensor(exact_kernel, like))
            made.prepare_for(state, f"{name}.feature_map.")


def with_features(kernel: Kernel) -> Any:
    """A kernel whose parts have features as one that has theirs.

    :param kernel: a kernel made by :func:`rfgp.approximate`, or a ScaleKernel, AdditiveKernel, ProductKernel,
        MultitaskKernel or LCMKernel of such kernels, or of exact ones such as LinearKernel and IndexKernel.
    :returns: a :class:`FeatureKernel` around that very kernel.
    :raises ValueError: where a part has no features, or two factors of a product have the same random weights.

    >>> import gpytorch, rfgp
    >>> exact = (gpytorch.kernels.RBFKernel(), gpytorch.kernels.MaternKernel())
    >>> smooth, rough = (rfgp.approximate(kernel, 64, input_dim=2) for kernel in exact)
    >>> with_features(gpytorch.kernels.AdditiveKernel(smooth, rough)).num_scalar_features
    128
    """
    if isinstance(kernel, FeatureKernel):
        return kernel
    return FeatureKernel(kernel, family(kernel).exact_maps())


def _composed(kernel: AdditiveKernel | ProductKernel, other: Kernel) -> Kernel:
    """A sum or product that GPyTorch has made, with features where all parts have some; nested sums are one."""
    if family(kernel).has_features:
        parts = [terms for part in kernel.kernels for terms in _terms(part, type(kernel))]
        composed = type(kernel)(*[part for part, _ in parts])
        of_parts: Any = family(composed)
        return FeatureKernel(composed, of_parts.composed([maps for _, maps in parts]))
    warn_of_dense(
        kernel,
        f"{type(other).__name__} has no features, so that the sum or product with it is dense, at O(N^3); wrap it with "
        "rfgp.approximate first",
        stacklevel=3,
    )
    return kernel


def _terms(kernel: Kernel, composition: type[Kernel]) -> list[tuple[Kernel, torch.nn.Module]]:
    """The exact kernels that a part of a sum brings, and their maps."""
    if not isinstance(kernel, FeatureKernel):
        return [(kernel, family(kernel).exact_maps())]
    exact_kernel, maps = modules_of(kernel)["exact_kernel"], kernel.maps
    if type(exact_kernel) is composition is AdditiveKernel and type(maps) is torch.nn.ModuleList:
        return list(zip(exact_kernel.kernels, maps, strict=True))
    return [(exact_kernel, maps)]
