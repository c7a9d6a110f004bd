"""A plain GPyTorch kernel on given features, whose matrices are dense: the reference of whatever uses structure."""

import gpytorch
import torch


class DenseFeatureKernel(gpytorch.kernels.Kernel):
    """The kernel of features with nothing of their structure; its parameters are those of the kernel with features."""

    def __init__(self, kernel):
        super().__init__()
        self.inner = kernel

    @property
    def batch_shape(self):
        return self.inner.batch_shape

    def real_features(self, x):
        features = self.inner.features(x)
        return torch.cat([features.real, features.imag], dim=-1) if features.is_complex() else features

    def forward(self, x1, x2, diag=False, **params):
        left, right = self.real_features(x1), self.real_features(x2)
        return (left * right).sum(-1) if diag else left @ right.mT

    def __getitem__(self, index):
        return DenseFeatureKernel(self.inner[index])

    def expand_batch(self, *sizes):
        return DenseFeatureKernel(self.inner.expand_batch(*sizes))
