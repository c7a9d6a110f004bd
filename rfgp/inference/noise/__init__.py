"""Noise models: what each likelihood makes of rows."""

from __future__ import annotations

import importlib
import pkgutil

from gpytorch.likelihoods import Likelihood

from .base import NoiseModel, Targets, registered, registered_kinds
from .class_labels import ClassLabels
from .complex_parts import ComplexParts
from .correlated import CorrelatedNoise
from .independent import IndependentNoise
from .known import KnownNoise

for _file in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_file.name)


def noise_model(likelihood: Likelihood, num_outputs: int | None = None) -> NoiseModel:
    """The noise model of a likelihood, by its class: see :func:`rfgp.inference.noise.registered`.

    :param num_outputs: the number T of outputs of an operator-valued or multitask kernel; default: a scalar kernel.
    :raises ValueError: for a likelihood without closed form in weight space, or with another number of outputs.

    >>> import gpytorch
    >>> type(noise_model(gpytorch.likelihoods.GaussianLikelihood())).__name__
    'IndependentNoise'
    """
    has_tasks = num_outputs is not None and hasattr(likelihood, "num_tasks")
    targets = Targets() if num_outputs is None else Targets(num_outputs, has_columns=True, has_tasks=has_tasks)
    if targets.has_columns:
        _check_outputs(likelihood, targets.num_outputs)
    for kind in registered_kinds(likelihood):
        noise = kind.of_likelihood(likelihood, targets)
        if noise is not None:
            return noise
    wanted = (
        "a MultitaskGaussianLikelihood, MultitaskFixedNoiseGaussianLikelihood or GaussianLikelihood for a kernel of "
        "several outputs"
        if targets.has_columns
        else "a Gaussian, fixed-noise, complex Gaussian or Dirichlet classification likelihood"
    )
    raise ValueError(f"expected {wanted}, got {type(likelihood).__name__}; use one of these")


def _check_outputs(likelihood: Likelihood, num_outputs: int) -> None:
    """Raise a ValueError for a likelihood of another number of outputs, or a batch of likelihoods."""
    tasks = getattr(likelihood, "num_tasks", num_outputs)
    if tasks != num_outputs:
        raise ValueError(
            f"expected a likelihood of {num_outputs} outputs as the kernel has, got one of {tasks}; correct it"
        )
    own_dims = {"noise": 1, "noises": 1, "factor": 2}
    for name, parameter in likelihood.named_parameters():
        batch = parameter.shape[: parameter.dim() - own_dims.get(name.rpartition("_")[2], parameter.dim())]
        if batch:
            raise ValueError(
                f"expected a likelihood without batch dimensions, got {tuple(batch)}; make a model for each element"
            )


__all__ = [
    "ClassLabels",
    "ComplexParts",
    "CorrelatedNoise",
    "IndependentNoise",
    "KnownNoise",
    "NoiseModel",
    "Targets",
    "noise_model",
    "registered",
]
