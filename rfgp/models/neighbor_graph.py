"""The graph Laplacian of nearest neighbours: what manifold regularisation needs."""

from __future__ import annotations

import importlib

import torch
from torch import Tensor

from .. import _checks


def knn_laplacian(
    x: Tensor, neighbours: int = 10, *, lengthscale: float | None = None, is_normalized: bool = False
) -> Tensor:
    r"""The Laplacian of the graph that joins every input to its nearest neighbours, as a sparse tensor.

    .. math:: L = D - W, \qquad W_{ij} = e^{-\|x_i - x_j\|^2 / (2 \ell^2)} \text{ or } 1 \text{ on edges}, \qquad
        D = \mathrm{diag}(W 1)

    There is an edge where one input is among the nearest of the other.
    :math:`f^\top L f = \tfrac12 \sum_{ij} W_{ij} (f_i - f_j)^2` grows with the number of edges.

    :param x: inputs (N, d).
    :param neighbours: the number of nearest neighbours, below N.
    :param lengthscale: :math:`\ell`; all weights are 1 where it is None.
    :param is_normalized: whether to return :math:`D^{-1/2} L D^{-1/2}` instead.
    :returns: (N, N), sparse COO, symmetric and positive semi-definite, of the dtype of x.
    :raises ValueError: for bad inputs or options.
    :raises ImportError: without scikit-learn.

    >>> knn_laplacian(torch.tensor([[0.0], [1.0], [3.0]]), 1).to_dense()
    tensor([[ 1., -1.,  0.],
            [-1.,  2., -1.],
            [ 0., -1.,  1.]])
    """
    _checks.finite(_checks.inputs(x))
    if x.dim() != 2 or len(x) < 2:
        raise ValueError(f"expected at least two inputs of shape (N, d), got {tuple(x.shape)}; pass all inputs at once")
    _checks.positive_integer("neighbours", neighbours, len(x) - 1)
    _checks.flag("is_normalized", is_normalized)
    if lengthscale is not None:
        lengthscale = _checks.positive("lengthscale", lengthscale, "a typical distance of neighbours is usual")
    try:
        found = importlib.import_module("sklearn.neighbors")
    except ImportError:
        raise ImportError(
            "expected scikit-learn for nearest neighbours, got an environment without; install the extra study, from "
            "a checkout by pip install '.[study]'"
        ) from None
    graph = found.kneighbors_graph(x.detach().cpu().numpy(), int(neighbours), mode="connectivity")
    graph = graph.maximum(graph.T).tocoo()
    rows, columns = (torch.from_numpy(part).long() for part in (graph.row, graph.col))
    exact = x.detach().cpu().double()
    distance = (exact[rows] - exact[columns]).square().sum(-1)
    weight = torch.ones_like(distance) if lengthscale is None else torch.exp(-0.5 * distance / lengthscale**2)
    degree = weight.new_zeros(len(x)).index_add(0, rows, weight)
    own = torch.arange(len(x))
    values = torch.cat([-weight, degree])
    index = torch.stack([torch.cat([rows, own]), torch.cat([columns, own])])
    if is_normalized:
        root = degree.clamp_min(torch.finfo(torch.float64).tiny).rsqrt()
        values = values * root[index[0]] * root[index[1]]
    size = (len(x), len(x))
    return torch.sparse_coo_tensor(index, values.to(x.dtype), size, check_invariants=True).coalesce().to(x.device)
