"""Partial derivatives of any order of Gaussian and Matern kernels, in closed form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor

SMOOTHNESS = {0.5: 0, 1.5: 1, 2.5: 2}
"""How often a process with a Matern kernel can be differentiated, by nu."""


def smoothness(kernel: Kernel) -> float:
    """How many derivatives the process of an RBFKernel or MaternKernel has in mean square; a ValueError for others."""
    if type(kernel) is RBFKernel:
        return math.inf
    if type(kernel) is MaternKernel:
        return SMOOTHNESS[kernel.nu]
    raise ValueError(
        f"expected an RBFKernel or a MaternKernel, whose derivatives are known, got {type(kernel).__name__}; use one, "
        "put a ScaleKernel around fields, and approximate the whole kernel last"
    )


def check_smoothness(kernel: Kernel, order: int, what: str) -> None:
    """Raise a ValueError where a process with the kernel does not have derivatives of an order."""
    if smoothness(kernel) < order:
        raise ValueError(
            f"expected a kernel with {order} derivative{'s' if order > 1 else ''} for {what}, got MaternKernel(nu="
            f"{kernel.nu}), whose process has {int(smoothness(kernel))}; use an RBFKernel or a larger nu"
        )


def partial_derivatives(
    kernel: Kernel, x1: Tensor, x2: Tensor, powers: Iterable[tuple[int, ...]], diag: bool = False
) -> dict[tuple[int, ...], Tensor]:
    r"""The derivatives :math:`\partial^\alpha k(\tau)` at differences, (..., N, M) or (..., N), by multi-index.

    With :math:`k = F(\|z\|^2)`, :math:`z = \tau / \ell`, they are sums over j with :math:`2 j_a \le \alpha_a` of

    .. math:: F^{(|\alpha| - |j|)}(\|z\|^2) \prod_a \frac{\alpha_a!}{j_a! (\alpha_a - 2 j_a)!}
        (2 z_a)^{\alpha_a - 2 j_a} \ell_a^{-\alpha_a}
    """
    lengthscale = kernel.lengthscale.expand(*kernel.lengthscale.shape[:-1], x1.shape[-1])
    left, right = x1 / lengthscale, x2 / lengthscale
    z = left - right if diag else left.unsqueeze(-2) - right.unsqueeze(-3)
    inverse = 1.0 / (lengthscale if diag else lengthscale.unsqueeze(-2))
    wanted = list(powers)
    orders = {sum(alpha) - sum(j) for alpha in wanted for j in _halves(alpha)}
    radial = _radial_derivatives(kernel, z.square().sum(-1), orders)
    result = {}
    for alpha in wanted:
        total = torch.zeros_like(z[..., 0])
        for j in _halves(alpha):
            term = radial[sum(alpha) - sum(j)]
            for a, (n, i) in enumerate(zip(alpha, j, strict=True)):
                if n:
                    number = math.factorial(n) // (math.factorial(i) * math.factorial(n - 2 * i))
                    term = term * (number * (2.0 * z[..., a]) ** (n - 2 * i))
            total = total + term
        for a, n in enumerate(alpha):
            total = total * inverse[..., a] ** n if n else total
        result[alpha] = total
    return result


def _halves(alpha: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    return itertools.product(*[range(n // 2 + 1) for n in alpha])


def _radial_derivatives(kernel: Kernel, square: Tensor, orders: Iterable[int]) -> dict[int, Tensor]:
    """The derivatives of F at the squared norm of z, by order."""
    if isinstance(kernel, RBFKernel):
        value = torch.exp(-0.5 * square)
        return {n: (-0.5) ** n * value for n in orders}
    nu = kernel.nu
    tiny = 1e-20 if square.dtype == torch.float32 else 1e-100
    r = (2.0 * nu * square).clamp_min(tiny).sqrt()
    constant = 2.0 ** (1.0 - nu) / math.gamma(nu)
    return {n: constant * (-nu) ** n * _bessel(nu - n, r) for n in orders}


def _bessel(mu: float, r: Tensor) -> Tensor:
    r"""The function :math:`r^\mu K_\mu(r)` for half an odd number mu, positive or negative."""
    p = round(abs(mu) - 0.5)
    terms = [math.factorial(p + k) / (math.factorial(k) * math.factorial(p - k)) / 2.0**k for k in range(p + 1)]
    polynomial = sum((c * r ** (p - k) for k, c in enumerate(terms)), torch.zeros_like(r))
    value = math.sqrt(0.5 * math.pi) * torch.exp(-r) * polynomial
    return value if mu > 0 else value * r ** (2.0 * mu)
