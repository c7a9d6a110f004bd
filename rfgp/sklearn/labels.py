"""Which model predicts labels: near rows or features of Dirichlet classes, or Laplace's approximation of a few."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel, LinearKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood, SoftmaxLikelihood
from gpytorch.means import ConstantMean
from torch import Tensor

from ..approximation.entry import approximate
from ..averaging import AveragedGPClassifier
from ..models import LaplaceGP, WeightSpaceGP
from ..models.laplace.class_probabilities import class_probabilities
from ..training import FitSummary, fit
from ..training.exact_stages import Subset
from ..training.starts import random_rows
from ..training.strategies import Evidence, Strategy
from ..training.timing import Deadline
from .arrays import Floats
from .calibration import choose_alpha, choose_power, log_probabilities, tempered
from .comparison import LabeledRows, class_losses
from .latent import latent_moments
from .model_size import condition_seconds
from .near_predictions import OwnLabels

MOST_CLASSES = 5
"""A softmax of more classes costs too much."""
_WIDTH, _CLASS_WIDTH = 512, 256
_MOST_LINEAR_WEIGHTS, _MOST_LINEAR_ROWS = 500, 5000
_LINEAR_VARIANCE = 0.1
_EVALUATIONS, _TUNED_ROWS, _TUNED_WIDTH = 24, 1000, 128
_OUTPUTSCALE, _LENGTHSCALE, _ENOUGH_ROWS = 2.0, 1.5, 4000
_SMALLEST = 1e-12
_SHARE_OF_TIME = 0.5
_COMPARED_ROWS, _GAIN_OF_FEATURES = 10_000, 0.003
"""Rows of which near ones and features are compared, and the nats that features have to gain: they take longer."""
_FITS_OF_FEATURES = 4
"""How many times a fit the comparison takes, with predictions, fits to all rows and to those that were held out."""


class LabelModel(NamedTuple):
    """A model, what it says of rows that it has not seen, how it was trained, and near rows that predict for it."""

    model: Any
    logs: Floats
    power: float
    loss: float
    summary: FitSummary
    near: OwnLabels | None = None

    @classmethod
    def scored(
        cls, model: Any, logs: Floats, held: LabeledRows, summary: FitSummary, near: OwnLabels | None = None
    ) -> LabelModel:
        """With the power of its probabilities that held-out rows are most probable with, and their loss then."""
        power = choose_power(held, logs)
        return cls(model, logs, power, float(class_losses(held, tempered(logs, power)).mean()), summary, near)


class LaplaceOptions(NamedTuple):
    """What the user has said of a model: the method, the widest number of features, blocks and evaluations."""

    is_auto: bool
    method: str
    num_features: int | None
    block_size: int | None
    limit: int
    seed: int


def near_or_features(
    model: WeightSpaceGP,
    summary: FitSummary,
    x: Tensor,
    codes: Tensor,
    held: LabeledRows,
    deadline: Deadline,
) -> LabelModel:
    """The predictions of near rows, or those of features and blocks where these are better on held-out rows.

    Up to 10,000 random rows tell which of the two are. Features of classes that cannot have blocks take too long, and
    others may do so before a deadline.

    :param model: a model of Dirichlet classes with learned parameters, which is not conditioned.
    """

    def of_rows(some: Tensor) -> LabelModel:
        near = OwnLabels(model, x[some], codes[some])
        logs = log_class_probabilities(model, torch.from_numpy(held.x), near)
        return LabelModel.scored(model, logs, held, summary, near)

    def of_features(some: Tensor) -> LabelModel:
        other = copy.deepcopy(model)
        other.condition(x[some], codes[some])
        return LabelModel.scored(other, choose_alpha(other, held, deadline), held, summary)

    every, some = torch.arange(len(x)), random_rows(len(x), _COMPARED_ROWS)
    best = of_rows(every)
    if model.block_size is None:
        return best
    if deadline.is_set and not deadline.allows(_FITS_OF_FEATURES * condition_seconds(copy.deepcopy(model), x, codes)):
        return best
    near, features = of_rows(some) if len(some) < len(x) else best, of_features(some)
    if features.loss > near.loss - _GAIN_OF_FEATURES:
        return best
    return of_features(every) if len(some) < len(x) else features


def better_model(
    first: LabelModel,
    kernel: Kernel,
    x: Tensor,
    codes: Tensor,
    held: LabeledRows,
    options: LaplaceOptions,
    deadline: Deadline,
) -> LabelModel:
    """The model that predicts held-out rows best: the first one, or one by Laplace's approximation.

    :param kernel: the exact kernel of the first, from which the others begin.
    :param codes: the numbers of classes (N,), all of which occur.
    """
    best = first
    for model, strategy in _candidates(kernel, x, int(codes.max()) + 1, options):
        if not deadline.allows(first.summary.seconds):
            break
        try:
            with torch.enable_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                summary = _learn(model, x, laplace_targets(model, codes), strategy, options, deadline)
            other = LabelModel.scored(model, log_class_probabilities(model, torch.from_numpy(held.x)), held, summary)
        except ValueError:  # there is no mode
            continue
        if other.loss < best.loss:
            best = other
    return best


def _learn(
    model: LaplaceGP, x: Tensor, y: Tensor, strategy: Strategy, options: LaplaceOptions, deadline: Deadline
) -> FitSummary:
    """Learn the parameters of a model, and fit it to all rows; with landmarks for two classes by few of both."""
    narrow, some, kernel = model, slice(None), model.covar_module
    if kernel.has_residual_covariance and model.latent.num_functions == 1:
        some = slice(_TUNED_ROWS)
        width = min(_TUNED_WIDTH, kernel.num_scalar_features)
        few = approximate(kernel.exact_kernel, width, method="landmarks", train_inputs=x[some], seed=options.seed)
        narrow = LaplaceGP(few, model.likelihood, model.mean_module)
    summary = fit(
        narrow,
        x[some],
        y[some],
        strategy=strategy,
        time_limit=deadline.share(_SHARE_OF_TIME).limit,
        max_evaluations=min(options.limit, _EVALUATIONS),
        progress=False,
    )
    if narrow is not model:
        with torch.no_grad():
            model.condition(x, y)
    return summary


def _candidates(
    kernel: Kernel, x: Tensor, num_classes: int, options: LaplaceOptions
) -> Iterator[tuple[LaplaceGP, Strategy]]:
    """Models, and how they are trained: that of the kernel, to which "auto" adds a linear one, and a linear one."""
    own = _start(kernel, x)
    if options.is_auto:
        linear = LinearKernel().double()
        linear.variance = _LINEAR_VARIANCE
        own = own + linear
    most = _WIDTH if num_classes == 2 else _CLASS_WIDTH
    width = most if options.num_features is None else min(most, options.num_features)
    has_landmarks = options.method == "landmarks"
    width = min(width, len(x)) if has_landmarks else width + width % 2
    wide = approximate(own, width, method=options.method, train_inputs=x, seed=options.seed)
    is_small = len(x) <= _MOST_LINEAR_ROWS and x.shape[-1] * num_classes <= _MOST_LINEAR_WEIGHTS
    blocks = options.block_size if has_landmarks and num_classes == 2 else None
    strategy = Subset(initialize=False) if num_classes > 2 else Evidence(initialize=False)
    yield _laplace(wide, num_classes, blocks), strategy
    if options.is_auto and is_small:
        exact = approximate(LinearKernel().double(), x.shape[-1], method="linear", train_inputs=x, seed=options.seed)
        yield _laplace(exact, num_classes, None), Evidence()


def _start(kernel: Kernel, x: Tensor) -> Kernel:
    """A copy, with parameters for latent functions of labels; few rows tell no ratios of lengthscales beforehand."""
    own = copy.deepcopy(kernel)
    for part in own.modules():
        if isinstance(part, ScaleKernel):
            part.outputscale = torch.full_like(part.outputscale, _OUTPUTSCALE)
        if isinstance(part, Kernel) and part.has_lengthscale and len(x) < _ENOUGH_ROWS:
            part.lengthscale = torch.full_like(part.lengthscale, _LENGTHSCALE * x.shape[-1] ** 0.5)
    return own


def _laplace(kernel: Kernel, num_classes: int, block_size: int | None) -> LaplaceGP:
    if num_classes == 2:
        return LaplaceGP(kernel, BernoulliLikelihood(), ConstantMean().double(), block_size=block_size)
    likelihood = SoftmaxLikelihood(num_features=num_classes, num_classes=num_classes, mixing_weights=False)
    return LaplaceGP(kernel, likelihood.double(), ConstantMean(batch_shape=torch.Size([num_classes])).double())


def laplace_targets(model: LaplaceGP, codes: Tensor) -> Tensor:
    """The numbers (N,) of classes as the likelihood takes them."""
    return codes.double() if model.latent.num_functions == 1 else codes


@torch.no_grad()
def log_class_probabilities(model: Any, x: Tensor, near: OwnLabels | None = None) -> Floats:
    """The log probabilities (N, C) of classes at standardized inputs (N, d), before the temperature.

    :param near: what predicts in place of the features of the model.
    """
    if isinstance(model, AveragedGPClassifier):
        of_average: Floats = model.predictive(x).logits.numpy()
        return of_average
    if not isinstance(model, LaplaceGP):
        mean, variance = latent_moments(model, x, rows=near)
        return log_probabilities(mean.mT, variance.mT)
    if model.latent.num_functions > 1:
        probabilities = class_probabilities(model, x)
    else:
        latent = model.posterior(x)
        scaled = latent.mean / (1.0 + latent.variance).sqrt()
        probabilities = torch.special.ndtr(torch.stack([-scaled, scaled], dim=-1))
    logs: Floats = probabilities.clamp_min(_SMALLEST).log().numpy()
    return logs
