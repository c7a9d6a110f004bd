"""The door to training: a model, its data, and how long it may take."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from gpytorch.models import ExactGP
from torch import Tensor

from .._support import checks
from ..data.row_noise import weighted
from ..models import HeteroscedasticGP, LaplaceGP, WeightSpaceGP, WeightSpaceVariationalGP
from ..passes import Shard
from .methods import method_of, strategy_of
from .strategies import Strategy, Task
from .summary import FitSummary
from .timing import Deadline


def fit(
    model: WeightSpaceGP | WeightSpaceVariationalGP | LaplaceGP | HeteroscedasticGP | ExactGP,
    x: Tensor | Iterable[tuple[Tensor, ...]] | None = None,
    y: Tensor | None = None,
    *,
    noise: Tensor | None = None,
    weights: Tensor | None = None,
    exposure: Tensor | None = None,
    strategy: str | Strategy = "auto",
    time_limit: float | None = None,
    max_evaluations: int = 200,
    progress: bool | None = None,
) -> FitSummary:
    """Learn all parameters that require gradients, and leave the model conditioned on the data.

    L-BFGS maximizes the log marginal likelihood, or what the strategy says, plus log priors. The result does not depend
    on the units of x and y. On an error or an interrupt the model keeps the best parameters that were seen.

    :param model: a model of :mod:`rfgp.models` that has an evidence or a bound, or a GPyTorch ExactGP, which is
        evaluated with Cholesky factors; use float64 for it.
    :param x: training inputs (N, d); or re-iterable batches (x, y) or (x, y, noise), such as a torch DataLoader;
        default: those of the ExactGP.
    :param y: training targets or labels (N,), or targets (N, T) of several outputs, with NaN for missing ones; default:
        those of the ExactGP.
    :param noise: noise variances of the shape of y, for a WeightSpaceGP with fixed noise.
    :param weights: weights of the rows, (N,), which divide the noise of a WeightSpaceGP; default: ones.
    :param exposure: of counts, of the shape of y, for a LaplaceGP: see :meth:`rfgp.models.LaplaceGP.condition`.
    :param strategy: from what parameters are learned: :class:`~rfgp.training.Auto`, :class:`~rfgp.training.Evidence`,
        :class:`~rfgp.training.Subset`, :class:`~rfgp.training.Blocks`, :class:`~rfgp.training.Neighbors`,
        :class:`~rfgp.training.LeaveOut`, :class:`~rfgp.training.Minibatches`, :class:`~rfgp.training.Average`, or any
        other :class:`~rfgp.training.Strategy`, such as one of your own; or by short form "auto", "evidence", "subset",
        "blocks", "neighbors", "leave_one_out", "minibatches" or "average".
    :param time_limit: seconds that all of it may take, about, with fewer rows where these are too many; half a second
        of evaluations of few rows, at least one, and the fit to all rows always run. Default: none.
    :param max_evaluations: a limit on evaluations of all rows. Starts are compared before, on 1,000 rows where there
        are more, and not where the limit is below 12.
    :param progress: whether to show a progress bar; default: on terminals only.
    :returns: a summary that prints well.
    :raises ValueError: for bad data, where nothing is to be trained, or where the model does not take the strategy; the
        model stays as it was.
    :warns UserWarning: where the evidence is no better than that of a constant with noise, a parameter ends at a bound
        of its constraint, the noise had to be raised for Cholesky factors, or the features lose much of the posterior
        or learn a part of the function as noise.

    >>> import gpytorch, rfgp, torch
    >>> x = torch.linspace(-1, 1, 50, dtype=torch.float64).unsqueeze(-1)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel().double(), num_features=16, input_dim=1, seed=0)
    >>> model = rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double())
    >>> fit(model, x, x.squeeze(-1) ** 2, max_evaluations=20).evaluations <= 20
    True
    """
    if torch.is_inference_mode_enabled():
        raise ValueError(
            "expected gradients to learn parameters by, got torch.inference_mode(), which has none; call fit outside"
        )
    x = checks.columns(x)
    method = method_of(model)
    if isinstance(x, Shard) and time_limit is not None:
        raise ValueError(
            "expected no time_limit beside a Shard, whose ranks have clocks of their own; use max_evaluations"
        )
    limit = checks.positive_integer("max_evaluations", max_evaluations)
    if progress is not None:
        checks.flag("progress", progress)
    if time_limit is not None:
        checks.positive("time_limit", time_limit, "seconds, such as 30")
    wanted = strategy_of(strategy)
    row_noise, deadline = weighted(noise, weights, x), Deadline.after(time_limit)
    task = Task(model, x, y, row_noise, method.evidence, limit, deadline, checks.no_bar(progress), exposure)
    return method.strategy(task, wanted).fit(task)
