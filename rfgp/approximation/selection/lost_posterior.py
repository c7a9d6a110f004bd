"""A warning where the features of a trained model are too few for its posterior."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from ..._support import checks
from ...likelihoods.noise import output_noise
from ..feature_kernel import FeatureKernel
from .coverage import kl_reading
from .posterior import PosteriorLoss, posterior_loss

_LARGE = 0.5


def warn_of_lost_posterior(model: Any, x: Tensor, num_rows: int | None = None) -> PosteriorLoss | None:
    """The :class:`PosteriorLoss` of a model at its kernel and noise, with a warning from 0.5 per point on.

    :param model: a :class:`rfgp.models.WeightSpaceGP`, or an ExactGP with an approximated kernel.
    :param x: training inputs (n, d), all or some of them.
    :param num_rows: the number of all training rows; default: n.
    :returns: the loss; None for exact kernels, models with local blocks, and likelihoods without noise.

    >>> import gpytorch, rfgp, torch
    >>> x, likelihood = torch.rand(200, 2), gpytorch.likelihoods.GaussianLikelihood()
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 100, method="landmarks", train_inputs=x)
    >>> model = rfgp.models.WeightSpaceGP(kernel, likelihood).condition(x, x.sum(-1))
    >>> warn_of_lost_posterior(model, x).kl_per_point < 0.01
    True
    """
    checks.instance("model", model, torch.nn.Module, "a model", "such as a WeightSpaceGP")
    checks.inputs(checks.columns(x))
    if num_rows is not None:
        checks.positive_integer("num_rows", num_rows)
    loss = lost_posterior(model, x, num_rows)
    advice = advice_on_loss(loss)
    if advice is not None:
        warnings.warn(advice, stacklevel=2)
    return loss


def lost_posterior(model: Any, x: Tensor, num_rows: int | None = None) -> PosteriorLoss | None:
    """The same without a warning."""
    kernel, likelihood = getattr(model, "covar_module", None), getattr(model, "likelihood", None)
    if not isinstance(kernel, FeatureKernel) or getattr(model, "block_size", None) is not None:
        return None
    noise = _mean_noise(likelihood)
    if noise is None:
        return None
    try:
        return posterior_loss(kernel, x, noise=noise, num_rows=num_rows)
    except ValueError:  # such as a noise that is too small for any factor
        return None


def advice_on_loss(loss: PosteriorLoss | None) -> str | None:
    """What to do about a loss, where it is large."""
    if loss is None or loss.kl_per_point < _LARGE:
        return None
    return (
        f"{kl_reading(loss.kl_per_point)}, {100.0 * loss.coverage:.0f}% to be expected: take more features, or "
        "landmarks, or see rfgp.approximation.selection.rank_methods"
    )


def _mean_noise(likelihood: Any) -> float | None:
    """The mean variance of the noise; None where a likelihood has none."""
    has_noise = hasattr(likelihood, "num_tasks") or isinstance(getattr(likelihood, "noise", None), Tensor)
    mean = float(output_noise(likelihood).mean()) if has_noise else math.nan
    return mean if 0.0 < mean < math.inf else None
