"""Likelihoods of one target by several latent functions."""

from __future__ import annotations

from gpytorch.likelihoods import Likelihood


class SeveralFunctionsLikelihood(Likelihood):
    r"""A likelihood :math:`p(y \mid f_1, \dots, f_Q)` of a target by several functions.

    :class:`rfgp.models.LaplaceGP` takes it. A subclass has a ``forward`` that takes values (..., N, Q) of the functions
    and returns the distribution of N targets. It is one of PyTorch's with a Kullback-Leibler divergence to its own
    kind, such as a normal or a categorical one, and three times differentiable in the functions. Log densities need not
    be concave.

    :param num_functions: the number Q of functions.
    :param num_classes: the number of labels; default: targets are numbers.

    >>> import torch
    >>> class Normal(SeveralFunctionsLikelihood):
    ...     def forward(self, f, *args, **kwargs):
    ...         return torch.distributions.Normal(f[..., 0], (0.5 * f[..., 1]).exp())
    >>> Normal(num_functions=2)(torch.zeros(3, 2)).variance
    tensor([1., 1., 1.])
    """

    start_variance: float = 1.0
    """The prior variance of the functions that training begins with."""

    def __init__(self, num_functions: int, num_classes: int | None = None) -> None:
        super().__init__()
        self.num_functions, self.num_classes = num_functions, num_classes
