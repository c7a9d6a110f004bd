"""An exact kernel together with landmarks, whose values there are its features."""

from __future__ import annotations

from gpytorch.kernels import Kernel
from torch import Tensor

from .._support import checks
from .feature_kernel import FeatureKernel
from .landmarks import Landmarks, check_scalar
from .reference_tensor import reference_tensor


class LandmarkKernel(FeatureKernel):
    r"""An exact kernel with Nystrom features: its values at landmarks Z.

    .. math:: \phi(x) = k(x, Z) L^{-\top}, \qquad K_{ZZ} + \epsilon I = L L^\top

    All is computed in float64, with a jitter of 1e-8 of the mean of the diagonal or as little more as is needed.
    Landmarks are no random weights: ``resample`` leaves them.

    :param exact_kernel: any scalar positive definite kernel.
    :param landmarks: rows (M, d) of the columns that ``exact_kernel.active_dims`` select, in the dtype of the kernel;
        batches of kernels share them.
    :param learn: whether the landmarks are a parameter.
    :raises ValueError: for a kernel of several outputs, or landmarks that are not finite, or of another dtype.

    Source: Williams and Seeger (2001); Quinonero-Candela and Rasmussen (2005).

    >>> import gpytorch, torch
    >>> x = torch.rand(100, 2)
    >>> LandmarkKernel(gpytorch.kernels.MaternKernel(nu=1.5), x[:20]).features(x).shape
    torch.Size([100, 20])
    """

    maps: Landmarks

    def __init__(self, exact_kernel: Kernel, landmarks: Tensor, learn: bool = False) -> None:
        checks.instance("exact_kernel", exact_kernel, Kernel, "an exact GPyTorch kernel", "such as an RBFKernel()")
        rows = checks.finite(checks.inputs(landmarks, name="landmarks").detach(), "landmarks")
        checks.same_kind(rows, reference_tensor(exact_kernel, rows), "landmarks", "the kernel")
        dims = exact_kernel.active_dims
        if rows.dim() != 2 or (dims is not None and rows.shape[-1] != dims.numel()):
            columns = "d" if dims is None else str(dims.numel())
            raise ValueError(
                f"expected landmarks of shape (M, {columns}), got {tuple(rows.shape)}; pass rows of the columns that "
                "active_dims select"
            )
        check_scalar(exact_kernel, rows)
        super().__init__(exact_kernel, Landmarks(rows, learn))

    @property
    def landmarks(self) -> Tensor:
        """The landmarks, (M, d)."""
        return self.maps.landmarks
