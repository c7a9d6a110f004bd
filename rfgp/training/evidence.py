"""Training: the parameters of weight-space models and of GPyTorch's ExactGP, from all rows or from little data."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Any

import gpytorch
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.models import ExactGP
from torch import Tensor
from tqdm.auto import tqdm

from .. import _checks
from ..distributed import Shard
from ..models import HeteroscedasticGP, LaplaceGP, WeightSpaceGP, WeightSpaceVariationalGP
from ..selection.lost_posterior import warn_of_lost_posterior
from .ascent import NoValueError
from .bound import BoundObjective, check_variational, fit_weights, has_parameters, takes_all_rows
from .coordinates import Coordinates
from .heteroscedastic import noise_objective
from .laplace import LaplaceObjective
from .leave_out import OBJECTIVES, leave_out_objective
from .loader import loader_objective
from .minibatches import as_batches, fit_minibatches
from .narrow import exact_form
from .objectives import ExactObjective, Objective, WeightSpaceObjective
from .rollback import Rollback
from .run import parts_of
from .starts import sample_rows
from .strategies import SMALL, STRATEGIES, Training
from .summary import FitSummary
from .timing import Deadline, clock


def fit(
    model: WeightSpaceGP | WeightSpaceVariationalGP | LaplaceGP | HeteroscedasticGP | ExactGP,
    x: Tensor | Iterable[tuple[Tensor, ...]] | None = None,
    y: Tensor | None = None,
    *,
    noise: Tensor | None = None,
    strategy: str = "auto",
    time_limit: float | None = None,
    max_evaluations: int = 200,
    initialize: bool = True,
    progress: bool | None = None,
    epochs: int | None = None,
    num_data: int | None = None,
    executor: Executor | None = None,
    objective: str = "evidence",
    groups: Tensor | int | None = None,
) -> FitSummary:
    r"""Maximize a log marginal likelihood (plus log priors) over all parameters that require gradients, by L-BFGS.

    The model is left trained and fitted: a WeightSpaceGP holds the statistics at the optimum, a LaplaceGP the mode, and
    an ExactGP is in evaluation mode. Exact models are evaluated with Cholesky factors whatever their size; use float64
    for them.

    The result does not depend on the units of x and y: positive parameters are optimized by their logarithms, mean
    functions in standard deviations of the targets, and shift-invariant kernels subtract the mean of the inputs.
    Noise variances stay above the rounding of the targets, and above 1e-13 of the variance that is to be explained.
    Training ends where the gradient is zero, not where progress is slow. On any other end, an error or an interrupt
    included, the model keeps the best parameters that were seen; where there are none it is left as it was.

    Parameters are learned as ``strategy`` says:

    - "evidence": from the log marginal likelihood of the model and all rows.
    - "subset": from the likelihood of the exact kernel on 1,500 random rows, which sees the long range.
    - "blocks": from that of up to 256 independent blocks of 48 to 192 near rows, which see the short range and the
      noise. Blocks are cut again as lengthscales change.
    - "auto": up to 2,000 rows, for an ExactGP, and for all that has no likelihood of one exact regression (classes,
      several outputs, complex values), the evidence; for a model with local blocks the subset instead. Else blocks, a
      subset, and for models without local blocks a few evaluations of the evidence of 10,000 rows from the better of
      the two; it takes the parameters with which the model predicts held-out rows best.

    After a subset, blocks or "auto" a WeightSpaceGP is fitted to all rows once, and noise, output scale and mean are
    learned again from its statistics where these do not contain them. Then the gradient is zero in these alone, and
    for a subset or blocks "converged" means to a tenth of the standard error of the gradient.

    A :class:`rfgp.models.WeightSpaceVariationalGP` is trained by its evidence lower bound. Up to 2,000 rows, or with
    strategy "evidence", the bound of all rows is maximized by L-BFGS, at the best distribution of the weights for every
    set of parameters. More rows, batches from a loader, diagonal covariances and Softmax likelihoods are trained from
    minibatches: natural-gradient steps for a full covariance of the weights, with Adam for all other parameters. One
    batch costs nothing that depends on the number of rows.

    A :class:`rfgp.models.LaplaceGP` learns from its evidence, whatever the number of rows.

    :param model: a :class:`rfgp.models.WeightSpaceGP`, a :class:`rfgp.models.WeightSpaceVariationalGP`, a
        :class:`rfgp.models.LaplaceGP` or a GPyTorch ExactGP.
    :param x: training inputs (N, d); or batches (x, y) or (x, y, noise) that can be gone through again and again, such
        as those of a torch DataLoader. A WeightSpaceGP then has its evidence from one pass over all of them for every
        evaluation, a WeightSpaceVariationalGP is trained from minibatches; default: those of the ExactGP.
    :param y: training targets or labels (N,), or targets (N, T) of several outputs, with NaN for missing ones; default:
        those of the ExactGP.
    :param noise: noise variances of the shape of y, for a WeightSpaceGP with fixed noise.
    :param strategy: "auto", "evidence", "subset" or "blocks".
    :param time_limit: seconds that all of it may take, about. How many rows and evaluations are taken follows from the
        time of evaluations of few rows: all rows where each can be evaluated twenty times, else some of them. There is
        one evaluation at least, and the fit to all rows at the end. Default: fixed numbers of rows and evaluations.
    :param max_evaluations: a limit on evaluations of evidence and gradient of all rows. Starts are compared before, on
        1,000 rows where there are more, and not where the limit is below 12.
    :param initialize: whether to start output scale, noise and mean from the moments of the targets, and lengthscales,
        periods and offsets that have GPyTorch's default values from distances between inputs, at several scales; else
        training starts from the present values.
    :param progress: whether to show a progress bar; default: on terminals only.
    :param epochs: how many times training from minibatches goes through the rows; default: 50.
    :param num_data: the number of rows of a loader, for training from minibatches; default: they are counted once.
    :param executor: any executor of ``concurrent.futures``, whose workers sum the rows of a WeightSpaceGP for every
        evaluation; x is then a source, a list of partitions, or tensors, as ``condition`` takes them. Default: none,
        all in this process.
    :param objective: "evidence"; or "leave_one_out", the sum of the log densities of all rows, each given all others;
        or "leave_group_out", that of groups of rows. These ask how well the model predicts rather than how probable
        the data are, and hold up better where the model is wrong. For one output with Gaussian or fixed noise, and
        tensors; the summary has their values in place of the evidence. Default: "evidence".
    :param groups: the label of the group of every row, (N,), or the number of random folds, for "leave_group_out".
    :returns: a summary that prints well.
    :raises ValueError: for bad data, where nothing is to be trained, or where the model has no likelihood for the
        strategy; the model stays as it was.
    :warns UserWarning: where a parameter ends at a bound of its constraint; after a subset, blocks or "auto" of more
        than 2,000 rows also where the features lose much of the posterior.

    >>> import gpytorch, rfgp, torch
    >>> x = torch.linspace(-1, 1, 50, dtype=torch.float64).unsqueeze(-1)
    >>> base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PolynomialKernel(power=2)).double()
    >>> kernel = rfgp.approximate(base, num_features=16, input_dim=1, seed=0)
    >>> model = rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double())
    >>> summary = fit(model, x, x.squeeze(-1) ** 2 + 0.1 * torch.cos(20 * x.squeeze(-1)))
    >>> summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
    True
    """
    if not isinstance(model, WeightSpaceGP | WeightSpaceVariationalGP | LaplaceGP | HeteroscedasticGP | ExactGP):
        raise ValueError(
            f"expected a model of rfgp.models that has an evidence or a bound, or a GPyTorch ExactGP, got "
            f"{type(model).__name__}; pass a model"
        )
    if executor is not None and not isinstance(model, WeightSpaceGP):
        raise ValueError(f"expected a WeightSpaceGP beside executor, got {type(model).__name__}; leave executor out")
    if isinstance(x, Shard) and time_limit is not None:
        raise ValueError(
            "expected no time_limit beside a Shard, whose ranks have clocks of their own; use max_evaluations"
        )
    limit = _checks.positive_integer("max_evaluations", max_evaluations)
    _checks.flag("initialize", initialize)
    if progress is not None:
        _checks.flag("progress", progress)
    _checks.choice("strategy", strategy, STRATEGIES)
    name = _checks.choice("objective", objective, OBJECTIVES)
    if name != "evidence" and (strategy not in ("auto", "evidence") or executor is not None):
        raise ValueError(
            f'expected strategy="evidence" and no executor beside objective={name!r}, got others; leave them out'
        )
    if name == "evidence" and groups is not None:
        raise ValueError('expected no groups beside objective="evidence", got some; choose "leave_group_out"')
    if time_limit is not None:
        _checks.positive("time_limit", time_limit, "seconds, such as 30")
    passes = _EPOCHS if epochs is None else _checks.positive_integer("epochs", epochs)
    count = None if num_data is None else _checks.positive_integer("num_data", num_data)
    if not isinstance(model, WeightSpaceVariationalGP) and (epochs, num_data) != (None, None):
        raise ValueError(
            f"expected a WeightSpaceVariationalGP beside epochs or num_data, got {type(model).__name__}; leave them "
            "out, or use max_evaluations"
        )
    began, deadline = clock(), Deadline.after(time_limit)
    is_silent = _checks.no_bar(progress)
    if isinstance(model, WeightSpaceVariationalGP) and name == "evidence":
        check_variational(strategy, noise)
        if epochs is not None or not takes_all_rows(model, x, strategy):
            with tqdm(total=passes, desc="fit", unit="epoch", disable=is_silent, leave=False) as bar:
                report = functools.partial(_report, bar)
                return fit_minibatches(model, as_batches(x, y), count, passes, initialize, deadline, report)
        if not has_parameters(model):
            return fit_weights(model, x, y)
    before, training = Rollback(model), None
    try:
        if name == "evidence":
            target, chosen = _objective(model, x, y, noise, strategy, executor)
        else:
            target, chosen = leave_out_objective(name, model, x, y, noise, groups), "evidence"
        bar = tqdm(total=min(limit, _LIKELY), desc="fit", unit="eval", disable=is_silent, leave=False)
        with bar:
            report = functools.partial(_report, bar, limit=limit)
            training = Training(target, initialize, limit, deadline, report)
            value = training.run(chosen)
    except BaseException as error:
        if training is None or not training.keep_best():
            before.restore()
        if isinstance(error, NoValueError):
            raise (error.__cause__ or ValueError(_NOT_FINITE)) from None
        raise
    for warning in _remarks(model, target):
        warnings.warn(warning, stacklevel=2)
    if training.found_by:
        some = sample_rows(target.num_rows, _COMPARED_ROWS).to(target.x.device)
        warn_of_lost_posterior(model, target.x[some], target.num_rows)
    return training.summary(value, clock() - began)


_COMPARED_ROWS = 512
_EPOCHS = 50
_LIKELY = 50
"""How many evaluations most searches take."""
_NOT_FINITE = (
    "expected a finite evidence at the start, got none; rescale the data, or start from other values with "
    "initialize=False"
)


def _report(bar: Any, value: float, limit: int = 0) -> None:
    """Count an evaluation or epoch; where more than the likely number are made, up to the limit, the count goes on."""
    bar.update()
    if bar.total is not None and bar.total <= bar.n < limit:
        bar.total = min(2 * bar.total, limit)
    bar.set_postfix(evidence=f"{value:.6g}")


def _objective(
    model: Any, x: Any, y: Any, noise: Any, strategy: str, executor: Executor | None
) -> tuple[Objective, str]:
    """The evidence of the data, and what "auto" stands for where there is no choice."""
    if executor is not None:
        return loader_objective(model, x, y, noise, strategy, executor), "evidence"
    if isinstance(model, WeightSpaceVariationalGP):
        return BoundObjective(model, x, y), "evidence"
    if isinstance(model, WeightSpaceGP) and x is not None and not isinstance(x, Tensor):
        return loader_objective(model, x, y, noise, strategy), "evidence"
    if isinstance(model, HeteroscedasticGP):
        return noise_objective(model, x, y, noise, strategy), "evidence"
    if isinstance(model, LaplaceGP):
        return _laplace(model, x, y, noise, strategy), "evidence"
    is_large = isinstance(x, Tensor) and x.dim() == 2 and len(x) > SMALL
    if strategy == "auto" and isinstance(model, WeightSpaceGP) and (is_large or model.block_size is not None):
        objective = WeightSpaceObjective(model, x, y, noise, is_lazy=True)
        try:
            if exact_form(objective).is_plain:
                return objective, strategy if is_large else "subset"
        except ValueError:
            pass
    chosen = "evidence" if strategy == "auto" else strategy
    if isinstance(model, WeightSpaceGP):
        return WeightSpaceObjective(model, x, y, noise, is_lazy=chosen != "evidence"), chosen
    if noise is not None:
        raise ValueError(
            "expected no noise beside an ExactGP, got some; give it to the model's FixedNoiseGaussianLikelihood"
        )
    return ExactObjective(model, x, y), chosen


def _laplace(model: LaplaceGP, x: Any, y: Any, noise: Any, strategy: str) -> LaplaceObjective:
    """The evidence of a LaplaceGP."""
    if noise is not None:
        raise ValueError("expected no noise beside a LaplaceGP, got some; its likelihood has it")
    if strategy not in ("auto", "evidence"):
        raise ValueError(f'expected strategy="evidence" for a LaplaceGP, got {strategy!r}; others are for regression')
    return LaplaceObjective(model, x, y)


def _remarks(model: Any, objective: Objective) -> list[str]:
    """What to warn of: parameters at a bound of their constraint, and known noise that GPyTorch has raised."""
    moments = objective.moments
    coordinates = Coordinates(parts_of(model), moments)
    found = []
    for member, side, bound in coordinates.at_bounds(coordinates.values()):
        name = member.name.rpartition(".")[2]
        if "second_noise" in member.name:
            continue
        remedy = f"give {name} a constraint with another bound"
        if "noise" in name:
            variances = moments.output_variances
            known = " and ".join(f"{v:.3g}" for v in sorted({float(variances.min()), float(variances.max())}))
            spread = "a variance of" if len(variances) == 1 else "variances between"
            remedy = (
                f"the targets have {spread} {known}: rescale them, or construct the likelihood with "
                "noise_constraint=gpytorch.constraints.Positive()"
            )
        found.append(
            f"{member.name} ends at the {side} bound {bound:.3g} of its constraint, which keeps it from a better "
            f"value; {remedy}"
        )
    return found + _raised_noise(model, float(moments.variance))


def _raised_noise(model: Any, variance: float) -> list[str]:
    """Whether GPyTorch has raised known noise to its smallest value, which matters in small units."""
    if not isinstance(model, ExactGP) or not isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        return []
    noise = model.likelihood.noise_covar.noise
    smallest = gpytorch.settings.min_fixed_noise.value(noise.dtype)
    if float(noise.min()) > smallest * (1.0 + 1e-6) or smallest <= 1e-4 * variance:
        return []
    return [
        f"known noise variances stand at {smallest:.3g}, to which GPyTorch raises smaller ones, and the "
        f"targets have a variance of {variance:.3g}; rescale the targets, or make the likelihood inside "
        "gpytorch.settings.min_fixed_noise(0.0, 0.0, 0.0)"
    ]
