"""The normal distribution with the moments of a mixture of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from linear_operator.operators import ConstantMulLinearOperator, RootLinearOperator, SumLinearOperator
from torch import Tensor

from ..distributions import ComplexNormal, MultitaskMultivariateNormal, MultivariateNormal


def mixture(parts: Sequence[MultivariateNormal | ComplexNormal]) -> MultivariateNormal | ComplexNormal:
    r"""The normal distribution with mean and covariance of the mixture of J normal ones, each of weight 1/J.

    .. math:: m = \frac1J \sum_j m_j, \qquad
        \Sigma = \frac1J \sum_j \Sigma_j + \frac1J \sum_j (m_j - m)(m_j - m)^H

    Of covariances that are lazy only what is asked for is computed. Of proper complex parts the mixture is proper too:
    the pseudo-covariance of their means is not part of it, as it is where the parts are improper.

    :param parts: distributions of one kind and shape.

    Source: errata, identity 9.

    >>> zero, two = (MultivariateNormal(torch.full((1,), m), torch.eye(1)) for m in (0.0, 2.0))
    >>> mixture([zero, two]).mean, mixture([zero, two]).variance
    (tensor([1.]), tensor([2.]))
    """
    known: list[Any] = list(parts)
    first, share = parts[0], 1.0 / len(parts)
    means = torch.stack([part.mean for part in parts], dim=-1)
    mean = means.mean(-1)
    spread = (means - mean.unsqueeze(-1)) * share**0.5
    if isinstance(first, ComplexNormal):
        roots = [part.covariance_root * share**0.5 for part in known]
        diagonal, pseudo = (
            None if getattr(first, name) is None else share * sum(getattr(part, name) for part in known)
            for name in ("diagonal", "pseudo_diagonal")
        )
        root = torch.cat([*roots, spread], dim=-1)
        options: dict[str, Any] = {"diagonal": diagonal, "pseudo_diagonal": pseudo}
        return ComplexNormal(mean, covariance_root=root, has_real_weights=first.has_real_weights, **options)
    if isinstance(first, MultitaskMultivariateNormal):
        spread = spread.flatten(-3, -2)
    weight = mean.new_full((), share)
    shares = [WeightedCovariance(part.lazy_covariance_matrix, weight) for part in known]
    return type(first)(mean, MixtureCovariance(*shares, RootLinearOperator(spread)))


class WeightedCovariance(ConstantMulLinearOperator):
    """A covariance times a positive number, with samples as cheap as those of the covariance.

    :param base_linear_op: the covariance.
    :param constant: the number.
    """

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
