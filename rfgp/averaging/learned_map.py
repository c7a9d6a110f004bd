"""A linear map of the inputs, along whose axes a function varies, learned by rows given those near them."""

from __future__ import annotations

import numpy as np
import scipy
import torch
from torch import Tensor

from ..linalg.last_rows import RowGroups, StationaryRows, log_density
from ..linalg.nearest import NearestRows
from ..linalg.stationary import Profile
from .target_kernel import Floats

_NEIGHBORS, _ROUNDS, _STEPS = 32, 2, 40
"""How many rows predict one, how often these are searched, and the steps of each search for the map."""
_WIDTH = 0.3
"""Standard deviation of the prior of weights, in mean inverse lengthscales."""
_NO_DENSITY = 1e10
"""What stands for the loss of parameters that have none."""


def learned_map(x: Tensor, y: Tensor, inverse_lengths: Tensor, scale: float, noise: float) -> Tensor:
    r"""The principal axes :math:`S V^\top` of weights :math:`W = U S V^\top` of a kernel of mapped inputs.

    .. math:: \hat W = \arg\max_W \sum_i \log p(y_i \mid y_{n(i)}, W) - \frac{|W - W_0|^2}{2 (0.3\,\bar a)^2}, \qquad
        k(x, z) = s\, \kappa(|W (x - z)|)

    Rows n(i) are the 32 nearest to row i, and :math:`\kappa` is the Matern-5/2 kernel, which a rotation of W does not
    change. The search begins at inverse lengthscales a, with :math:`W_0 = \mathrm{diag}(a)`.

    :param x: standardized inputs (N, d), in float64.
    :param y: targets (N,) of variance one.
    :param inverse_lengths: those of the inputs, (d,).
    :param scale: the variance s of the function at the start.
    :param noise: the noise variance at the start.
    :returns: weights (d, d), the most important axis first.

    Source: Vivarelli and Williams (1998), linear maps; Vecchia (1988), the density.
    """
    dim, start = x.shape[1], torch.diag(inverse_lengths)
    width, one = _WIDTH * inverse_lengths.mean(), torch.ones((), dtype=torch.float64)
    vector = np.r_[start.numpy().ravel(), np.log([scale, noise])]
    for _ in range(_ROUNDS):
        groups = _groups(x @ _weights(torch.from_numpy(vector), dim).mT)

        @torch.enable_grad()
        def loss(values: Floats, groups: RowGroups = groups) -> tuple[float, Floats]:
            parameters = torch.from_numpy(values).requires_grad_()
            weights, (variance, of_noise) = _weights(parameters, dim), parameters[dim**2 :].exp()
            noises = of_noise.expand(len(y), 1)
            rows = StationaryRows(x @ weights.mT, y.unsqueeze(-1), noises, variance.reshape(1), one, Profile.MATERN_5_2)
            try:
                total = 0.5 * ((weights - start) / width).square().sum() - log_density(rows, groups)
            except ValueError:
                return _NO_DENSITY, np.zeros_like(values)
            return total.item(), torch.autograd.grad(total, parameters)[0].numpy()

        options = {"maxiter": _STEPS, "maxfun": 2 * _STEPS}
        vector = scipy.optimize.minimize(loss, vector, jac=True, method="L-BFGS-B", options=options).x
    _, sizes, axes = torch.linalg.svd(_weights(torch.from_numpy(vector), dim))
    return sizes.unsqueeze(-1) * axes


def _weights(vector: Tensor, dim: int) -> Tensor:
    return vector[: dim**2].reshape(dim, dim)


def _groups(points: Tensor) -> RowGroups:
    """The rows nearest to each of points (N, d), and last the row itself."""
    own = torch.arange(len(points)).unsqueeze(-1)
    near = NearestRows(points).query(points, min(_NEIGHBORS + 1, len(points)))
    is_own = (near == own).to(torch.uint8)
    order = is_own.argsort(dim=-1, stable=True)[:, : near.shape[-1] - 1]
    return RowGroups(torch.cat([near.gather(-1, order), own], dim=-1))
