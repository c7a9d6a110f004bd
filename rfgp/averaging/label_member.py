"""One classifier of a small table: a scale of the inputs, and draws of the parameters."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from .class_link import LatentMoments
from .input_scale import InputScale
from .label_kernel import LabelKernel, LatentMode
from .parameter_draws import Floats, most_probable, parameter_draws
from .table_kernel import fixed_matrices, has_lengthscales


class LabelMember:
    """Latent functions of the labels (C, N) of rows (N, d), one set for each draw of the parameters.

    :param signs: the labels, 1 or -1.
    :param scale: the scale of the inputs.
    """

    def __init__(self, x: Tensor, signs: Tensor, scale: InputScale) -> None:
        self.scale = scale
        self.has_lengthscales = has_lengthscales(len(scale.kept), len(x))
        self.kernel = self._kernel(x, signs)
        self.mode = self.kernel.start
        self.vectors = self.mode[None]
        self.slopes = self.kernel.last[None]

    def _kernel(self, x: Tensor, signs: Tensor) -> LabelKernel:
        scaled = self.scale(x)
        return LabelKernel(scaled, signs, fixed_matrices(scaled, scaled), self.has_lengthscales)

    def learn(self, start: Floats, count: int, num_proposals: int) -> None:
        """Find the most probable parameters, draw from their posterior, and find the latent functions of each draw."""
        self.mode = most_probable(self.kernel, start).vector
        self.vectors = parameter_draws(self.kernel, self.mode, count, num_proposals).vectors
        self._fit()

    def _fit(self) -> None:
        """Keep the slopes (S, C, N) at the latent functions of each draw, from which these follow."""
        kernel = self.kernel
        self.slopes = torch.stack([kernel.latent(kernel.covariance(vector)).slope for vector in self.vectors])

    def with_rows(self, x: Tensor, signs: Tensor) -> LabelMember:
        """The same scales and draws with other rows."""
        twin = copy.copy(self)
        twin.kernel = twin._kernel(x, signs)
        twin._fit()
        return twin

    def _posteriors(self) -> Iterator[tuple[Floats, LatentMode]]:
        """For each draw its vector, and the latent functions."""
        for vector, slopes in zip(self.vectors, self.slopes, strict=True):
            self.kernel.last = slopes
            yield vector, self.kernel.latent(self.kernel.covariance(vector))

    def left_out(self, groups: Sequence[Tensor] = ()) -> LatentMoments:
        r"""Latent functions at every row without what its label says; in a group, without what the labels of all say.

        .. math:: \Sigma_{-G} = (I - \Sigma_{GG} W_G)^{-1} \Sigma_{GG}, \qquad
            \mu_{-G} = \hat f_G - \Sigma_{-G} \nabla_G

        Here :math:`\Sigma` is the posterior covariance, and :math:`\nabla` and W are the slopes and curvatures.

        :param groups: the numbers of rows of each group; rows in none are left out alone.

        Source: Opper and Winther (2000); Vehtari, Mononen, Tolvanen, Sivula and Winther (2016), LA-LOO.
        """
        means, variances = [], []
        for _, latent in self._posteriors():
            half, curvature = latent.half_reduction(latent.kernel), latent.root.square()
            variance = latent.kernel.diagonal() - half.square().sum(-2)
            variance = variance / (1.0 - curvature * variance)
            mean = latent.mode - variance * latent.slope
            for rows in groups:
                some = half[:, :, rows]
                block = latent.kernel[rows][:, rows] - some.mT @ some
                system = torch.eye(len(rows), dtype=block.dtype) - block * curvature[:, None, rows]
                without = torch.linalg.solve(system, block)
                mean[:, rows] = latent.mode[:, rows] - (without @ latent.slope[:, rows, None]).squeeze(-1)
                variance[:, rows] = without.diagonal(dim1=-2, dim2=-1)
            means.append(mean)
            variances.append(variance.clamp_min(0.0))
        return LatentMoments(torch.stack(means), torch.stack(variances))

    def predict(self, x: Tensor) -> LatentMoments:
        """Latent functions at new inputs (M, d)."""
        kernel, new, means, variances = self.kernel, self.scale(x), [], []
        fixed = fixed_matrices(kernel.x, new)
        for vector, latent in self._posteriors():
            unit = kernel.unit(vector)
            cross = kernel.matrix(vector, kernel.x, new, fixed).mul_(unit)
            means.append(latent.slope @ cross)
            half = latent.half_reduction(cross)
            variances.append((unit * kernel.variance(vector, new) - half.square().sum(-2)).clamp_min(0.0))
        return LatentMoments(torch.stack(means), torch.stack(variances))

    def log_evidence(self) -> float:
        """The log probability of the labels at the most probable parameters, by Laplace."""
        return self.kernel.prior(self.mode)[0] - self.kernel.loss(self.mode, has_gradient=False)[0]
