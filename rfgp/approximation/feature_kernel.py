"""An exact GPyTorch kernel together with the random features that approximate it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from .._support import checks, states
from ..features import FeatureMap
from ..functionals import Operator
from ..inference import OutputFactor
from ..inference.posterior.covariance import ResidualCovariance
from ..kernels.operator_valued import without_dims
from .exact_parameters import ExactParameters
from .hooks.kernel_matrix import kernel_matrix
from .map_family import MapFamily, map_family
from .map_holder import MapHolder, MapRecipe, maps_kept_on_error
from .random_feature_kernel import KernelMoments, RandomFeatureKernel
from .reference_tensor import reference_tensor
from .registry import described
from .waves import Waves


class FeatureKernel(MapHolder, ExactParameters, RandomFeatureKernel):
    r"""An exact kernel and the random features that approximate it: :math:`k(x, y) \approx \phi(z(x)) \phi(z(y))^H`.

    z(x) are inputs scaled by the hyperparameters of the base kernel, which have their names here too. Where the map is
    complex, the kernel is the real part.

    :param base_kernel: an exact kernel with feature maps of its own, see :func:`rfgp.approximation.approximates`.
    :param feature_map: a map of the base kernel's family, or a ``MapRecipe`` from which one is made at the first call.
    :param center: a point (d,) that is subtracted from the inputs; for shift-invariant kernels.
    :raises ValueError: where the map does not fit the kernel.

    >>> import gpytorch, rfgp
    >>> sketch = rfgp.features.TensorSRHT(3, 64, degree=2)
    >>> FeatureKernel(gpytorch.kernels.PolynomialKernel(power=2), sketch)(torch.randn(5, 2)).shape
    torch.Size([5, 5])
    """

    recipe: MapRecipe | None

    def __init__(self, base_kernel: Kernel, feature_map: FeatureMap | MapRecipe, center: Tensor | None = None) -> None:
        checks.instance("base_kernel", base_kernel, Kernel, "an exact GPyTorch kernel", "such as an RBFKernel()")
        wanted = (FeatureMap, MapRecipe)
        checks.instance("feature_map", feature_map, wanted, "a FeatureMap or a MapRecipe", "see rfgp.features")
        if center is not None and checks.finite(checks.floating(center, "center"), "center").dim() != 1:
            raise ValueError(f"expected a center of shape (d,), got {tuple(center.shape)}; pass one point")
        super().__init__(active_dims=base_kernel.active_dims)
        self.base_kernel = base_kernel
        self.recipe = feature_map if isinstance(feature_map, MapRecipe) else None
        self.feature_map = None if isinstance(feature_map, MapRecipe) else feature_map
        self.register_buffer("center", None if center is None else center.detach().clone())
        if self.recipe is not None:
            self.family.check_method(self.recipe.method)
        if self.feature_map is not None:
            self.family.check_map(self.feature_map)

    @functools.cached_property
    def family(self) -> MapFamily:
        """The family of the base kernel; another base kernel has another one."""
        return map_family(self.base_kernel)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "base_kernel":
            self.__dict__.pop("family", None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "family"}

    summed_parameters = RandomFeatureKernel.feature_parameters

    @property
    def has_unbiased_columns(self) -> bool:
        return self.feature_map is not None and self.feature_map.has_unbiased_columns

    def columnwise(self) -> FeatureKernel | None:
        if self.feature_map is None and self.recipe is not None:
            method = self.recipe.method
            if not method.has_unbiased_columns:
                return None
            width = self.recipe.num_features // 2 if method.has_pairs else self.recipe.num_features
            twin = FeatureKernel(self.base_kernel, replace(self.recipe, method=method.columnwise, num_features=width))
        else:
            feature_map = self.made_map().columnwise()
            if feature_map is None:
                return None
            twin = FeatureKernel(self.base_kernel, feature_map, self.center)
            twin.recipe = self.recipe
        return twin.train(self.training)

    @property
    def is_complex(self) -> bool:
        source = self.feature_map or self.recipe
        return source is not None and source.is_complex

    def active_features(self, x: Tensor) -> Tensor:
        feature_map, rows = self._map_and_rows(x)
        return torch.complex(*rows.chunk(2, dim=-1)) if feature_map.is_complex else rows

    def active_real_features(self, x: Tensor) -> Tensor:
        return self._map_and_rows(x)[1]

    def _map_and_rows(self, x: Tensor) -> tuple[FeatureMap, Tensor]:
        """The map, and its features with [real, imaginary] parts side by side; a map that fails is forgotten again."""
        feature_map = self.feature_map
        if feature_map is None:
            with maps_kept_on_error(self):
                self._map(x)
                return self._map_and_rows(x)
        return feature_map, self.family.rows(feature_map, x if self.center is None else self._centered(x))

    def active_residual(self, x: Tensor) -> ResidualCovariance | None:
        if not self.family.is_truncated(self._map(x)):
            return None
        prior = self.base_kernel.forward(x, x, diag=True)
        missing: Tensor = prior - to_dense(kernel_matrix(self, x, x, diag=True))
        missing = missing.clamp_min(torch.finfo(missing.dtype).tiny)  # not zero, where its root has no gradient
        return ResidualCovariance.of_variance(missing)

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments | None:
        moments = self.family.moments(self._map(x), self._centered(x), self._centered(y))
        return None if moments is None else KernelMoments(*moments)

    def map_inputs(self, x: Tensor) -> Tensor:
        """The inputs of the map for selected inputs (..., N, d): centered, and scaled by the hyperparameters."""
        return self.family.map_inputs(self._map(x), self._centered(x))

    def _centered(self, x: Tensor) -> Tensor:
        return x if self.center is None else checks.inputs(x, len(self.center)) - self.center

    def active_waves(self, input_dim: int) -> Waves:
        identity = torch.eye(input_dim, dtype=reference_tensor(self).dtype, device=reference_tensor(self).device)
        feature_map = self._map(identity)
        waves = feature_map.waves(**self.family.hyperparameters(feature_map))
        if waves is None or not self.family.is_shift_invariant:
            return super().active_waves(input_dim)
        frequencies = waves[0] @ self.family.map_inputs(feature_map, identity).mT  # inputs are linear
        amplitudes = waves[1].expand(frequencies.shape[:-1]).unsqueeze(-1)
        if not self.has_output_factor:
            return Waves(frequencies, amplitudes)
        factor = amplitudes.unsqueeze(-1) * self.base_kernel.factor(frequencies)
        return Waves(frequencies.repeat_interleave(factor.shape[-1], dim=-2), factor.mT.flatten(-3, -2))

    @property
    def version(self) -> int:
        feature_map = self.feature_map
        return 0 if feature_map is None else feature_map.version

    @property
    def num_scalar_features(self) -> int:
        return (self.feature_map or self.made_map()).num_features

    @property
    def has_output_factor(self) -> bool:
        return self.family.has_output_factor

    def output_factor(self, operator: Operator | None = None) -> Tensor | OutputFactor:
        """The factor of an operator-valued kernel at the map's frequencies; [[1]] for scalar kernels."""
        if not self.family.has_output_factor:
            return super().output_factor(operator)
        return self.family.output_factor(self.made_map(), operator)

    def _map(self, x: Tensor) -> FeatureMap:
        """The map, made for inputs like x where there is none yet."""
        feature_map = self.feature_map
        if feature_map is not None:
            return feature_map
        like = reference_tensor(self, x)
        checks.same_kind(checks.inputs(x), like, "x", "the kernel")
        return self._build(x.shape[-1], like)

    def _build(self, input_dim: int, like: Tensor, family: MapFamily | None = None) -> FeatureMap:
        """Make the map from the recipe, with weights of the dtype and on the device of ``like``."""
        if self.recipe is None:
            raise ValueError("expected a recipe for the feature map, got none; pass a FeatureMap or a MapRecipe")
        feature_map = (family or self.family).make(self.recipe, input_dim, None, like)
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
        return f"{type(self).__name__}({described(self.base_kernel)})"

    def prepare_for(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Make a map where the state has one, else drop it; a ValueError where the state is not of this kernel."""
        super().prepare_for(state, prefix)
        weights = [value for name, value in state.items() if name.startswith(f"{prefix}feature_map.")]
        saved = state.get(f"{prefix}_extra_state")
        if saved is None:
            return
        center = state.get(f"{prefix}center")
        self.center = None if center is None else reference_tensor(self.base_kernel).new_empty(center.shape)
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
        start = f"{prefix}base_kernel."
        values = {name.removeprefix(start): value for name, value in state.items() if name.startswith(start)}
        trained = copy.deepcopy(self.base_kernel)  # a map may depend on the parameters that it is made with
        states.check(trained, values)
        trained.load_state_dict(values, strict=False)
        made = self._build(int(saved[1]), reference_tensor(self.base_kernel, like), map_family(trained))
        made.prepare_for(state, f"{prefix}feature_map.")

    def get_extra_state(self) -> Tensor:
        """The code of :attr:`description`, and the number of input columns, zero before the first call."""
        made = self.feature_map
        columns = 0 if made is None else made.input_dim - self.family.extra_columns(made)
        return torch.tensor([states.code(self.description), columns])
