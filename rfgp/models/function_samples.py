"""Functions drawn from a Gaussian process, as one callable."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import overload

import torch
from torch import Tensor

from .._support import checks
from ..inference.posterior.draws import FunctionDraws


class FunctionSamples:
    r"""S functions drawn from a Gaussian process with features, which can be evaluated anywhere.

    .. math:: f_s(x) = \mu(x) + \phi(x) w_s, \qquad s = 1, \ldots, S

    The functions are differentiable in x, and keep their values when the model changes. ``samples[i]`` is one of them,
    from (..., q, d) to (..., q); a slice is a FunctionSamples. Pickled ones have no gradients in the parameters.
    On a Fourier grid, points (q, d) of a regular grid cost little under ``torch.no_grad()``, for one transform serves
    all points that share coordinates.

    :param draws: the functions.
    :param num_functions: their number S.

    Source: T Eq. B.18 and B.19, with draws of the weights.

    >>> import gpytorch, rfgp
    >>> kernel = rfgp.approximate(gpytorch.kernels.RBFKernel(), num_features=32, input_dim=2, seed=0)
    >>> model = rfgp.models.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
    >>> samples = model.condition(torch.rand(100, 2), torch.rand(100)).sample_functions(20)
    >>> samples(torch.rand(3, 7, 2)).shape, samples[0](torch.rand(7, 2)).shape
    (torch.Size([20, 3, 7]), torch.Size([7]))
    """

    def __init__(self, draws: FunctionDraws, num_functions: int) -> None:
        self._draws, self.num_functions = draws, num_functions

    def __call__(self, x: Tensor) -> Tensor:
        """The values of all functions at inputs (..., q, d), complex for complex targets.

        :returns: (S, ..., q), (S, ..., q, T) for several outputs, or (S, ..., C, q) for C classes, of the dtype of x.
        :raises ValueError: for bad inputs.
        """
        x = checks.columns(x)
        return self._draws(x)

    def __len__(self) -> int:
        return self.num_functions

    @overload
    def __getitem__(self, index: int) -> Callable[[Tensor], Tensor]: ...

    @overload
    def __getitem__(self, index: slice) -> FunctionSamples: ...

    def __getitem__(self, index: int | slice) -> Callable[[Tensor], Tensor] | FunctionSamples:
        """One of the functions, or a slice of them; raises a ValueError for a slice without functions."""
        if not isinstance(index, slice):
            number = range(self.num_functions)[index]
            return functools.partial(_only, self._draws.take(torch.tensor([number])))
        numbers = range(self.num_functions)[index]
        if not numbers:
            raise ValueError(f"expected a slice with some of {self.num_functions} functions, got none; correct it")
        return FunctionSamples(self._draws.take(torch.tensor(numbers)), len(numbers))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_functions={self.num_functions})"


def _only(draws: FunctionDraws, x: Tensor) -> Tensor:
    """The values (..., q) of the one function that there is."""
    x = checks.columns(x)
    return draws(x).squeeze(0)
