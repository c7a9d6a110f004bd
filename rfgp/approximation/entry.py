"""The one new line: an exact kernel in, a kernel with random features out."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .._support import checks
from ..features import FeatureMap
from .approximated import approximated
from .selection.ranking import best_of_part, best_whole
from .width_warning import warn_of_width


def approximate(
    kernel: Kernel,
    num_features: int | None,
    *,
    input_dim: int | None = None,
    method: str | FeatureMap = "auto",
    train_inputs: Tensor | None = None,
    seed: int | None = None,
) -> Kernel:
    r"""A kernel that shares the parameters of an exact one and computes with random features, at O(N D^2).

    .. math:: k(x, y) \approx \phi(x) \phi(y)^H, \qquad \phi(x) \in R^D \text{ or } C^D

    Parts of a sum get equal shares of the features; products of sums are multiplied out.

    :param kernel: a kernel of a supported family, or ScaleKernel, AdditiveKernel, ProductKernel and MultitaskKernel of
        them; for one task per row a product with an IndexKernel.
    :param num_features: the number of columns D (of scalar columns, for several outputs); fewer come out where exact
        parts, such as a linear kernel, need fewer, or where the parts of a sum or product leave some over. None, for
        "fourier_grid", takes all frequencies of which N rows tell more than a fifth of what the prior does, up to 1,801
        features: :math:`N (2 \pi)^d S(\omega) > \sigma^2 V / 5` with the spectral density S and the volume V of the
        box. N is the number of ``train_inputs``, but at least 1,000, and the noise :math:`\sigma^2` a hundredth of the
        variance, until :func:`rfgp.fit` knows both.
    :param input_dim: the number of columns of the inputs; default: that of ``train_inputs``, ``active_dims`` or ARD,
        else of the first inputs the kernel sees.
    :param method: "auto", the name of a method, or a FeatureMap of ``num_features`` columns. "auto" takes
        :func:`rfgp.approximation.selection.best_method` with ``train_inputs``, else exact features for linear kernels,
        orthogonal Fourier features for shift-invariant ones and complex-to-real TensorSRHT for polynomials.
        "landmarks", "landmarks_greedy" and "landmarks_kmeans" suit any positive definite kernel of one output.
        "fourier_grid" suits kernels with a spectral density of up to three columns, and many rows: sums over them hold
        for all parameters. With more than 4,001 features of one output a :class:`rfgp.WeightSpaceGP` forms no matrix of
        them, up to some 10^5: its evidence and its variances are then estimates, whose errors it tells.
    :param train_inputs: the training inputs (N, d): what maps are chosen and optimized for, and whose distinct rows
        become landmarks. A Fourier grid serves the box around them, which its corners may give.
    :param seed: the seed of the weights; default: drawn from PyTorch's default generator.
    :returns: a kernel with ``features``, ``scalar_features``, ``output_factor`` and ``exact_kernel``.
    :raises ValueError: for a kernel without random features, an unknown method, or dimensions that disagree.

    >>> import gpytorch, torch
    >>> exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PolynomialKernel(power=3))
    >>> kernel = approximate(exact, num_features=128, input_dim=4, seed=0)
    >>> kernel(torch.randn(10, 4)).shape
    torch.Size([10, 10])
    """
    if torch.get_default_device().type == "meta":
        raise ValueError(
            "expected a device that holds numbers, got the meta device, on which no weights are drawn; make the "
            "kernel on the CPU, and move it then"
        )
    train_inputs = checks.columns(train_inputs)
    chosen = method
    if isinstance(method, str) and method == "auto" and train_inputs is not None and num_features is not None:
        chosen = best_whole(kernel, num_features, train_inputs)
    made = approximated(
        kernel,
        num_features,
        input_dim=input_dim,
        method=chosen,
        train_inputs=train_inputs,
        seed=seed,
        choose=best_of_part,
    )
    width = 0 if num_features is None else num_features
    if train_inputs is not None and width > train_inputs.shape[-2] and not made.has_output_factor:
        warn_of_width(made, f"num_features={width} exceeds the {train_inputs.shape[-2]} training rows")
    return made
