"""Parameters from some rows of a loader, before variational training from minibatches."""

from __future__ import annotations

import torch
from gpytorch.likelihoods import SoftmaxLikelihood
from gpytorch.means import ConstantMean
from torch import Tensor

from ..inference.expected_log_likelihood import is_deterministic
from ..kernels.width_warning import quiet
from ..likelihoods import DirichletClassificationLikelihood
from ..models import WeightSpaceGP, WeightSpaceVariationalGP
from .ascent import NoValueError
from .bound import BoundObjective
from .objectives import Objective, WeightSpaceObjective
from .run import Run
from .timing import NEVER, Deadline

_ROWS, _EVALUATIONS, _LARGEST_WIDTH = 1000, 60, 2048


def learn_from_first_rows(model: WeightSpaceVariationalGP, x: Tensor, y: Tensor, deadline: Deadline = NEVER) -> None:
    """Maximize the bound of at most 1,000 rows (N, d) and (N,) over all parameters but the weights.

    For a Softmax likelihood it is the evidence of the Dirichlet regressions that stand for the labels. Where neither
    can be evaluated nothing is learned.
    """
    objective = _objective(model, x[:_ROWS], y[:_ROWS])
    if objective is None:
        return
    try:
        with quiet():
            Run(objective, True, _EVALUATIONS, deadline=deadline).ascend()
    except NoValueError:
        return


def _objective(model: WeightSpaceVariationalGP, x: Tensor, y: Tensor) -> Objective | None:
    kernel, likelihood = model.covar_module, model.likelihood
    if kernel.num_scalar_features > _LARGEST_WIDTH or not any(p.requires_grad for p in kernel.parameters()):
        return None
    if is_deterministic(likelihood):
        return BoundObjective(model, x, y)
    has_own_classes = isinstance(likelihood, SoftmaxLikelihood) and likelihood.mixing_weights is None
    if not has_own_classes or kernel.is_complex or kernel.residual_variance(x[:1]) is not None:
        return None
    regressions = DirichletClassificationLikelihood(num_classes=likelihood.num_classes, dtype=x.dtype)
    classes = torch.Size([likelihood.num_classes])
    mean = ConstantMean(batch_shape=classes).to(x)
    return WeightSpaceObjective(WeightSpaceGP(kernel, regressions, mean), x, y, None)
