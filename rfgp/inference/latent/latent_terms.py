"""What rows that are not Gaussian contribute: their log density and its derivatives in the latent functions."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import torch
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    GaussianLikelihood,
    LaplaceLikelihood,
    Likelihood,
    SoftmaxLikelihood,
)
from torch import Tensor

from ..._support import checks
from ..._support.gpytorch_names import OneDimensionalLikelihood
from ...likelihoods import ComplexGaussianLikelihood, SeveralFunctionsLikelihood

HESSIANS = ("full", "block_diagonal")
_ROUNDING = 1e-14
"""Of the eigenvalues of a curvature, relative to the largest."""


class Terms(NamedTuple):
    r"""The log densities of rows, and their derivatives in Q latent functions.

    :param log_density: :math:`\log p(y_i \mid f_i)`, (N,).
    :param slope: :math:`\partial \log p / \partial f_q`, (N, Q).
    :param curvature: :math:`-\partial^2 \log p / \partial f_q \partial f_{q'}` for P pairs of functions, (N, P).
    """

    log_density: Tensor
    slope: Tensor
    curvature: Tensor


class LatentLikelihood(abc.ABC):
    """A likelihood as what Newton's method needs of it, row by row."""

    num_functions: int = 1

    def __init__(self, likelihood: Any) -> None:
        self.likelihood = likelihood

    @property
    @abc.abstractmethod
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of functions of the entries of the curvature."""

    @abc.abstractmethod
    def terms(self, f: Tensor, y: Tensor) -> Terms:
        """The log density and its derivatives for f (N, Q) and y (N,), differentiable once more."""

    def terms_in_blocks(self, f: Tensor, y: Tensor) -> Terms:
        """The same, with d (N, Q) as curvature, of which one function has W = d, and classes diag(d) - d d^T."""
        return self.terms(f, y)

    @property
    def num_in_blocks(self) -> int:
        """The number of columns of the curvature of :meth:`terms_in_blocks`."""
        return self.num_functions

    @property
    def has_full_hessian(self) -> bool:
        """Whether the pairs are all that there are."""
        return True

    @property
    def exact(self) -> LatentLikelihood:
        """The same with minus the second derivative as curvature, by which the mode is searched."""
        return self

    def concave(self, curvature: Tensor) -> Tensor | None:
        """What a curvature, that of :meth:`terms` or of blocks, lacks to be positive semidefinite in every row, of its
        shape; None where it lacks nothing."""
        return (-curvature).clamp_min(0.0) if bool((curvature < 0).any()) else None

    def product(self, f: Tensor, direction: Tensor) -> Tensor:
        """The full second derivative times a direction, W_i d_i, (N, Q), where only some pairs are in the terms."""
        raise ValueError(f"expected a likelihood of several functions, got {_name(self.likelihood)}; use its curvature")

    @abc.abstractmethod
    def targets(self, y: Any, x: Tensor) -> Tensor:
        """Checked targets, (N,), or a ValueError for values that the likelihood cannot have."""


class OneFunction(LatentLikelihood):
    """A likelihood of one latent function, whose derivatives are those of its conditional distribution."""

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(0, 0)]

    def terms(self, f: Tensor, y: Tensor) -> Terms:
        with torch.enable_grad():
            at = f if f.requires_grad else f.detach().requires_grad_()
            log_density = self._log_density(at.squeeze(-1), y)
            slope = _slope(log_density, at)
            curvature = -_slope(slope, at)
        terms = Terms(log_density, slope, curvature)
        return terms if torch.is_grad_enabled() else Terms(*(part.detach() for part in terms))

    def _log_density(self, f: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.likelihood, BernoulliLikelihood) and _is_own(self.likelihood, BernoulliLikelihood):
            return torch.special.log_ndtr((2.0 * y - 1.0) * f)  # where GPyTorch's probabilities round to 0 or 1
        log_density: Tensor = self.likelihood(f).log_prob(y)
        return log_density

    def targets(self, y: Any, x: Tensor) -> Tensor:
        return real_targets(self.likelihood, y, x)


class SeveralFunctions(LatentLikelihood):
    """A likelihood that says something of several functions together in every row, such as those of classes."""

    def targets(self, y: Any, x: Tensor) -> Tensor:
        if self.likelihood.num_classes is None:
            return real_targets(self.likelihood, y, x)
        return checks.labels(y, x, self.likelihood.num_classes)


class ClassFunctions(SeveralFunctions):
    r"""The softmax of several latent functions, with a diagonal or a full second derivative.

    .. math:: W_i = M^\top (\mathrm{diag}(p_i) - p_i p_i^\top) M

    Source: Rasmussen and Williams (2006), Eq. 3.33 and 3.38.
    """

    def __init__(self, likelihood: SoftmaxLikelihood, hessian: str) -> None:
        super().__init__(likelihood)
        self.num_functions = int(likelihood.num_features)
        self.hessian = hessian

    @property
    def pairs(self) -> list[tuple[int, int]]:
        functions = range(self.num_functions)
        if self.has_full_hessian:
            return [(q, other) for q in functions for other in functions[q:]]
        return [(q, q) for q in functions]

    @property
    def has_full_hessian(self) -> bool:
        return self.hessian == "full"

    def terms(self, f: Tensor, y: Tensor) -> Terms:
        mixing = self._mixing(f)
        logs = torch.log_softmax(f @ mixing.mT, dim=-1)
        chosen, probabilities = y.unsqueeze(-1), logs.exp()
        log_density = logs.gather(-1, chosen).squeeze(-1)
        mean = probabilities @ mixing
        first, second = zip(*self.pairs, strict=True)
        curvature = probabilities @ (mixing[:, first] * mixing[:, second]) - mean[:, first] * mean[:, second]
        return Terms(log_density, mixing[y] - mean, curvature)

    def terms_in_blocks(self, f: Tensor, y: Tensor) -> Terms:
        logs, labels = torch.log_softmax(f, dim=-1), y.long()
        probabilities, hot = logs.exp(), torch.nn.functional.one_hot(labels, self.num_functions)
        return Terms((hot * logs).sum(-1), hot - probabilities, probabilities)

    def concave(self, curvature: Tensor) -> Tensor | None:
        return None

    def product(self, f: Tensor, direction: Tensor) -> Tensor:
        mixing = self._mixing(f)
        probabilities = torch.softmax(f @ mixing.mT, dim=-1)
        along = direction @ mixing.mT
        inner = probabilities * (along - (probabilities * along).sum(-1, keepdim=True))
        return inner @ mixing

    def _mixing(self, f: Tensor) -> Tensor:
        """M, (C, Q), in float64."""
        weights = self.likelihood.mixing_weights
        return torch.eye(self.num_functions, dtype=f.dtype, device=f.device) if weights is None else weights.to(f)


class CoupledFunctions(SeveralFunctions):
    r"""A likelihood of several functions whose log density need not be concave, by automatic differentiation.

    Where rows have a negative curvature, a posterior by second derivatives may be wider than the prior, and an evidence
    larger for it. The expected ones, the Fisher information, are never negative:

    .. math:: W_i = E_{y \mid f_i} \Big[ -\frac{\partial^2 \log p(y \mid f_i)}{\partial f_i \partial f_i^\top} \Big]
        = \frac{\partial^2}{\partial \delta \partial \delta^\top}\,
        KL\big(p(y \mid f_i) \,\|\, p(y \mid f_i + \delta)\big) \Big|_{\delta = 0}

    :param is_exact: whether the curvature is minus the second derivative.

    Source: M. Hartmann and J. Vanhatalo, Laplace approximation and natural gradient for Gaussian process regression
    with heteroscedastic Student-t model, 2019.
    """

    def __init__(self, likelihood: SeveralFunctionsLikelihood, is_exact: bool = False) -> None:
        super().__init__(likelihood)
        self.num_functions, self.is_exact = likelihood.num_functions, is_exact

    @property
    def exact(self) -> CoupledFunctions:
        return self if self.is_exact else CoupledFunctions(self.likelihood, is_exact=True)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        functions = range(self.num_functions)
        return [(q, other) for q in functions for other in functions[q:]]

    @property
    def num_in_blocks(self) -> int:
        return len(self.pairs)

    def terms(self, f: Tensor, y: Tensor) -> Terms:
        with torch.enable_grad():
            at = f if f.requires_grad else f.detach().requires_grad_()
            log_density: Tensor = self.likelihood(at).log_prob(y)
            slope = _slope(log_density, at)
            curvature = -_second(slope, at) if self.is_exact else self._information(at)
        terms = Terms(log_density, slope, curvature)
        return terms if torch.is_grad_enabled() else Terms(*(part.detach() for part in terms))

    def _information(self, f: Tensor) -> Tensor:
        shift = torch.zeros_like(f, requires_grad=True)
        divergence = torch.distributions.kl_divergence(self.likelihood(f), self.likelihood(f + shift))
        return _second(_slope(divergence, shift), shift)

    def concave(self, curvature: Tensor) -> Tensor | None:
        if not self.is_exact:
            return None
        values, vectors = signed_parts(curvature, self.num_functions)
        if not bool((values < 0).any()):
            return None
        matrix = (vectors * (-values).clamp_min(0.0).unsqueeze(-2)) @ vectors.mT
        rows, columns = torch.triu_indices(*matrix.shape[-2:], device=matrix.device)
        return matrix[..., rows, columns]


def signed_parts(curvature: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The eigenvalues (..., Q), without rounding below zero, and eigenvectors (..., Q, Q) of curvatures (..., P)."""
    rows, columns = torch.triu_indices(count, count, device=curvature.device)
    table = torch.zeros(count, count, dtype=torch.long, device=curvature.device)
    table[rows, columns] = table[columns, rows] = torch.arange(len(rows), device=curvature.device)
    values, vectors = torch.linalg.eigh(curvature[..., table])
    is_rounding = values.abs() <= _ROUNDING * values.abs().amax(-1, keepdim=True)
    return values.masked_fill(is_rounding, 0.0), vectors


def real_targets(likelihood: Likelihood, y: Any, x: Tensor) -> Tensor:
    """Checked targets (N,), or a ValueError for values that a likelihood cannot have."""
    values = checks.one_per_row(checks.tensor(y, "y"), x, "y")
    if values.is_complex():
        raise ValueError(f"expected real targets for {_name(likelihood)}, got {y.dtype}; take a part of them")
    if values.device != x.device:
        raise ValueError(f"expected y on {x.device}, where x is, got {y.device}; move it")
    constant = values.clone() if values.is_inference() else values.detach()
    return possible_targets(likelihood, checks.finite(constant.double(), "y"))


def possible_targets(likelihood: Likelihood, y: Tensor) -> Tensor:
    """Targets (N,), or (N, T) with NaN for missing ones, or a ValueError where a likelihood cannot have them."""
    is_seen = ~torch.isnan(y)
    values = y[is_seen]
    zeros = torch.zeros_like(values)
    if isinstance(likelihood, SeveralFunctionsLikelihood):
        zeros = zeros.unsqueeze(-1).expand(*values.shape, likelihood.num_functions)
    at_zero = likelihood(zeros)
    is_possible = at_zero.support.check(values)
    if not bool(is_possible.all()):
        raise ValueError(
            f"expected targets that {_name(likelihood)} can have, {at_zero.support}, got "
            f"{_first(y, is_seen, ~is_possible)}; correct them, or use another likelihood"
        )
    is_infinite = ~torch.isfinite(at_zero.log_prob(values))
    if bool(is_infinite.any()):
        raise ValueError(
            f"expected targets where the density of {_name(likelihood)} is finite, got "
            f"{_first(y, is_seen, is_infinite)}; move them inside the support, or use another likelihood"
        )
    return y


def _first(y: Tensor, is_seen: Tensor, is_bad: Tensor) -> str:
    """The first bad one of the targets that are seen, with its place."""
    place = is_seen.nonzero()[is_bad.nonzero()[0, 0]].tolist()
    return f"{float(y[tuple(place)]):g} in row {place[0]}" + "".join(f" of output {output}" for output in place[1:])


def latent_likelihood(likelihood: Likelihood, hessian: str = "full") -> LatentLikelihood:
    """The log density of a GPyTorch likelihood and its derivatives; a ValueError for others, and for batches."""
    checks.choice("hessian", hessian, HESSIANS)
    if isinstance(likelihood, SoftmaxLikelihood):
        return ClassFunctions(likelihood, hessian)
    is_coupled = isinstance(likelihood, SeveralFunctionsLikelihood)
    is_complex = isinstance(likelihood, ComplexGaussianLikelihood)
    kinds = OneDimensionalLikelihood | GaussianLikelihood | SeveralFunctionsLikelihood
    if is_complex or not isinstance(likelihood, kinds):
        raise ValueError(
            "expected a GPyTorch likelihood of one latent function, such as a BernoulliLikelihood, or a "
            f"SoftmaxLikelihood, got {_name(likelihood)}; use WeightSpaceGP for other Gaussian likelihoods"
        )
    if isinstance(likelihood, LaplaceLikelihood):
        raise ValueError(
            "expected a likelihood with two derivatives in the function, got a LaplaceLikelihood, which has a kink; "
            "use a StudentTLikelihood"
        )
    if hessian != "full":
        raise ValueError(
            f'expected hessian="full" for {_name(likelihood)}, got {hessian!r}; it is for classes, a SoftmaxLikelihood'
        )
    if is_coupled:
        return CoupledFunctions(likelihood)
    if any(parameter.numel() > 1 for parameter in likelihood.parameters()):
        raise ValueError(f"expected a {_name(likelihood)} without batch dimensions, got some; make a model for each")
    return OneFunction(likelihood)


def _slope(values: Tensor, f: Tensor) -> Tensor:
    """The derivative of every value in its own f, of the shape of f."""
    if not values.requires_grad:
        return torch.zeros_like(f)
    (slope,) = torch.autograd.grad(values.sum(), f, create_graph=True, materialize_grads=True)
    return slope


def _second(slope: Tensor, f: Tensor) -> Tensor:
    """The derivatives of every slope (N, Q) in its own f, (N, Q), for pairs of functions, (N, P)."""
    return torch.cat([_slope(column, f)[:, q:] for q, column in enumerate(slope.unbind(-1))], dim=-1)


def _is_own(likelihood: Likelihood, kind: type[Likelihood]) -> bool:
    """Whether a likelihood has the conditional distribution of a class, and does not override it."""
    return type(likelihood).forward is kind.forward


def _name(likelihood: object) -> str:
    return type(likelihood).__name__


class TaskFunctions(LatentLikelihood):
    r"""A likelihood of one function for every observed cell :math:`y_{it}` of N rows of T tasks.

    .. math:: \log p(y_i \mid f_i) = \sum_{t \text{ observed}} \log p(y_{it} \mid f_{it})
    """

    def __init__(self, cell: OneFunction, num_tasks: int) -> None:
        super().__init__(cell.likelihood)
        self.cell, self.num_functions = cell, num_tasks

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(task, task) for task in range(self.num_functions)]

    def terms(self, f: Tensor, y: Tensor) -> Terms:
        is_there = ~torch.isnan(y)
        cells = self.cell.terms(f[is_there].unsqueeze(-1), y[is_there])

        def table(values: Tensor) -> Tensor:
            return torch.zeros_like(f).index_put((is_there,), values.reshape(-1))

        return Terms(table(cells.log_density).sum(-1), table(cells.slope), table(cells.curvature))

    def targets(self, y: Any, x: Tensor) -> Tensor:
        values = checks.tensor(y, "y")
        if values.shape != (len(x), self.num_functions) or values.is_complex():
            raise ValueError(
                f"expected real targets y of shape {(len(x), self.num_functions)}, with NaN for missing ones, got "
                f"{values.dtype} of shape {tuple(values.shape)}; give a column for every task"
            )
        if values.device != x.device:
            raise ValueError(f"expected y on {x.device}, where x is, got {values.device}; move it")
        constant = (values.clone() if values.is_inference() else values.detach()).double()
        if bool(torch.isinf(constant).any()):
            raise ValueError("expected finite targets y, or NaN for missing ones, got infinite ones; correct them")
        possible_targets(self.likelihood, constant)
        return constant
