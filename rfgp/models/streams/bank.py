"""Models of one stream at several lengthscales, weighted by their evidence."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from ..._support import checks
from ...inference.posterior.mixture import mixture
from ...likelihoods import ComplexNormal, MultivariateNormal
from ..spectral_evidence import learn_from_statistics
from ..weight_space.model import WeightSpaceGP
from .forgetting import Forgetting
from .window import SlidingWindow

_NEGLIGIBLE = 1e-9
"""Members of so little weight are left out of predictions."""


class LengthscaleBank:
    r"""Copies of a stream at several lengthscales, updated together and weighted by their evidence.

    .. math:: w_k \propto p(y | \ell_k), \qquad E f = \sum_k w_k m_k, \qquad
        \mathrm{Cov} f = \sum_k w_k \big(\Sigma_k + (m_k - E f)(m_k - E f)^\top\big)

    The evidence is that of the rows that a member still sees. After every window of rows the members of a
    :class:`SlidingWindow` move by one step towards the best, where that is the first or last. On a Fourier grid all
    members have one set of sums.

    :param stream: a :class:`SlidingWindow` or :class:`Forgetting` without rows; it is copied.
    :param factors: what the lengthscales of its kernel are multiplied by in every member, ascending.
    :param learn_every: learn noise variance, output scale and mean of every member whenever so many rows have come; for
        one output with one noise variance. Default: they stay.
    :raises ValueError: for a kernel without lengthscales, a stream with rows, or other factors.

    >>> import gpytorch, rfgp, torch
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=32, input_dim=1, seed=0)
    >>> model = rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
    >>> bank = LengthscaleBank(SlidingWindow(model, size=100)).update(torch.rand(20, 1), torch.rand(20))
    >>> bank.posterior(torch.rand(3, 1)).variance.shape
    torch.Size([3])
    """

    def __init__(
        self,
        stream: SlidingWindow | Forgetting,
        factors: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 4.0),
        learn_every: int | None = None,
    ) -> None:
        checks.instance("stream", stream, (SlidingWindow, Forgetting), "a stream", "such as SlidingWindow(model, 1000)")
        if not isinstance(factors, Sequence):
            raise ValueError(f"expected a list of factors, got {type(factors).__name__}; such as (0.5, 1, 2)")
        self.factors = [checks.positive("every factor", factor) for factor in factors]
        if len(self.factors) < 2 or sorted(set(self.factors)) != self.factors:
            raise ValueError(f"expected two or more ascending factors, got {list(factors)}; such as (0.5, 1, 2)")
        if stream.has_rows:
            raise ValueError("expected a stream without rows, got one that has begun; update the bank with its rows")
        self.learn_every = None if learn_every is None else checks.positive_integer("learn_every", learn_every)
        self._streams = [_scaled(stream, factor) for factor in self.factors]
        self._num_new = self._num_since_move = 0
        self._are_behind = False

    @property
    def streams(self) -> list[SlidingWindow | Forgetting]:
        """The streams of the members."""
        if self._are_behind:
            first: Any = self._streams[0]
            for stream in self._streams[1:]:
                stream.follow(first)
            self._are_behind = False
        return self._streams

    @property
    def models(self) -> list[WeightSpaceGP]:
        """The members."""
        return [stream.model for stream in self.streams]

    def update(self, x: Tensor, y: Tensor, noise: Tensor | None = None) -> Self:
        """Add rows to all members, as :meth:`rfgp.models.WeightSpaceGP.condition` takes them; the oldest leave or fade.

        :raises ValueError: for bad data; the bank stays as it was.
        """
        x = checks.columns(x)
        first, *others = self._streams
        first.update(x, y, noise)
        self._are_behind = first.model.sums_hold
        if not first.model.sums_hold:
            for stream in others:
                stream.update(x, y, noise)
        self._num_new, self._num_since_move = self._num_new + len(x), self._num_since_move + len(x)
        if self.learn_every is not None and self._num_new >= self.learn_every:
            self._learn()
            self._num_new = 0
        self._move()
        return self

    @property
    def log_evidences(self) -> Tensor:
        """The log evidence of every member, (K,), in float64."""
        with torch.no_grad():
            return torch.stack([model.log_marginal_likelihood() for model in self.models])

    @property
    def weights(self) -> Tensor:
        """The weights of the members, (K,), in float64."""
        return self.log_evidences.softmax(0)

    @property
    def best(self) -> WeightSpaceGP:
        """The member with the largest evidence."""
        return self.models[int(self.log_evidences.argmax())]

    def log_marginal_likelihood(self) -> Tensor:
        """The log evidence of the mixture, whose members have the same prior weight; a float64 scalar."""
        evidences = self.log_evidences
        return evidences.logsumexp(0) - torch.tensor(float(len(evidences))).log()

    def posterior(self, x: Tensor) -> MultivariateNormal | ComplexNormal:
        """The posterior of the function at inputs (..., N, d), with the moments of the mixture."""
        x = checks.columns(x)
        return self._mixture([model.posterior for model in self.models], x)

    def predictive(self, x: Tensor) -> MultivariateNormal | ComplexNormal:
        """The distribution of new observations at inputs, with the noise of every member, as :meth:`posterior`."""
        x = checks.columns(x)

        def observed(model: Any) -> Any:
            return lambda points: model.likelihood(model.posterior(points))

        return self._mixture([observed(model) for model in self.models], x)

    def _learn(self) -> None:
        """Learn noise variance, output scale and mean of every member."""
        for model in self.models:
            learn_from_statistics(model)

    def _mixture(self, makers: Sequence[Any], x: Tensor) -> MultivariateNormal | ComplexNormal:
        weights = self.weights.tolist()
        chosen = [(make, weight) for make, weight in zip(makers, weights, strict=True) if weight > _NEGLIGIBLE]
        total = sum(weight for _, weight in chosen)
        return mixture([make(x) for make, _ in chosen], [weight / total for _, weight in chosen])

    def _move(self) -> None:
        """Let a member beyond an edge take the place of the one at the other end, where the best is at that edge."""
        first = self._streams[0]
        if not isinstance(first, SlidingWindow) or self._num_since_move < first.size:
            return
        self._num_since_move = 0
        best = int(self.log_evidences.argmax())
        if 0 < best < len(self.factors) - 1:
            return
        beside = 1 if best == 0 else best - 1
        step = self.factors[best] / self.factors[beside]
        stream: Any = _scaled(self.streams[best], step)
        if not stream.model.sums_hold:
            stream.refit()
        streams, factors = list(self._streams), list(self.factors)
        place, gone = (0, -1) if best == 0 else (len(streams) - 1, 0)
        del streams[gone], factors[gone]
        streams.insert(place, stream)
        factors.insert(place, self.factors[best] * step)
        self._streams, self.factors = streams, factors


def _scaled(stream: Any, factor: float) -> Any:
    """A copy of a stream whose model has lengthscales that are larger by a factor."""
    result = copy.deepcopy(stream)
    kernels = [
        k for k in result.model.covar_module.modules() if "raw_lengthscale" in dict(k.named_parameters(recurse=False))
    ]
    if not kernels:
        raise ValueError("expected a kernel with lengthscales, got one without; a bank has nothing to vary")
    with torch.no_grad():
        for kernel in kernels:
            kernel.lengthscale = factor * kernel.lengthscale
    return result
