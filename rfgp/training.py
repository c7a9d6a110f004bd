"""Training: L-BFGS on the log marginal likelihood, for weight-space models and GPyTorch's ExactGP alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gpytorch
import numpy as np
import scipy.optimize
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, MultitaskMean
from gpytorch.models import ExactGP
from linear_operator.operators import MaskedLinearOperator
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor
from tqdm.auto import tqdm

from . import _checks
from .models import WeightSpaceGP

_ANY_SIZE = 2**62
_LARGE = 10.0
"""Parameters that start above this are optimised in units of their start, so that data in any units train alike."""


@dataclass(frozen=True)
class FitSummary:
    """What :func:`fit` did.

    :param log_marginal_likelihood: the value reached, summed over rows and classes, without priors.
    :param initial_log_marginal_likelihood: the value at the start.
    :param evaluations: how many times evidence and gradient were evaluated.
    :param converged: whether the optimiser met its tolerance.
    :param message: what the optimiser said.
    :param seconds: wall-clock time.
    :param parameters: the constrained value of every trained parameter by name (the first few of long ones).
    """

    log_marginal_likelihood: float
    initial_log_marginal_likelihood: float
    evaluations: int
    converged: bool
    message: str
    seconds: float
    parameters: dict[str, list[float]]

    def __str__(self) -> str:
        head = (
            f"log marginal likelihood {self.initial_log_marginal_likelihood:.6g} -> {self.log_marginal_likelihood:.6g} "
            f"after {self.evaluations} evaluations in {self.seconds:.1f} s ({self.message})"
        )
        lines = [f"  {name} = {', '.join(f'{v:.4g}' for v in values)}" for name, values in self.parameters.items()]
        return "\n".join([head, *lines])


def fit(
    model: WeightSpaceGP | ExactGP,
    x: Tensor | None = None,
    y: Tensor | None = None,
    *,
    noise: Tensor | None = None,
    max_evaluations: int = 200,
    initialize: bool = True,
    progress: bool | None = None,
) -> FitSummary:
    r"""Maximise the log marginal likelihood (plus log priors) over all parameters that require gradients, by L-BFGS.

    The model is left trained and fitted: a WeightSpaceGP holds the statistics at the optimum, an ExactGP is in
    evaluation mode. Exact models are evaluated with Cholesky factors whatever their size; use float64 for them.

    :param model: a :class:`rfgp.models.WeightSpaceGP` or a GPyTorch ExactGP.
    :param x: training inputs (N, d); those of the ExactGP where it is None.
    :param y: training targets or labels (N,), or targets (N, T) of several outputs, with NaN for missing ones; those of
        the ExactGP where it is None.
    :param noise: noise variances of the shape of y, for a WeightSpaceGP with fixed noise.
    :param max_evaluations: a limit on evaluations of evidence and gradient.
    :param initialize: whether to start output scale, noise and constant mean from the scale of the targets, and not
        from their present values.
    :param progress: whether to show a progress bar; where it is None, on terminals only.
    :returns: a summary that prints well.
    :raises ValueError: for bad data, or where nothing is to be trained.

    >>> import gpytorch, rfgp
    >>> x = torch.linspace(-1, 1, 50, dtype=torch.float64).unsqueeze(-1)
    >>> base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PolynomialKernel(power=2)).double()
    >>> kernel = rfgp.approximate(base, num_features=16, input_dim=1, seed=0)
    >>> model = rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double())
    >>> summary = fit(model, x, x.squeeze(-1) ** 2)
    >>> summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
    True
    """
    limit = _checks.positive_integer("max_evaluations", max_evaluations)
    objective = (
        _weight_space_objective(model, x, y, noise)
        if isinstance(model, WeightSpaceGP)
        else _exact_objective(model, x, y)
    )
    if initialize:
        _initialize(model, x, y)
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("expected parameters to train, got none that require gradients; set requires_grad_(True)")
    start = time.perf_counter()
    evidence: list[float] = []
    bar = tqdm(total=limit, desc="fit", unit="eval", disable=None if progress is None else not progress, leave=False)

    vector = np.concatenate([p.detach().cpu().double().reshape(-1).numpy() for p in parameters])
    unit = np.where(np.abs(vector) > _LARGE, np.abs(vector), 1.0)

    def evaluate(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        _set_vector(parameters, unit * scaled)
        for parameter in parameters:
            parameter.grad = None
        try:
            with torch.enable_grad():
                value = objective.evidence()
                total = value + _log_prior(model)
            total.backward()
        except (ValueError, NanError, NotPSDError):
            if not evidence:
                raise
            return _worse(evidence), np.zeros_like(scaled)
        evidence.append(float(value.detach()))
        bar.update()
        bar.set_postfix(evidence=f"{evidence[-1]:.6g}")
        gradient = unit * np.concatenate([_gradient(p) for p in parameters])
        if not np.isfinite(float(total.detach())) or not np.isfinite(gradient).all():
            return _worse(evidence), np.zeros_like(scaled)
        return -float(total.detach()), -gradient

    with bar:
        result = scipy.optimize.minimize(
            evaluate, vector / unit, jac=True, method="L-BFGS-B", options={"maxfun": limit}
        )
    _set_vector(parameters, unit * result.x)
    for parameter in parameters:
        parameter.grad = None
    with torch.no_grad():
        final = float(objective.finish())
    return FitSummary(
        final,
        evidence[0],
        len(evidence),
        bool(result.success),
        str(result.message),
        time.perf_counter() - start,
        _constrained(model),
    )


class _weight_space_objective:
    """Evidence of a weight-space model, with statistics computed anew for every set of parameters."""

    def __init__(self, model: WeightSpaceGP, x: Any, y: Any, noise: Any) -> None:
        if x is None or y is None:
            raise ValueError("expected inputs and targets for a WeightSpaceGP, got none; call fit(model, x, y)")
        self.model, self.data = model, (x, y, noise)
        with torch.no_grad():
            model.fit(*self.data)

    def evidence(self) -> Tensor:
        return self.model.fit(*self.data).log_marginal_likelihood()

    def finish(self) -> Tensor:
        return self.evidence()


class _exact_objective:
    """Evidence of an exact GPyTorch model, by Cholesky factors."""

    def __init__(self, model: ExactGP, x: Any, y: Any) -> None:
        if not isinstance(model, ExactGP):
            raise ValueError(f"expected a WeightSpaceGP or a GPyTorch ExactGP, got {type(model).__name__}")
        if x is not None or y is not None:
            model.set_train_data(x, y, strict=False)
        if model.train_inputs is None or model.train_targets is None:
            raise ValueError("expected training data, got a model without; call fit(model, x, y)")
        inputs = _checks.finite(_checks.inputs(model.train_inputs[0]))
        self.is_masked = gpytorch.settings.observation_nan_policy.value() == "mask"
        if not self.is_masked and bool(torch.isnan(model.train_targets).any()):
            raise ValueError(
                "expected targets without NaN, got some; remove them, or train and predict inside "
                'gpytorch.settings.observation_nan_policy("mask")'
            )
        targets = model.train_targets if self.is_masked else _checks.finite(model.train_targets, "y")
        if inputs.shape[-2] not in targets.shape:
            raise ValueError(
                f"expected y with a target for each of {inputs.shape[-2]} rows, got shape {tuple(targets.shape)}"
            )
        self.model = model
        self.likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        model.train()

    def evidence(self) -> Tensor:
        with cholesky_forced():
            output = self.model(*self.model.train_inputs)
            marginal = self.likelihood.likelihood(output, *self.model.train_inputs)
            targets = self.model.train_targets
            if self.is_masked:
                observed = ~torch.isnan(targets)
                rows = observed.reshape(-1)
                covariance = MaskedLinearOperator(marginal.lazy_covariance_matrix, rows, rows)
                marginal, targets = MultivariateNormal(marginal.mean[observed], covariance), targets[observed]
            return marginal.log_prob(targets).sum()

    def finish(self) -> Tensor:
        value = self.evidence()
        self.model.eval()
        return value


@contextmanager
def cholesky_forced() -> Iterator[None]:
    """GPyTorch settings under which exact models use Cholesky factors whatever their size."""
    with gpytorch.settings.max_cholesky_size(_ANY_SIZE), gpytorch.settings.cholesky_max_tries(6):
        yield


def _parts(model: torch.nn.Module) -> dict[str, gpytorch.Module]:
    """The GPyTorch modules of which a model consists, by the prefix of their parameters."""
    if isinstance(model, gpytorch.Module):
        return {"": model}
    return {f"{name}.": part for name, part in model.named_children() if isinstance(part, gpytorch.Module)}


def _log_prior(model: torch.nn.Module) -> Tensor:
    """The log density of all priors; one of shared parameters counts once."""
    total = torch.zeros((), dtype=torch.float64)
    counted = set()
    for part in _parts(model).values():
        for _, module, prior, closure, _ in part.named_priors():
            key = (id(prior), *(id(parameter) for parameter in module.parameters(recurse=False)))
            if key not in counted:
                total = total + prior.log_prob(closure(module)).sum().to(total)
                counted.add(key)
    return total


def _gradient(parameter: Tensor) -> np.ndarray:
    grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    return grad.detach().cpu().double().reshape(-1).numpy()


def _set_vector(parameters: list[Tensor], vector: np.ndarray) -> None:
    with torch.no_grad():
        start = 0
        for parameter in parameters:
            values = torch.from_numpy(vector[start : start + parameter.numel()].copy())
            parameter.copy_(values.reshape(parameter.shape))
            start += parameter.numel()


def _worse(evidence: list[float]) -> float:
    """A finite value beyond all that was seen, so that the line search steps back."""
    return abs(min(evidence)) * 10.0 + 1e6


def _initialize(model: Any, x: Tensor | None, y: Tensor | None) -> None:
    """Start output scale, noise and constant mean from the variance and mean of the targets."""
    likelihood = model.likelihood
    if isinstance(likelihood, gpytorch.likelihoods.DirichletClassificationLikelihood):
        labels = y if y is not None and not y.is_floating_point() else likelihood.targets
        _, targets, _ = likelihood._prepare_targets(labels, likelihood.alpha_epsilon, torch.float64)
        variance, mean = float(targets.var()), float(targets.mean())
    else:
        targets = model.train_targets if y is None else y
        known = targets[~torch.isnan(targets)]
        variance = max(float(known.abs().square().mean() - known.mean().abs() ** 2), 1e-12)
        mean = float((known.real if known.is_complex() else known).mean())
        if isinstance(likelihood, GaussianLikelihood) and any(p.requires_grad for p in likelihood.parameters()):
            _set_within(likelihood.noise_covar, "noise", 0.1 * variance)
        if isinstance(likelihood, MultitaskGaussianLikelihood):
            for name in ("noise", "task_noises"):
                if hasattr(likelihood, f"raw_{name}"):
                    _set_within(likelihood, name, 0.1 * variance)
    inputs = model.train_inputs[0] if x is None else x
    if hasattr(model, "covar_module"):
        _start_scale(model.covar_module, variance, inputs[..., : min(inputs.shape[-2], 512), :])
    mean_module = getattr(model, "mean_module", None)
    if isinstance(mean_module, ConstantMean) and mean_module.raw_constant.requires_grad:
        mean_module.initialize(constant=mean)
    if isinstance(mean_module, MultitaskMean):
        columns = targets.reshape(-1, len(mean_module.base_means)).unbind(-1)
        for part, column in zip(mean_module.base_means, columns, strict=True):
            is_observed = bool((~torch.isnan(column)).any())
            if is_observed and isinstance(part, ConstantMean) and part.raw_constant.requires_grad:
                part.initialize(constant=float(column.nanmean()))


def _start_scale(kernel: Any, variance: float, x: Tensor) -> None:
    """Start output scales so that the kernel has the variance of the targets; parts of a sum have equal shares."""
    if isinstance(kernel, AdditiveKernel):
        for part in kernel.kernels:
            _start_scale(part, variance / len(kernel.kernels), x)
    elif isinstance(kernel, ScaleKernel) and kernel.raw_outputscale.requires_grad:
        with torch.no_grad():
            level = float(_exact(kernel.base_kernel)(x, diag=True).mean())
        _set_within(kernel, "outputscale", variance / max(level, 1e-12))


def _exact(kernel: Kernel) -> Kernel:
    return getattr(kernel, "exact_kernel", kernel)


def _set_within(module: gpytorch.Module, name: str, value: float) -> None:
    """Set a parameter to a value, moved inside the bounds of its constraint."""
    raw = getattr(module, f"raw_{name}")
    constraint = getattr(module, f"raw_{name}_constraint")
    lower, upper = float(constraint.lower_bound), float(constraint.upper_bound)
    inside = min(max(value, lower * 1.01 + 1e-12), upper * 0.99 if upper > 0 else upper)
    module.initialize(**{name: torch.full_like(raw, inside)})


def _constrained(model: torch.nn.Module) -> dict[str, list[float]]:
    values = {}
    for prefix, part in _parts(model).items():
        for name, parameter, constraint in part.named_parameters_and_constraints():
            value = parameter if constraint is None else constraint.transform(parameter)
            values[prefix + name.replace("raw_", "")] = value.detach().cpu().double().reshape(-1)[:4].tolist()
    return values
