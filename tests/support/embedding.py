"""Complex normals as normals of real and imaginary parts, by the change of variables from [z, conj z]."""

import torch
from torch.distributions import MultivariateNormal


def parts(value):
    return torch.cat([value.real, value.imag], dim=-1)


def embedded_covariance(covariance, pseudo):
    """The covariance (..., 2 N, 2 N) of [Re z, Im z], as J A J^H with the augmented covariance A of [z, conj z]."""
    augmented = torch.cat([torch.cat([covariance, pseudo], -1), torch.cat([pseudo.conj(), covariance.conj()], -1)], -2)
    identity = torch.eye(covariance.shape[-1], dtype=covariance.dtype)
    change = 0.5 * torch.cat([torch.cat([identity, identity], -1), torch.cat([-1j * identity, 1j * identity], -1)], -2)
    return (change @ augmented @ change.mH).real


def embedded(distribution):
    """The normal distribution of [Re z, Im z]."""
    covariance = embedded_covariance(distribution.covariance_matrix, distribution.pseudo_covariance)
    return MultivariateNormal(parts(distribution.mean), covariance)
