"""Localised Maclaurin features: Gaussian processes with short lengthscales, centred where they predict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor
from torch.distributions import Normal

from .. import _checks
from ..allocation import optimized_maclaurin
from ..features import Maclaurin
from ..kernels.families.stationary import exponential_series
from ..posterior import WeightPosterior

_CHUNK_BYTES = 64 * 2**20


class LocalizedMaclaurinGP(torch.nn.Module):
    r"""Regression with a Gaussian kernel by Maclaurin features around many centres, one posterior for each.

    .. math:: \hat k_c(x, y) = \phi(x - c)\, \phi(y - c)^\top, \qquad
        B_c = I + \Phi_c^\top \Phi_c / \sigma^2, \qquad
        f(x_*) \sim N\big(\phi_*^\top B_c^{-1} \Phi_c^\top y / \sigma^2,\; \phi_*^\top B_c^{-1} \phi_*\big)

    A truncated Maclaurin series of the Gaussian kernel vanishes away from the origin. The kernel is shift-invariant, so
    that the origin may be moved to a centre c close to where the model predicts; there the prior is kept, and the
    posterior does not collapse. Every input is predicted from its nearest centre, at O(C N D^2) for C centres. The
    method defines marginals, and no joint posterior. It pays for lengthscales that are short against the data; for
    longer ones a single centre, the mean of the training inputs, is better.

    :param kernel: an exact RBFKernel, or ScaleKernel around one.
    :param likelihood: a GaussianLikelihood.
    :param num_features: the number of columns D per centre.
    :param threshold: farthest-point clustering adds centres until every training input is within so many lengthscales
        of one.
    :param centers: the centres (C, d), in place of clustering.
    :param seed: the seed of the weights.
    :raises ValueError: for another kernel or likelihood, or a threshold that is not positive.

    Source: T Algorithm 7, Eq. 5.29 and 5.31, with the errata.

    >>> x = torch.linspace(-3, 3, 50)[:, None]
    >>> model = LocalizedMaclaurinGP(ScaleKernel(RBFKernel()), GaussianLikelihood(), num_features=10)
    >>> model.fit(x, torch.sin(x[:, 0])).posterior(x[:3]).variance.shape
    torch.Size([3])
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: GaussianLikelihood,
        num_features: int,
        *,
        threshold: float = 2.0,
        centers: Tensor | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        base = kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
        if not isinstance(base, RBFKernel) or kernel.batch_shape:
            raise ValueError(
                f"expected an RBFKernel without batches, or a ScaleKernel around one, got {type(base).__name__}; "
                "others do not have this series"
            )
        if type(likelihood) is not GaussianLikelihood:
            raise ValueError(f"expected a GaussianLikelihood, got {type(likelihood).__name__}; use WeightSpaceGP")
        if not threshold > 0:
            raise ValueError(f"expected a positive threshold, got {threshold}; 2 is usual")
        self.covar_module = kernel
        self.likelihood = likelihood
        self.num_features = _checks.positive_integer("num_features", num_features)
        self.threshold = threshold
        self.seed = seed
        self._given_centers = centers
        self.feature_map: Maclaurin | None = None
        self.centers: Tensor | None = None
        self._posterior: WeightPosterior | None = None
        self.training_data: list[tuple[Tensor, Tensor, None]] = []

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Choose centres and features for the data, and compute the posterior of every centre.

        Parameters are taken as they are: train them with an exact or another approximate model.

        :param x: training inputs (N, d).
        :param y: targets (N,).
        :returns: the model.
        :raises ValueError: for bad data; the model stays as it was.
        """
        _checks.finite(_checks.inputs(x))
        if x.dim() != 2:
            raise ValueError(f"expected training inputs of shape (N, d), got {tuple(x.shape)}; fit one model per batch")
        _checks.targets(y, x)
        with torch.no_grad():
            scaled = self._scaled(x)
            if self._given_centers is None:
                centers = farthest_point_centers(scaled, self.threshold)
            else:
                centers = self._scaled(_checks.finite(_checks.inputs(self._given_centers, x.shape[-1], "centers")))
            feature_map = self._make_map(scaled)
            noise = float(self.likelihood.noise)
            sums = [self._sums(feature_map, scaled, y, part) for part in self._parts(centers, len(x))]
            grams, crosses = (torch.cat(parts) for parts in zip(*sums, strict=True))
            posterior = WeightPosterior(grams / noise, crosses / noise)
        self.feature_map, self.centers, self._posterior = feature_map, centers, posterior
        self.training_data = [(x, y, None)]
        return self

    def posterior(self, x: Tensor) -> Normal:
        """The marginal posterior of the function at every input, without noise, from the nearest centre.

        :param x: inputs (N, d).
        :returns: independent normal distributions of shape (N,), in float64.
        :raises ValueError: for bad inputs, or before the first fit.
        """
        if self._posterior is None or self.centers is None or self.feature_map is None:
            raise ValueError("expected a fitted model, got one without data; call fit(x, y) first")
        _checks.finite(_checks.inputs(x, self.training_data[0][0].shape[-1]))
        with torch.no_grad():
            scaled = self._scaled(x)
            nearest = torch.cdist(scaled, self.centers).argmin(-1)
            features = self._features(self.feature_map, scaled - self.centers[nearest]).double()
            mean = (features * self._posterior.mean.squeeze(-1)[nearest]).sum(-1)
            variance = torch.empty_like(mean)
            for rows, places in _groups(nearest, len(self.centers)):
                padded = features.new_zeros(len(rows), int(places.max()) + 1, features.shape[-1])
                index = torch.searchsorted(rows, nearest[(own := torch.isin(nearest, rows))])
                padded[index, places] = features[own]
                white = torch.linalg.solve_triangular(self._posterior.factor[rows], padded.mT, upper=False)
                variance[own] = white.square().sum(-2)[index, places]
        return Normal(mean, variance.sqrt(), validate_args=False)

    def _scaled(self, x: Tensor) -> Tensor:
        base = self.covar_module.base_kernel if isinstance(self.covar_module, ScaleKernel) else self.covar_module
        selected = x if base.active_dims is None else x.index_select(-1, base.active_dims)
        return (selected / base.lengthscale).detach().double()

    def _features(self, feature_map: Maclaurin, scaled: Tensor) -> Tensor:
        features = feature_map(scaled)
        if isinstance(self.covar_module, ScaleKernel):
            features = features * self.covar_module.outputscale.detach().double().sqrt()
        return features

    def _make_map(self, scaled: Tensor) -> Maclaurin:
        return optimized_maclaurin(
            scaled - scaled.mean(0),
            self.num_features,
            exponential_series(),
            is_gaussian=True,
            form="real" if scaled.shape[-1] == 1 else "ctr",
            generator=torch.Generator().manual_seed(self.seed),
        ).double()

    def _parts(self, centers: Tensor, num_rows: int) -> Iterator[Tensor]:
        """Centres in chunks whose features of all rows together stay near 64 MiB."""
        yield from centers.split(max(1, _CHUNK_BYTES // (8 * num_rows * self.num_features)))

    def _sums(self, feature_map: Maclaurin, scaled: Tensor, y: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
        features = self._features(feature_map, scaled - centers[:, None, :])
        return features.mT @ features, features.mT @ y.double()[:, None]


def farthest_point_centers(x: Tensor, threshold: float) -> Tensor:
    """Centres such that every input is within a threshold of one: the mean, then the farthest input again and again.

    :param x: inputs (N, d).
    :param threshold: a distance.
    :returns: (C, d).

    Source: T Algorithm 7.
    """
    centers = [x.mean(0)]
    distance = (x - centers[0]).norm(dim=-1)
    while float(distance.max()) >= threshold and len(centers) <= len(x):
        centers.append(x[distance.argmax()])
        distance = torch.minimum(distance, (x - centers[-1]).norm(dim=-1))
    return torch.stack(centers)


def _groups(nearest: Tensor, num_centers: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Centres in chunks with similar numbers of inputs, and the place of each input among those of its centre."""
    counts = torch.bincount(nearest, minlength=num_centers)
    order = torch.argsort(counts, descending=True)
    order = order[counts[order] > 0]
    starts = torch.zeros_like(counts)
    by_center = torch.argsort(nearest, stable=True)
    starts[1:] = counts.cumsum(0)[:-1]
    place = torch.empty_like(nearest)
    place[by_center] = torch.arange(len(nearest), device=nearest.device) - starts[nearest[by_center]]
    for rows in order.split(64):
        chosen = rows.sort().values
        yield chosen, place[torch.isin(nearest, chosen)]
