"""The dumbest correct regression of complex targets: augmented covariances of [y, conj y], dense, in complex128."""

import math

import torch


def prior(kernel, x, z):
    """The covariance and the pseudo-covariance of the function between x and z, from dense features."""
    left, right = (_complex_root(kernel, part) for part in (x, z))
    if not kernel.has_output_factor:
        return left @ right.mH, torch.zeros(len(x), len(z), dtype=left.dtype)
    return left @ right.mH, left @ right.mT


def _complex_root(kernel, x):
    features = kernel.features(x)
    scale = kernel.output_factor() if not kernel.has_output_factor else None
    if scale is not None:
        return (scale.reshape(()) * kernel.scalar_features(x)).to(torch.complex128)
    parts = features.unflatten(0, (len(x), 2))
    return torch.complex(parts[:, 0], parts[:, 1])


def augmented(covariance, pseudo):
    """The covariance of [z, conj z] with [z', conj z']."""
    return torch.cat([torch.cat([covariance, pseudo], -1), torch.cat([pseudo.conj(), covariance.conj()], -1)], -2)


class WidelyLinear:
    """Mean, covariance, pseudo-covariance and evidence of f given y = f + noise with known variances.

    :param kernel: a kernel with features, of one output or two.
    :param rows: inputs and complex residuals of the mean.
    :param noise: variances (N,).
    :param pseudo_noise: pseudo-variances (N,).
    """

    def __init__(self, kernel, rows, noise, pseudo_noise):
        self.kernel, (self.x, self.y) = kernel, rows
        covariance, pseudo = prior(kernel, self.x, self.x)
        noise = noise.to(torch.complex128)
        self.total = augmented(covariance + torch.diag(noise), pseudo + torch.diag(pseudo_noise))
        self.both = torch.cat([self.y, self.y.conj()])

    def evidence(self):
        quadratic = (self.both.conj() * torch.linalg.solve(self.total, self.both)).sum().real
        log_det = torch.linalg.slogdet(self.total)[1]
        return -0.5 * (quadratic + log_det) - len(self.y) * math.log(math.pi)

    def posterior(self, x):
        """Mean (M,), covariance and pseudo-covariance (M, M) at x."""
        cross = augmented(*prior(self.kernel, x, self.x))
        own = augmented(*prior(self.kernel, x, x))
        mean = cross @ torch.linalg.solve(self.total, self.both)
        left = own - cross @ torch.linalg.solve(self.total, cross.mH)
        size = len(x)
        return mean[:size], left[:size, :size], left[:size, size:]
