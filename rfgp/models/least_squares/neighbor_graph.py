"""The graph Laplacian of nearest neighbors: what manifold regularization needs."""

from __future__ import annotations

import numpy as np
import scipy
import torch
from torch import Tensor

from ..._support import checks, optional


def knn_laplacian(
    x: Tensor, neighbors: int = 10, *, lengthscale: float | None = None, is_normalized: bool = False
) -> Tensor:
    r"""The sparse COO Laplacian (N, N) of the graph that joins every input to its nearest neighbors.

    .. math:: L = D - W, \qquad W_{ij} = e^{-\|x_i - x_j\|^2 / (2 \ell^2)} \text{ or } 1 \text{ on edges}, \qquad
        D = \mathrm{diag}(W 1)

    :param x: inputs (N, d).
    :param neighbors: the number of nearest neighbors, below N.
    :param lengthscale: :math:`\ell`; default: all weights are 1.
    :param is_normalized: whether to return :math:`D^{-1/2} L D^{-1/2}` instead.
    :raises ValueError: for bad inputs or options.
    :raises ImportError: without scikit-learn.

    >>> knn_laplacian(torch.tensor([[0.0], [1.0], [3.0]]), 1).to_dense()
    tensor([[ 1., -1.,  0.],
            [-1.,  2., -1.],
            [ 0., -1.,  1.]])
    """
    checks.finite(checks.inputs(x))
    if x.dim() != 2 or len(x) < 2:
        raise ValueError(f"expected at least two inputs of shape (N, d), got {tuple(x.shape)}; pass all inputs at once")
    neighbors = checks.positive_integer("neighbors", neighbors, len(x) - 1)
    checks.flag("is_normalized", is_normalized)
    if lengthscale is not None:
        lengthscale = checks.positive("lengthscale", lengthscale, "a typical distance of neighbors is usual")
    nearest = optional.require("sklearn.neighbors", "scikit-learn", "nearest neighbors")
    graph = nearest.kneighbors_graph(x.detach().cpu().numpy(), int(neighbors), mode="connectivity")
    graph = graph.maximum(graph.T).tocoo().astype(float)
    if lengthscale is not None:
        points = x.detach().cpu().double().numpy()
        graph.data = np.exp(-0.5 * np.square(points[graph.row] - points[graph.col]).sum(-1) / lengthscale**2)
    laplacian = scipy.sparse.csgraph.laplacian(graph, normed=is_normalized).tocoo()
    index = torch.from_numpy(np.stack([laplacian.row, laplacian.col])).long()
    values = torch.from_numpy(laplacian.data).to(x.dtype)
    return torch.sparse_coo_tensor(index, values, laplacian.shape, check_invariants=True).coalesce().to(x.device)
