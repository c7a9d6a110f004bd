"""A model of a stream whose old rows fade."""

from __future__ import annotations

from typing import Any, Self

from torch import Tensor

from ..._support import checks
from ..weight_space.model import WeightSpaceGP


class Forgetting:
    r"""A model whose rows have the weight :math:`\gamma^a` where a rows have come after their batch.

    It sees about :math:`1 / (1 - \gamma)` rows. The rows of one batch are of one age.

    :param model: the model, whose earlier data are forgotten at the first update.
    :param factor: :math:`\gamma`, above 0 and at most 1, for which no row is forgotten.
    :raises ValueError: for another factor.

    >>> import gpytorch, rfgp, torch
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=16, input_dim=1)
    >>> stream = Forgetting(rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood()), 0.99)
    >>> stream.update(torch.rand(10, 1), torch.rand(10)).model.statistics.num_rows
    10.0
    """

    def __init__(self, model: WeightSpaceGP, factor: float) -> None:
        checks.instance("model", model, WeightSpaceGP, "a WeightSpaceGP", "make one of a kernel and a likelihood")
        self.model, self.factor = model, checks.positive("factor", factor)
        if self.factor > 1.0:
            raise ValueError(f"expected a factor of at most 1, got {self.factor:g}; weights of rows fade")
        self._is_new = True

    @property
    def has_rows(self) -> bool:
        """Whether rows have come."""
        return not self._is_new

    def update(self, x: Tensor, y: Tensor, noise: Tensor | None = None) -> Self:
        """Let earlier rows fade, and add rows, as :meth:`rfgp.models.WeightSpaceGP.condition` takes them.

        :raises ValueError: for bad data, or stale statistics; the stream stays as it was.
        """
        x = checks.columns(x)
        checks.inputs(x)
        if self._is_new:
            batch: Any = (x, y, noise)
            self.model.condition([batch])
        else:
            self.model.slide((x, y, noise), factor=self.factor ** len(x))
        self._is_new = False
        return self

    def follow(self, other: Self) -> Self:
        """Have the rows of another stream, whose model has the same sums, as those of a Fourier grid are."""
        model = self.model
        vars(self).update(vars(other))
        self.model = model.take(other.model.sums, other.model.training_data)
        return self
