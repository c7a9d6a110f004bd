"""Maclaurin features whose degrees are drawn at random."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from ..._support import checks
from ..maclaurin import Maclaurin
from ..sketch_registry import FORMS
from .terms import series_coefficients, sketches


def random_maclaurin(
    input_dim: int,
    num_features: int,
    coefficients: Tensor,
    *,
    ratio: float = 2.0,
    is_gaussian: bool = False,
    sketch: str = "rademacher",
    form: str = "real",
    generator: Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Maclaurin:
    r"""Maclaurin features with random degrees, drawn from :math:`\mu(n) \propto c^{-(n + 1)}` where a_n > 0.

    .. math:: \phi(x) = \Big[\sqrt{\tfrac{D_n a_n}{D \mu(n)}}\, \phi_n(x)\Big]_n, \qquad D_n = \#\{\ell: n_\ell = n\}

    Fewer than D columns may come out, since all copies of the constant are one.

    :param num_features: the number D of degrees drawn; D/2 of them stand for two columns each with "ctr".
    :param coefficients: a_0, a_1, ..., non-negative, the last of degree 20 at most.
    :param ratio: c > 1.
    :param is_gaussian: for the Gaussian kernel, whose coefficients are 1/n!.
    :param sketch: the name of a polynomial sketch.
    :param form: "real", "complex" or "ctr".

    Source: T 5.2, Eq. 5.6 to 5.9 (Kar and Karnick, 2012).

    >>> random_maclaurin(4, 64, torch.tensor([1.0, 1.0, 0.5]))(torch.randn(10, 4)).shape[0]
    10
    """
    values = series_coefficients(coefficients)
    if not 1.0 < checks.number(ratio) < math.inf:
        raise ValueError(f"expected a finite ratio above 1, got {ratio!r}; 2 is usual")
    checks.generator(generator)
    checks.choice("form", form, FORMS)
    unit = 2 if form == "ctr" else 1
    num_draws = checks.positive_integer("num_features", num_features) // unit
    if num_draws == 0:
        raise ValueError(f"expected at least {unit} features for {form}, got {num_features}; use more")
    probabilities = torch.where(values > 0, ratio ** -(torch.arange(len(values), dtype=torch.float64) + 1.0), 0.0)
    probabilities = probabilities / probabilities.sum()
    counts = torch.zeros(len(values), dtype=torch.int64)
    while not bool(counts[1:].any()):
        drawn = torch.multinomial(probabilities, num_draws, replacement=True, generator=generator)
        counts = torch.bincount(drawn, minlength=len(values))
    only_constants = probabilities[0] ** num_draws
    expected = num_draws * probabilities
    expected[0] -= num_draws * only_constants
    columns = {n: unit * int(counts[n]) for n in range(1, len(values)) if counts[n]}
    maps = sketches(columns, input_dim, sketch, form, generator, dtype, real_linear=False)
    importance = torch.where(counts > 0, counts * (1.0 - only_constants) / expected, 0.0)
    return Maclaurin(maps, values, is_gaussian, importance, dtype=dtype)
