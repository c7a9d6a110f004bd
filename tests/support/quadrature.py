"""Sensitivities of any function by tensor products of quadrature nodes."""

from __future__ import annotations

import itertools
import string

import numpy as np
import torch

from rfgp.diagnostics.sensitivity import Empirical, Normal


def nodes(distribution, count=60):
    """Nodes and weights (count,) that integrate smooth functions of one input to rounding error."""
    if isinstance(distribution, Empirical):
        values = distribution.values
        return values, torch.full_like(values, 1.0 / len(values))
    if isinstance(distribution, Normal):
        x, w = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(count))
        return distribution.mean + distribution.std * x, w / w.sum()
    x, w = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(count))
    return distribution.low + 0.5 * (x + 1.0) * (distribution.high - distribution.low), 0.5 * w


class Quadrature:
    """Conditional means and their variances of functions with values (F, N)."""

    def __init__(self, function, inputs, count=60):
        rules = [nodes(known, count) for known in inputs]
        self.weights, self.dim = [w for _, w in rules], len(rules)
        shape = tuple(len(w) for w in self.weights)
        x = torch.stack(torch.meshgrid(*[x for x, _ in rules], indexing="ij"), dim=-1).reshape(-1, self.dim)
        self.x, self.values = x, function(x).reshape(-1, *shape)

    def mean(self, kept=(), values=None):
        """The mean over all inputs but some, (F, ...)."""
        axes = string.ascii_lowercase[: self.dim]
        others = [k for k in range(self.dim) if k not in kept]
        equation = ",".join(["z" + axes, *[axes[k] for k in others]]) + "->z" + "".join(axes[k] for k in kept)
        known = self.values if values is None else values
        return torch.einsum(equation, known, *[self.weights[k] for k in others])

    def variance(self, kept):
        """The variance of the conditional mean of some inputs, (F,)."""
        axes = string.ascii_lowercase[: len(kept)]
        deviation = self.mean(kept) - self.mean().reshape(-1, *[1] * len(kept))
        equation = ",".join(["z" + axes, *axes]) + "->z"
        return torch.einsum(equation, deviation.square(), *[self.weights[k] for k in kept])

    def indices(self):
        """First-order, total (F, d) and second-order (F, d, d) indices, with zeros on the diagonal."""
        every = tuple(range(self.dim))
        whole = self.variance(every)
        first = torch.stack([self.variance((k,)) for k in every], -1) / whole[:, None]
        rest = [self.variance(tuple(i for i in every if i != k)) for k in every]
        total = 1.0 - torch.stack(rest, -1) / whole[:, None]
        second = torch.zeros(len(whole), self.dim, self.dim)
        for k, other in itertools.combinations(every, 2):
            value = self.variance((k, other)) / whole - first[:, k] - first[:, other]
            second[:, k, other] = second[:, other, k] = value
        return first, total, second
