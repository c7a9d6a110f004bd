"""All private names of GPyTorch, linear_operator and PyTorch that rfgp reads; a test notices when they move."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple, Self

import gpytorch
import torch
from gpytorch.distributions import MultitaskMultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from gpytorch.likelihoods import (
    DirichletClassificationLikelihood,
    FixedNoiseGaussianLikelihood,
    _GaussianLikelihoodBase,
    _OneDimensionalLikelihood,
)
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.settings import observation_nan_policy
from linear_operator.operators import (
    AddedDiagLinearOperator,
    ConstantMulLinearOperator,
    DiagLinearOperator,
    LinearOperator,
)
from torch import Tensor


class SharedSettings:
    """Settings of GPyTorch, of the whole process, for as long as any thread needs them."""

    def __init__(self, *make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make, self._lock, self._depth, self._changed = make, threading.Lock(), 0, ExitStack()

    def __enter__(self) -> Self:
        with self._lock:
            if self._depth == 0:
                for made in self._make:
                    self._changed.enter_context(made())
            self._depth += 1
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._changed.close()


EVALUATED_KERNELS = SharedSettings(lambda: gpytorch.settings.lazily_evaluate_kernels(False))
CHOLESKY_ALWAYS = SharedSettings(
    lambda: gpytorch.settings.max_cholesky_size(2**62), lambda: gpytorch.settings.cholesky_max_tries(6)
)
WITHOUT_INPUT_WARNING = SharedSettings(lambda: gpytorch.settings.debug(False))
TRUE_VARIANCES = SharedSettings(lambda: gpytorch.settings.min_variance(0.0, 0.0, 0.0))
OPERATOR_DENSITIES = SharedSettings(lambda: gpytorch.settings.fast_computations.log_prob(True))

GaussianLikelihoodBase = _GaussianLikelihoodBase
OneDimensionalLikelihood = _OneDimensionalLikelihood


def diagonal_of(operator: DiagLinearOperator) -> Tensor:
    """The numbers (..., N) on the diagonal."""
    values: Tensor = operator._diag
    return values


def constant_of(operator: ConstantMulLinearOperator) -> Tensor:
    """The constant that an operator is multiplied by."""
    constant: Tensor = operator._constant
    return constant


def parts_of(operator: AddedDiagLinearOperator) -> tuple[LinearOperator, DiagLinearOperator]:
    """A matrix and the diagonal that is added to it."""
    return operator._linear_op, operator._diag_tensor


def keep_arguments(operator: LinearOperator, **arguments: Any) -> None:
    """Keep arguments that are no tensors, by which an operator is made again, and that the compiler cannot sort."""
    operator._nondifferentiable_kwargs.update(arguments)


def is_interleaved(distribution: MultitaskMultivariateNormal) -> bool:
    """Whether the covariance has the tasks of one point beside each other."""
    return bool(distribution._interleaved)


def tracks_gradients(covariance: LazyEvaluatedKernelTensor) -> bool:
    """Whether gradients were on where a lazy kernel matrix was made."""
    return bool(covariance._is_grad_enabled)


def is_observed(y: Tensor, event_shape: torch.Size) -> Tensor:
    """Which entries of an event are observed in all batch elements."""
    observed: Tensor = observation_nan_policy._get_observed(y, event_shape)
    return observed


def class_regressions(
    likelihood: DirichletClassificationLikelihood, labels: Tensor, alpha_epsilon: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Noise variances (C, N) and targets of the regressions that stand for class labels (N,)."""
    variances, targets, _ = likelihood._prepare_targets(labels, alpha_epsilon, dtype)
    return variances, targets


def batch_shape_of(kernel: Kernel) -> torch.Size:
    """The batch shape of a kernel's own parameters."""
    shape: torch.Size = kernel._batch_shape
    return shape


def set_batch_shape(kernel: Kernel, shape: torch.Size) -> None:
    """Give a kernel a batch shape."""
    kernel._batch_shape = shape


def priors_of(module: Any) -> dict[str, tuple[Any, ...]]:
    """The priors of a module itself by name; first in each tuple the prior. Deleting one unregisters it."""
    priors: dict[str, tuple[Any, ...]] = module._priors
    return priors


def forget_priors(module: torch.nn.Module) -> None:
    """Leave a copy without the priors of its parts; GPyTorch cannot pickle those that were registered by a name."""
    for part in module.modules():
        if isinstance(part, gpytorch.Module):
            priors_of(part).clear()


def modules_of(module: torch.nn.Module) -> dict[str, Any]:
    """The parts of a module itself by name."""
    return module._modules


_OF_MODULES = {"training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"}
_HOOKS = vars(torch.nn.Module()).keys() - _OF_MODULES


def without_hooks(module: torch.nn.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a module without its hooks, GPyTorch's caches, and what GPyTorch's pickles leave out."""
    kept = {name: value for name, value in state.items() if name not in {*_HOOKS, "_memoize_cache"}}
    return kept | {"distance_module": None} if isinstance(module, Kernel) else kept


def with_part(state: dict[str, Any], name: str, part: torch.nn.Module) -> dict[str, Any]:
    """The attributes of a module with another one as one of its parts."""
    return {**state, "_modules": {**state["_modules"], name: part}}


def bare_module(kind: type[torch.nn.Module]) -> torch.nn.Module:
    """A module of a class without its attributes."""
    module = kind.__new__(kind)
    torch.nn.Module.__init__(module)
    return module


def fill_module(module: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """Give a bare module its attributes, and GPyTorch's hook where it has parameters of its own."""
    vars(module).update(state)
    if isinstance(module, gpytorch.Module) and module._parameters:
        module._register_load_state_dict_pre_hook(module._load_state_hook_ignore_shapes)


def refill_module(module: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """Give a module other attributes in place of all but its hooks."""
    attributes = vars(module)
    for name in attributes.keys() - _HOOKS:
        del attributes[name]
    attributes.update(state)


def forget_priors_with(module: gpytorch.Module, part: Any) -> None:
    """Leave a module without those of its priors that have some object for a closure."""
    for name, entry in list(priors_of(module).items()):
        if isinstance(entry, tuple) and any(member is part for member in entry):
            module._modules.pop(name, None)
            if isinstance(module._priors, dict):
                del module._priors[name]


def loads_strict_shapes(module: torch.nn.Module) -> bool:
    """Whether tensors of a state need the shapes of the module's, as GPyTorch's ``load_strict_shapes`` says."""
    return bool(module._load_strict_shapes) if isinstance(module, gpytorch.Module) else True


def forget_load_hooks(module: gpytorch.Module) -> None:
    """Drop GPyTorch's hook of a module without parameters of its own, by which the module would refer to itself."""
    module._load_state_dict_pre_hooks.clear()


def noise_of_rows(likelihood: Any, noise: Tensor) -> Tensor:
    """The variances that a fixed-noise likelihood adds to rows with given ones, of their shape.

    GPyTorch's own would add given variances twice where a learned noise comes beside them.
    """
    if type(likelihood)._shaped_noise_covar is not FixedNoiseGaussianLikelihood._shaped_noise_covar:
        total: Tensor = likelihood._shaped_noise_covar(noise.shape, noise=noise).diagonal(dim1=-1, dim2=-2)
        return total
    learned = likelihood.second_noise_covar
    return noise if learned is None else noise + learned.noise.to(noise.dtype)


class TensorMark(NamedTuple):
    """What tells whether a tensor was replaced, or changed in place other than by ``.data``."""

    tensor: Tensor
    version: int
    requires_grad: bool


def tensor_marks(modules: Iterable[torch.nn.Module]) -> list[TensorMark]:
    """The marks of all parameters and buffers of modules, shared ones every time."""
    marks = []
    for module in modules:
        for part in module.modules():
            for tensor in (*part._parameters.values(), *part._buffers.values()):
                if tensor is not None:
                    version = 0 if tensor.is_inference() else tensor._version
                    marks.append(TensorMark(tensor, version, tensor.requires_grad))
    return marks


def own_names(module: torch.nn.Module) -> set[str]:
    """The names of the parameters, buffers and parts of a module itself."""
    return {*module._parameters, *module._buffers, *module._modules}


def persistent_buffers(module: torch.nn.Module) -> dict[str, Tensor]:
    """The buffers of a module itself that its state holds."""
    buffers = module.named_buffers(recurse=False)
    return {name: buffer for name, buffer in buffers if name not in module._non_persistent_buffers_set}


def with_priors(objective: ExactMarginalLogLikelihood, value: Tensor, parameters: tuple[Any, ...]) -> Tensor:
    """A log likelihood with the log densities of the priors, and what else a model adds."""
    total: Tensor = objective._add_other_terms(value, parameters)
    return total
