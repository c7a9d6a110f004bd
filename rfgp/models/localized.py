"""Localized Maclaurin features: Gaussian processes with short lengthscales, centered where they predict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor
from torch.distributions import Normal

from .._support import checks
from ..approximation.power_series import exponential_series
from ..features import Maclaurin
from ..features.allocation import optimized_maclaurin
from ..inference import WeightPosterior
from ..kernels.checked import check_columns
from .record import Record, Recorded

_CHUNK_BYTES = 64 * 2**20


class LocalizedMaclaurinGP(Recorded["_Fitted"], torch.nn.Module):
    r"""Regression with a Gaussian kernel by Maclaurin features around C centers, one posterior for each, at O(C N D^2).

    .. math:: \hat k_c(x, y) = \phi(x - c)\, \phi(y - c)^\top, \qquad
        B_c = I + \Phi_c^\top \Phi_c / \sigma^2, \qquad
        f(x_*) \sim N\big(\phi_*^\top B_c^{-1} \Phi_c^\top y / \sigma^2,\; \phi_*^\top B_c^{-1} \phi_* +
        \max(0, k(x_*, x_*) - \|\phi_*\|^2)\big)

    Every input is predicted from its nearest center. The predictions are marginals: there is no joint posterior.

    :param kernel: an exact RBFKernel, or ScaleKernel around one.
    :param likelihood: a GaussianLikelihood.
    :param num_features: the number of columns D per center.
    :param threshold: the largest distance of a training input to its center, in lengthscales, for clustering.
    :param centers: the centers (C, d), in place of clustering.
    :param seed: the seed of the weights.
    :raises ValueError: for another kernel or likelihood, or a threshold that is not positive.

    Source: T Algorithm 7, Eq. 5.29 and 5.31, with the errata.

    >>> x = torch.linspace(-3, 3, 50)[:, None]
    >>> model = LocalizedMaclaurinGP(ScaleKernel(RBFKernel()), GaussianLikelihood(), num_features=10)
    >>> model.condition(x, torch.sin(x[:, 0])).posterior(x[:3]).variance.shape
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
        self.covar_module = kernel
        self.likelihood = likelihood
        self.num_features = checks.positive_integer("num_features", num_features)
        self.threshold = checks.positive("threshold", threshold, "2 is usual")
        self.seed = checks.seed(seed)
        if centers is not None:
            checks.finite(checks.inputs(centers, name="centers"), "centers")
        self._given_centers = None if centers is None else centers.clone()
        self.training_data: list[tuple[Tensor, Tensor, None]] = []

    @property
    def feature_map(self) -> Maclaurin:
        """The features that all centers share."""
        return self._known().feature_map

    @property
    def centers(self) -> Tensor:
        """The centers (C, d) in units of the lengthscale."""
        return self._known().centers

    def _state(self) -> dict[str, Tensor]:
        return dict(self.named_parameters())

    def condition(self, x: Tensor, y: Tensor) -> Self:
        """Compute the posterior of every center for inputs (N, d) and targets (N,), at the present parameters.

        :raises ValueError: for bad data; the model stays as it was.
        """
        x = checks.columns(x)
        checks.finite(checks.inputs(x))
        if x.dim() != 2:
            raise ValueError(f"expected training inputs of shape (N, d), got {tuple(x.shape)}; fit one model per batch")
        if checks.targets(y, x).is_complex():
            raise ValueError(f"expected real targets, got {y.dtype}; use WeightSpaceGP with ComplexGaussianLikelihood")
        check_columns(self.covar_module, x)
        with torch.no_grad():
            scaled = self._scaled(x)
            if self._given_centers is None:
                centers = farthest_point_centers(scaled, self.threshold)
            else:
                given = checks.finite(checks.inputs(self._given_centers, x.shape[-1], "centers"), "centers")
                centers = self._scaled(given.reshape(-1, given.shape[-1]))
            feature_map = self._make_map(scaled)
            posterior = self._posterior(feature_map, scaled, y, centers)
        self._fitted = _Fitted(feature_map, centers, posterior, Record(self._state()))
        self.training_data = [(x.detach().clone(), y.detach().clone(), None)]
        return self

    def saved_attributes(self, with_rows: bool) -> dict[str, Any]:
        """What :func:`rfgp.save` writes; raises a ValueError without the training rows, which far inputs need."""
        if self.training_data and not with_rows:
            raise ValueError(
                "expected with_rows=True for a LocalizedMaclaurinGP, got False; inputs far from its centers are "
                "predicted from the training rows, so that there are no predictions without them: save a WeightSpaceGP"
            )
        return dict(vars(self))

    @property
    def num_rows_kept(self) -> int:
        """The number of training rows, all of which predictions need."""
        return sum(len(x) for x, _, _ in self.training_data)

    def posterior(self, x: Tensor) -> Normal:
        """The marginal posterior of the function at inputs (N, d), in float64; far inputs cost a fit each.

        :raises ValueError: for bad inputs, before the first fit, or where parameters have changed since.
        """
        x = checks.columns(x)
        feature_map, centers, posterior, _ = self._known()
        (train, y, _), *_ = self.training_data
        checks.finite(checks.inputs(x, train.shape[-1]))
        if x.dim() != 2:
            raise ValueError(f"expected inputs of shape (N, d), got {tuple(x.shape)}; flatten the batch")
        with torch.no_grad():
            scaled = self._scaled(x)
            distance, nearest = torch.cdist(scaled, centers, compute_mode="donot_use_mm_for_euclid_dist").min(-1)
            features = self._features(feature_map, scaled - centers[nearest]).double()
            mean = (features * posterior.mean.squeeze(-1)[nearest]).sum(-1)
            variance = torch.empty_like(mean)
            for rows, places in _groups(nearest, len(centers)):
                padded = features.new_zeros(len(rows), int(places.max()) + 1, features.shape[-1])
                index = torch.searchsorted(rows, nearest[(inside := torch.isin(nearest, rows))])
                padded[index, places] = features[inside]
                white = torch.linalg.solve_triangular(posterior.factor[rows], padded.mT, upper=False)
                variance[inside] = white.square().sum(-2)[index, places]
            variance += (self._prior_variance() - features.square().sum(-1)).clamp_min(0.0)
            far = (distance > self.threshold).nonzero().squeeze(-1)
            at_center = self._features(feature_map, torch.zeros_like(scaled[:1])).double()
            for part in far.split(max(1, _CHUNK_BYTES // (8 * self.num_features**2))):
                around = self._posterior(feature_map, self._scaled(train), y, scaled[part])
                mean[part] = (at_center @ around.mean).flatten()
                variance[part] = around.covariance_root(at_center).square().sum(-1).flatten()
        return Normal(mean, variance.sqrt(), validate_args=False)

    def _posterior(self, feature_map: Maclaurin, scaled: Tensor, y: Tensor, centers: Tensor) -> WeightPosterior:
        """The posteriors of the weights around centers."""
        noise = float(self.likelihood.noise)
        sums = [self._sums(feature_map, scaled, y, part) for part in self._parts(centers, len(scaled))]
        grams, crosses = (torch.cat(parts) for parts in zip(*sums, strict=True))
        return WeightPosterior(grams / noise, crosses / noise)

    def _scaled(self, x: Tensor) -> Tensor:
        base = self.covar_module.base_kernel if isinstance(self.covar_module, ScaleKernel) else self.covar_module
        selected = x if base.active_dims is None else x.index_select(-1, base.active_dims)
        return (selected / base.lengthscale).detach().double()

    def _prior_variance(self) -> float:
        return float(self.covar_module.outputscale) if isinstance(self.covar_module, ScaleKernel) else 1.0

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
            dtype=torch.float64,
        ).to(scaled.device)

    def _parts(self, centers: Tensor, num_rows: int) -> Iterator[Tensor]:
        """Centers in chunks whose features of all rows together stay near 64 MiB."""
        yield from centers.split(max(1, _CHUNK_BYTES // (8 * num_rows * self.num_features)))

    def _sums(self, feature_map: Maclaurin, scaled: Tensor, y: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
        features = self._features(feature_map, scaled - centers[:, None, :])
        return features.mT @ features, features.mT @ y.double()[:, None]


class _Fitted(NamedTuple):
    """What a fit leaves behind."""

    feature_map: Maclaurin
    centers: Tensor
    posterior: WeightPosterior
    record: Record


def farthest_point_centers(x: Tensor, threshold: float) -> Tensor:
    """Centers (C, d) within a threshold of every input (N, d): the mean, then farthest inputs; T Algorithm 7."""
    centers = [x.mean(0)]
    distance = (x - centers[0]).norm(dim=-1)
    while float(distance.max()) >= threshold and len(centers) <= len(x):
        centers.append(x[distance.argmax()])
        distance = torch.minimum(distance, (x - centers[-1]).norm(dim=-1))
    return torch.stack(centers)


def _groups(nearest: Tensor, num_centers: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Centers in chunks with similar numbers of inputs, and the place of each input among those of its center."""
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
