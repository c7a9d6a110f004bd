"""The posteriors of the weights of many classes, of which most have few rows."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from .class_factors import ClassFactors
from .factor import OutputFactor
from .posterior import GaussianPosterior, WeightPosterior


class ClassPosterior(GaussianPosterior):
    r"""Posteriors :math:`N(m_c, B_c^{-1})` of the weights of C classes, without a D x D matrix for each.

    Classes of few rows share one spectrum, the others (``dense``) have a Cholesky factor each. Without gradients.

    :param shared: the matrices of all classes.
    :param of_dense: the posteriors of the classes in ``dense``, if any.
    :param dense: the numbers of these classes, (P,).
    :param cross: :math:`\Phi^H S_c^{-1} y_c`, (C, D).

    Source: errata, identity 1.

    >>> import gpytorch, rfgp
    >>> labels = torch.arange(60) % 40
    >>> likelihood = rfgp.likelihoods.DirichletClassificationLikelihood(labels, learn_additional_noise=False)
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), 64, input_dim=2)
    >>> model = rfgp.WeightSpaceGP(kernel, likelihood).condition(torch.randn(60, 2), labels)
    >>> model.posterior(torch.randn(5, 2)).variance.shape
    torch.Size([40, 5])
    """

    @torch.no_grad()
    def __init__(self, shared: ClassFactors, of_dense: WeightPosterior | None, dense: Tensor, cross: Tensor) -> None:
        self.shared, self.of_dense, self.dense = shared, of_dense, dense
        self.mean = self.solve(cross.detach().unsqueeze(-1))

    @property
    def batch_shape(self) -> torch.Size:
        return self.mean.shape[:1]

    def _with_dense(self, values: Tensor, of_dense: Tensor) -> Tensor:
        """Values of all classes, with those of the dense ones in their places."""
        values[self.dense] = of_dense.to(values.dtype)
        return values

    @functools.cached_property
    def log_determinant(self) -> Tensor:
        values = self.shared.log_determinant.clone()
        return values if self.of_dense is None else self._with_dense(values, self.of_dense.log_determinant)

    def solve(self, rhs: Tensor) -> Tensor:
        values = self.shared.solve(rhs)
        return (
            values
            if self.of_dense is None
            else self._with_dense(values, self.of_dense.solve(rhs[self.dense].to(values.dtype)))
        )

    @property
    def is_ill_conditioned(self) -> bool:
        return self.shared.is_ill_conditioned or (self.of_dense is not None and self.of_dense.is_ill_conditioned)

    def covariance_root(self, features: Tensor) -> Tensor:
        """Roots (C, N, D) of the posterior covariances of the functions with features (N, D)."""
        values = self.shared.root(features)
        if self.of_dense is None:
            return values
        return self._with_dense(
            values, self.of_dense.covariance_root(features.expand(len(self.dense), *features.shape))
        )

    def function_root(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        return _scale(outputs) * self.covariance_root(scalar)

    def function_variance(self, scalar: Tensor, outputs: OutputFactor) -> Tensor:
        values = self.shared.variance(scalar)
        if self.of_dense is not None:
            one = OutputFactor.kronecker(values.new_ones(1, 1), scalar.shape[-1])
            values = self._with_dense(values, self.of_dense.function_variance(scalar, one))
        return _scale(outputs).squeeze(-1).square() * values

    def deviations(self, num_samples: int) -> Tensor:
        shape = (*self.mean.shape[:-1], num_samples)
        noise = torch.randn(shape, dtype=self.shared.basis.dtype, device=self.mean.device)
        values = self.shared.deviations(noise)
        return values if self.of_dense is None else self._with_dense(values, self.of_dense.deviations(num_samples))


def _scale(outputs: OutputFactor) -> Tensor:
    """The scales (C, 1, 1) or (1, 1) of the outputs."""
    if outputs.covariance_root is None:
        raise ValueError("expected the factor of output scales, got another; make it with OutputFactor.kronecker")
    return outputs.covariance_root
