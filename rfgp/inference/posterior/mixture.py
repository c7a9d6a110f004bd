"""The normal distribution with the moments of a mixture of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from linear_operator.operators import ConstantMulLinearOperator, RootLinearOperator, SumLinearOperator
from torch import Tensor

from ...likelihoods import ComplexNormal, MultitaskMultivariateNormal, MultivariateNormal


def mixture(
    parts: Sequence[MultivariateNormal | ComplexNormal], weights: Sequence[float] | None = None
) -> MultivariateNormal | ComplexNormal:
    r"""The normal distribution with mean and covariance of the mixture of J normal ones with weights.

    .. math:: m = \sum_j w_j m_j, \qquad
        \Sigma = \sum_j w_j \Sigma_j + \sum_j w_j (m_j - m)(m_j - m)^H

    Lazy covariances stay lazy. The mixture of proper complex parts is taken as proper.

    :param weights: weights that sum to one; default: 1/J each.

    Source: errata, identity 9.
    """
    known: list[Any] = list(parts)
    first, shares = parts[0], [1.0 / len(parts)] * len(parts) if weights is None else list(weights)
    means = torch.stack([part.mean for part in parts], dim=-1)
    equal = means.new_full((len(parts),), shares[0])
    weight_of_part = equal if weights is None else torch.tensor(shares, dtype=means.dtype, device=means.device)
    mean = means.mean(-1) if weights is None else (means * weight_of_part).sum(-1)
    spread = (means - mean.unsqueeze(-1)) * weight_of_part.sqrt()
    if isinstance(first, ComplexNormal):
        pairs = list(zip(known, shares, strict=True))
        roots = [part.covariance_root * share**0.5 for part, share in pairs]
        diagonal, pseudo = (
            None if getattr(first, name) is None else sum(share * getattr(part, name) for part, share in pairs)
            for name in ("diagonal", "pseudo_diagonal")
        )
        root = torch.cat([*roots, spread], dim=-1)
        options: dict[str, Any] = {"diagonal": diagonal, "pseudo_diagonal": pseudo}
        return ComplexNormal(mean, covariance_root=root, has_real_weights=first.has_real_weights, **options)
    if isinstance(first, MultitaskMultivariateNormal):
        spread = spread.flatten(-3, -2)
    covariances = [
        WeightedCovariance(part.lazy_covariance_matrix, weight)
        for part, weight in zip(known, weight_of_part.to(mean.dtype), strict=True)
    ]
    return type(first)(mean, MixtureCovariance(*covariances, RootLinearOperator(spread)))


class WeightedCovariance(ConstantMulLinearOperator):
    """A covariance times a positive number, with samples as cheap as those of the covariance."""

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        draws: Tensor = self.base_linear_op.zero_mean_mvn_samples(num_samples)
        return draws * self.expanded_constant.sqrt().squeeze(-1)


class MixtureCovariance(SumLinearOperator):
    """A sum of covariances, of which each is sampled on its own."""

    def matmul(self, other: Any) -> Any:
        """The product with a matrix; gradients run through the posteriors too."""
        return (
            sum(part.matmul(other) for part in self.linear_ops) if isinstance(other, Tensor) else super().matmul(other)
        )

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        draws: Tensor = sum(part.zero_mean_mvn_samples(num_samples) for part in self.linear_ops)
        return draws
