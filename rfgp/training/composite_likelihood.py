"""The composite likelihood of groups of rows under the exact kernel of a model."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .._support import checks
from .._support.threads import one_thread
from ..linalg.last_rows import RowGroups, Rows, is_compiled, log_densities, log_density
from .moments import DataMoments
from .objectives import Objective
from .parts import Parts, parts_of
from .prediction_errors import robust_mean
from .timing import NEVER, Deadline

_CHUNK = 2**17
"""Entries of the matrices that are held at a time: they stay in the cache of a processor."""
_TRIAL_ROWS = 2500
_SHARE_OF_ERROR = 0.1


class Observations(abc.ABC):
    """How the rows of a model are observed: what is known of them, and their densities under its exact kernel.

    :param objective: the evidence of the model and all its rows.
    :param kernel: the exact kernel of their inputs.
    """

    num_factors: int = 1
    """Covariances a group whose factors are held at the same time."""
    trial_size: ClassVar[int] = 500
    """Rows of a group of which starts are compared, at most."""
    shape_evaluations: ClassVar[tuple[int, ...]] = (24,)
    """Evaluations by which a comparison learns lengthscales or a map, each time with the rows near by the last ones."""
    search_share: ClassVar[float] = 1.0
    """The part of the time that the parameters of the kernel may take; :meth:`write` learns others in the rest."""

    def __init__(self, objective: Objective, kernel: Kernel) -> None:
        self.objective, self.model, self.x, self.kernel = objective, objective.model, objective.x, kernel

    @property
    def parts(self) -> Parts:
        """The modules whose parameters are learned."""
        return parts_of(self.model)

    @property
    def outputs(self) -> Tensor:
        """The targets as columns, (N, T)."""
        return self.objective.outputs

    @abc.abstractmethod
    def log_densities(self, groups: Tensor, targets: int) -> Tensor:
        """Those of the last ``targets`` rows of groups (B, n), given the rows before; differentiable.

        :returns: (B,), or their sum (1,) where it is not known by group.
        """

    def stationary_rows(self, rows: Tensor) -> Rows | None:
        """Some rows (M,) as those of independent functions of one stationary kernel; None where they are no such ones.

        Where they are, the densities of one target for each group follow from these.
        """
        return None

    def profile(self, groups: Tensor) -> None:  # noqa: B027
        """Set what has a closed form given the kernel, from groups of rows (B, n)."""

    def write(self, deadline: Deadline = NEVER) -> None:  # noqa: B027
        """Give the model what was learned, where its own parameters are others."""


class CompositeLikelihood(Objective):
    r"""The composite log likelihood of groups of rows under the exact kernel of a model.

    .. math:: \sum_g \log p(y_{b(g)} \mid y_{a(g)})

    where :math:`b(g)` are the last rows of a group, and :math:`a(g)` the rows before them. Where all rows are targets,
    one group is the likelihood of a subset, and several are that of independent blocks. With one target for each group
    it is Vecchia's approximation.

    :param observations: how the rows of the model are observed: :attr:`Training.observations` has them.
    :param groups: the numbers of the rows of each group, (B, n).
    :param targets: how many rows at the end of each group are predicted from the others; default: all n.
    :raises ValueError: for groups that are no such numbers, or more targets than a group has rows.

    Source: B. G. Lindsay, Composite likelihood methods, 1988; M. L. Stein, Z. Chi and L. J. Welty, Approximating
    likelihoods for large spatial data sets, 2004.

    >>> import gpytorch, rfgp, torch
    >>> from rfgp.training import CompositeLikelihood, Stage, Strategy
    >>> class Pairs(Strategy):
    ...     def stages(self, training):
    ...         pairs = torch.arange(50).reshape(25, 2)
    ...         yield Stage(CompositeLikelihood(training.observations, pairs, targets=1), "pairs", evaluations=5)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=1, seed=0)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
    >>> x = torch.linspace(-1, 1, 50).unsqueeze(-1)
    >>> rfgp.fit(model, x, x.squeeze(-1) ** 2, strategy=Pairs()).stages[0].rows
    '25 rows given 1 other'
    """

    def __init__(self, observations: Observations, groups: Tensor, targets: int | None = None) -> None:
        checks.instance("observations", observations, Observations, "observations", "pass training.observations")
        self.observations, self.model, self.x = observations, observations.model, observations.x
        self.groups = _checked(groups, targets, len(self.x)).to(self.x.device)
        self.targets = targets
        self._numbered: tuple[Tensor, RowGroups] | None = None

    @property
    def parts(self) -> Parts:
        return self.observations.parts

    @property
    def moments(self) -> DataMoments:
        return self.observations.objective.moments

    @property
    def outputs(self) -> Tensor:
        return self.observations.outputs

    @property
    def num_rows(self) -> int:
        return self.num_targets(self.groups)

    def num_targets(self, rows: Tensor) -> int:
        return len(rows) * self._targets_of(rows)

    def _targets_of(self, groups: Tensor) -> int:
        return groups.shape[-1] if self.targets is None else self.targets

    @property
    def prior_weight(self) -> float:
        """Priors count as for all rows, of which some are targets."""
        return self.num_rows / len(self.x)

    @property
    def described(self) -> str:
        count, size = self.groups.shape
        if self.targets is not None and self.targets < size:
            others = size - self.targets
            return f"{self.num_rows} rows given {others} {'other' if others == 1 else 'others'}"
        return f"{size} rows" if count == 1 else f"{count} x {size} rows"

    @property
    def tolerance(self) -> float:
        """A tenth of the standard error of the gradient, where the rows are some of all."""
        error = self.num_rows**-0.5 if self.num_rows < len(self.x) or len(self.groups) > 1 else 0.0
        return max(super().tolerance, _SHARE_OF_ERROR * error)

    def first_rows(self, size: int) -> None:
        return None

    def some_rows(self) -> Tensor | None:
        count, size = self.groups.shape
        most = self.observations.trial_size
        if count * size <= _TRIAL_ROWS and size <= most:
            return None
        some = self.groups[: max(1, _TRIAL_ROWS // size)]
        return some[:, :most] if self.targets is None else some

    @contextmanager
    def many_evaluations(self) -> Iterator[None]:
        """One thread of PyTorch beside those of the compiled library: between evaluations its others wait on cores."""
        last = self._last_rows(self.groups)
        with one_thread() if last is not None and is_compiled(last[0].points) else nullcontext():
            yield

    def evidence(self, rows: Tensor | None = None) -> Tensor:
        """The composite log likelihood of these groups, or of all, whose gradient is found part by part of them."""
        groups = self.groups if rows is None else rows
        if not torch.is_grad_enabled():
            return self._densities(groups).sum()
        last = self._last_rows(groups)
        if last is not None:
            return log_density(*last)
        parameters = [p for part in self.parts.values() for p in part.parameters() if p.requires_grad]
        total, slopes = torch.zeros((), dtype=torch.float64), [torch.zeros_like(p) for p in parameters]
        for chunk in self._chunks(groups):
            value = self.observations.log_densities(chunk, self._targets_of(chunk)).sum()
            gradients = torch.autograd.grad(value, parameters, allow_unused=True)
            total = total + value.detach()
            slopes = [slope if g is None else slope + g for slope, g in zip(slopes, gradients, strict=True)]
        for slope, parameter in zip(slopes, parameters, strict=True):
            total = total + (slope * (parameter - parameter.detach())).sum()
        return total

    @torch.no_grad()
    def score(self) -> float:
        """The mean log density of a group, as far as single ones do not decide it."""
        return float(robust_mean(self._densities(self.groups)))

    def score_or_worst(self) -> float:
        """The same, but minus infinity where there is none."""
        try:
            score = self.score()
        except ValueError:
            return -math.inf
        return score if math.isfinite(score) else -math.inf

    def _densities(self, groups: Tensor) -> Tensor:
        last = self._last_rows(groups)
        if last is not None:
            return log_densities(*last)
        targets = self._targets_of(groups)
        return torch.cat([self.observations.log_densities(chunk, targets) for chunk in self._chunks(groups)])

    def _last_rows(self, groups: Tensor) -> tuple[Rows, RowGroups] | None:
        """The rows of groups of which the last is predicted; None for other groups, or without a stationary kernel."""
        if self._targets_of(groups) != 1:
            return None
        if self._numbered is None or self._numbered[0] is not groups:
            self._numbered = groups, RowGroups(groups)
        numbered = self._numbered[1]
        rows = self.observations.stationary_rows(numbered.rows)
        return None if rows is None else (rows, numbered)

    def _chunks(self, groups: Tensor) -> tuple[Tensor, ...]:
        return groups.split(max(1, _CHUNK // (self.observations.num_factors * groups.shape[-1] ** 2)))

    def write(self) -> None:
        self.observations.write()

    def kernel_and_inputs(self) -> tuple[Kernel, Tensor]:
        return self.observations.kernel, self.x


def _checked(groups: Tensor, targets: int | None, num_rows: int) -> Tensor:
    """Groups (B, n) of rows, or a ValueError."""
    if not isinstance(groups, Tensor) or groups.dtype != torch.long or groups.dim() != 2 or not groups.numel():
        got = f"{tuple(groups.shape)} of {groups.dtype}" if isinstance(groups, Tensor) else type(groups).__name__
        raise ValueError(
            f"expected the numbers of the rows of groups as a tensor (B, n) of torch.long, got {got}; make it by "
            "torch.stack or reshape"
        )
    low, high = int(groups.min()), int(groups.max())
    if low < 0 or high >= num_rows:
        raise ValueError(f"expected numbers of rows from 0 to {num_rows - 1}, got {low} to {high}; correct groups")
    if targets is not None and checks.positive_integer("targets", targets) > groups.shape[1]:
        raise ValueError(
            f"expected at most {groups.shape[1]} targets, which is the size of a group, got {targets}; take fewer"
        )
    return groups
