"""Models of the same rows, compared by predictions of held-out rows from those near them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from .._support import checks
from ..models import WeightSpaceGP
from .composite_likelihood import CompositeLikelihood, Observations
from .grid_comparison import compare_on_grid
from .near_rows import NearRows
from .neighbors import NeighborObjective
from .rollback import Rollback
from .session import Training
from .starts import random_rows
from .timing import Deadline
from .tuning import PlannedStage, Tuning

_FIRST, _LAST_ROWS = (PlannedStage(900, 10, True),), (3000, 6000)
_FINALISTS, _EVALUATIONS, _NEIGHBORS = 3, 100, 64
_SHARE_OF_FIRST = 0.6


def compare(
    models: Mapping[str, WeightSpaceGP],
    x: Tensor,
    y: Tensor,
    *,
    noise: Tensor | None = None,
    time_limit: float | None = None,
    initialize: bool = True,
) -> dict[str, float]:
    """Tune models for the same rows briefly, and return how well each predicts held-out rows, the best one first.

    Models on Fourier grids get one grid in common, whose sums over all rows are read once. They are compared by their
    log evidence, with parameters that maximize it, and are left conditioned on the rows.

    Of other models all lengthscales are multiplied by one number first; the three best models learn one each. The
    models keep these parameters, from which ``Neighbors(initialize=False)`` goes on; they are not conditioned.

    :param models: models that :class:`Neighbors` takes, by name; on grids: models with the same columns of inputs, and
        with likelihoods and means of one form.
    :param x: inputs (N, d).
    :param y: targets (N,) or (N, T), or labels (N,).
    :param noise: noise variances of the shape of y, for models with fixed noise.
    :param time_limit: seconds that it may take, about. Default: none.
    :param initialize: whether starting values come from the data; else all models are tuned from those that they have.
    :returns: the mean log density of held-out rows given the 64 rows near each, or the log evidence over the number of
        rows, by name.
    :raises ValueError: for no models, bad data, or a model that the strategy does not take; models stay as they were.

    >>> import gpytorch, rfgp, torch
    >>> x = torch.linspace(-3, 3, 100, dtype=torch.float64).unsqueeze(-1)
    >>> def model(kernel):
    ...     wide = rfgp.approximate(gpytorch.kernels.ScaleKernel(kernel).double(), 16, input_dim=1, seed=0)
    ...     return rfgp.WeightSpaceGP(wide, gpytorch.likelihoods.GaussianLikelihood().double())
    >>> models = {"rbf": model(gpytorch.kernels.RBFKernel()), "linear": model(gpytorch.kernels.LinearKernel())}
    >>> next(iter(compare(models, x, (3.0 * x).sin().squeeze(-1))))
    'rbf'
    """
    x = checks.columns(x)
    checks.instance("models", models, Mapping, "models by name", "pass a dict of models")
    if not models:
        raise ValueError("expected models to compare, got none; pass a dict of models")
    for name, model in models.items():
        checks.instance(f"models[{name!r}]", model, WeightSpaceGP, "a WeightSpaceGP", "make one of the kernel")
    if time_limit is not None:
        checks.positive("time_limit", time_limit, "seconds, such as 10")
    is_first = checks.flag("initialize", initialize)
    deadline = Deadline.after(time_limit)
    before = [Rollback(model) for model in models.values()]
    try:
        if all(model.sums_hold for model in models.values()):
            return compare_on_grid(models, x, y, noise, deadline)
        trainings, tunings, near = {}, {}, None
        for index, (name, model) in enumerate(models.items()):
            objective = NeighborObjective(model, x, y, noise)
            near = NearRows(x) if near is None else near
            if is_first:
                objective.start()
            share = deadline.share(_SHARE_OF_FIRST / (_SHARE_OF_FIRST * (len(models) - index) + 1.0 - _SHARE_OF_FIRST))
            trainings[name] = Training(objective, False, _EVALUATIONS, share)
            tunings[name] = Tuning(objective.observations(is_first), share, near, has_start=not is_first)
            trainings[name].follow(tunings[name].stages(_FIRST if is_first else ()))
        finalists = sorted(tunings, key=lambda name: -tunings[name].value)[: _FINALISTS if is_first else None]
        for index, name in enumerate(finalists):
            tunings[name].deadline = deadline.share(1.0 / (len(finalists) - index))
            evaluations = tunings[name].observations.shape_evaluations
            last = tuple(PlannedStage(*pair, False) for pair in zip(_LAST_ROWS, evaluations, strict=False))
            trainings[name].follow(tunings[name].stages(last))
        for index, tuning in enumerate(tunings.values()):
            tuning.write(deadline.share(1.0 / (len(tunings) - index)))
        held = min((tuning.held for tuning in tunings.values()), key=len)
        scores = {name: _score(tuning.observations, tuning.near, held, _NEIGHBORS) for name, tuning in tunings.items()}
    except BaseException:
        for rollback in before:
            rollback.restore()
        raise
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


def neighbor_score(
    model: WeightSpaceGP,
    x: Tensor,
    y: Tensor,
    *,
    noise: Tensor | None = None,
    num_neighbors: int = 64,
    num_rows: int = 1000,
) -> float:
    r"""The mean log density of some rows, each given the rows nearest to it, with the exact kernel of a model.

    .. math:: \frac1n \sum_i \log p(y_i \mid y_{n(i)})

    By this kernels, parameters and numbers of neighbors can be compared. The model need not be conditioned.

    :param model: a model that :class:`Neighbors` takes.
    :param x: inputs (N, d), with targets y (N,) or (N, T), or labels (N,).
    :param noise: noise variances of the shape of y, for a model with fixed noise.
    :param num_neighbors: by how many rows each row is predicted.
    :param num_rows: how many rows are predicted, the same random ones in every call.
    :raises ValueError: for bad data, or a model that the strategy does not take.

    >>> import gpytorch, rfgp, torch
    >>> x = torch.linspace(-3, 3, 100, dtype=torch.float64).unsqueeze(-1)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel().double(), 16, input_dim=1, seed=0)
    >>> model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().double())
    >>> y = (3.0 * x).sin().squeeze(-1)
    >>> neighbor_score(model, x, y, num_neighbors=8) < neighbor_score(model, x, y, num_neighbors=32)
    True
    """
    x = checks.columns(x)
    checks.instance("model", model, WeightSpaceGP, "a WeightSpaceGP", "make one of the kernel")
    wanted = checks.positive_integer("num_neighbors", num_neighbors)
    count = checks.positive_integer("num_rows", num_rows)
    observations = NeighborObjective(model, x, y, noise).observations(initialize=False)
    return _score(observations, NearRows(x), random_rows(len(x), count).to(x.device), wanted)


def _score(observations: Observations, near: NearRows, rows: Tensor, num_neighbors: int) -> float:
    groups = near.nearest(observations.kernel, rows, num_neighbors, slack=0.0)
    return CompositeLikelihood(observations, groups, targets=1).score()
