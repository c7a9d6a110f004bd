"""What linear operators make of fields and kernels, by automatic differentiation: the reference of their closed forms.

A field is a function of x (d,) to (T,), a kernel one of x and y (d,) to (T, T).
"""

from __future__ import annotations

import torch


def jacobian(field):
    """All first derivatives (T, d)."""
    return lambda x: torch.func.jacrev(field)(x)


def derivative(field, coordinates):
    if not coordinates:
        return field
    first, *others = coordinates
    return derivative(lambda x: jacobian(field)(x)[:, first], others)


def laplacian(field):
    def result(x):
        return jacobian(jacobian(field))(x).diagonal(dim1=-1, dim2=-2).sum(-1)

    return result


def curl(field):
    def result(x):
        j = jacobian(field)(x)
        return torch.stack([j[2, 1] - j[1, 2], j[0, 2] - j[2, 0], j[1, 0] - j[0, 1]])

    return result


def vorticity(field):
    def result(x):
        j = jacobian(field)(x)
        return (j[1, 0] - j[0, 1])[None]

    return result


def rotated_gradient(field):
    def result(x):
        ((along, across),) = jacobian(field)(x)
        return torch.stack([across, -along])

    return result


def applied(operator, field):
    """The field that an operator makes of a field."""
    kind = type(operator).__name__
    rules = {
        "Value": lambda: field,
        "Component": lambda: lambda x: field(x)[operator.index : operator.index + 1],
        "Partial": lambda: derivative(field, operator.coordinates),
        "Gradient": lambda: lambda x: jacobian(field)(x).flatten(),
        "Laplacian": lambda: laplacian(field),
        "Divergence": lambda: lambda x: jacobian(field)(x).diagonal().sum()[None],
        "Vorticity": lambda: vorticity(field),
        "Curl": lambda: curl(field),
        "RotatedGradient": lambda: rotated_gradient(field),
        "Stacked": lambda: lambda x: torch.cat([applied(part, field)(x) for part in operator.operators]),
        "_Sum": lambda: lambda x: applied(operator.left, field)(x) + applied(operator.right, field)(x),
        "_Multiple": lambda: lambda x: operator.number * applied(operator.operator, field)(x),
        "_Composition": lambda: applied(operator.outer, applied(operator.inner, field)),
    }
    return rules[kind]()


def observed(operator, kernel):
    """The kernel of what an operator makes of a process with a kernel: it acts on both arguments, one by one."""

    def columns(x, y):
        identity = torch.eye(len(kernel(x, y)), dtype=x.dtype)
        return torch.func.vmap(lambda e: applied(operator, lambda x: kernel(x, y) @ e)(x), out_dims=1)(identity)

    def result(x, y):
        identity = torch.eye(len(columns(x, y)), dtype=x.dtype)
        return torch.func.vmap(lambda e: applied(operator, lambda y: e @ columns(x, y))(y))(identity)

    return result


def scalar(kernel):
    """A GPyTorch RBFKernel or MaternKernel as a plain function of two points, with values (1, 1)."""
    lengthscale, nu = kernel.lengthscale.detach().squeeze(), getattr(kernel, "nu", None)

    def result(x, y):
        square = ((x - y) / lengthscale).square().sum()
        if nu is None:
            return torch.exp(-0.5 * square).reshape(1, 1)
        r = (2.0 * nu * square).sqrt()
        polynomial = {0.5: 1.0, 1.5: 1.0 + r, 2.5: 1.0 + r + r**2 / 3.0}[nu]
        return (polynomial * torch.exp(-r)).reshape(1, 1)

    return result


def curl_free(kernel):
    """The kernel of the gradient field of a process with a scalar kernel."""

    def result(x, y):
        return -torch.func.hessian(lambda tau: kernel(tau, torch.zeros_like(tau))[0, 0])(x - y)

    return result


def divergence_free(kernel):
    """The kernel of the divergence-free field of a process with a scalar kernel."""

    def result(x, y):
        hessian = torch.func.hessian(lambda tau: kernel(tau, torch.zeros_like(tau))[0, 0])(x - y)
        return hessian - hessian.trace() * torch.eye(len(x), dtype=x.dtype)

    return result


def matrix(kernel, x, y):
    """The matrix of a kernel, rows and columns interleaved."""
    blocks = torch.func.vmap(lambda a: torch.func.vmap(lambda b: kernel(a, b))(y))(x)
    return blocks.transpose(1, 2).flatten(2).flatten(0, 1)
