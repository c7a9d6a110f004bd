"""An exact kernel together with landmarks, whose values there are its features."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .._support import checks
from ..inference.posterior.covariance import ResidualCovariance
from ..kernels.checked import CheckedKernel
from ..kernels.operator_valued import without_dims
from .exact_parameters import ExactParameters
from .kept_value import KeptValue
from .random_feature_kernel import KernelMoments, RandomFeatureKernel
from .reference_tensor import reference_tensor
from .registry import described
from .values import accurate_values

_JITTERS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)


class LandmarkKernel(ExactParameters, RandomFeatureKernel):
    r"""An exact kernel with Nystrom features: its values at landmarks Z.

    .. math:: \phi(x) = k(x, Z) L^{-\top}, \qquad K_{ZZ} + \epsilon I = L L^\top

    All is computed in float64, with a jitter of 1e-8 of the mean of the diagonal or as little more as is needed.
    Landmarks are no random weights: ``resample`` leaves them.

    :param base_kernel: any scalar positive definite kernel.
    :param landmarks: rows (M, d) of the columns that ``base_kernel.active_dims`` select, in the dtype of the kernel;
        batches of kernels share them.
    :param learn: whether the landmarks are a parameter.
    :raises ValueError: for a kernel of several outputs, or landmarks that are not finite, or of another dtype.

    Source: Williams and Seeger (2001); Quinonero-Candela and Rasmussen (2005).

    >>> import gpytorch
    >>> x = torch.rand(100, 2)
    >>> LandmarkKernel(gpytorch.kernels.MaternKernel(nu=1.5), x[:20]).features(x).shape
    torch.Size([100, 20])
    """

    landmarks: Tensor

    def __init__(self, base_kernel: Kernel, landmarks: Tensor, learn: bool = False) -> None:
        checks.instance("base_kernel", base_kernel, Kernel, "an exact GPyTorch kernel", "such as an RBFKernel()")
        rows = checks.finite(checks.inputs(landmarks, name="landmarks").detach(), "landmarks")
        checks.same_kind(rows, reference_tensor(base_kernel, rows), "landmarks", "the kernel")
        dims = base_kernel.active_dims
        if rows.dim() != 2 or (dims is not None and rows.shape[-1] != dims.numel()):
            columns = "d" if dims is None else str(dims.numel())
            raise ValueError(
                f"expected landmarks of shape (M, {columns}), got {tuple(rows.shape)}; pass rows of the columns that "
                "active_dims select"
            )
        check_scalar(base_kernel, rows)
        super().__init__(active_dims=dims)
        self.base_kernel = base_kernel
        if checks.flag("learn", learn):
            self.register_parameter("landmarks", torch.nn.Parameter(rows.clone()))
        else:
            self.register_buffer("landmarks", rows.clone())
        self._factor = KeptValue()

    @property
    def num_scalar_features(self) -> int:
        return self.landmarks.shape[-2]

    @property
    def is_complex(self) -> bool:
        return False

    @property
    def input_dim(self) -> int:
        return self.landmarks.shape[-1]

    @property
    def has_residual_covariance(self) -> bool:
        return True

    def active_features(self, x: Tensor) -> Tensor:
        return self._accurate_features(x).to(x.dtype)

    def active_residual(self, x: Tensor) -> ResidualCovariance:
        missing = accurate_values(self.base_kernel, x, x, diag=True) - self._accurate_features(x).square().sum(-1)
        missing = missing.to(x.dtype).clamp_min(torch.finfo(x.dtype).tiny)  # not zero, where its root has no gradient
        return ResidualCovariance.of_variance(missing)

    def active_moments(self, x: Tensor, y: Tensor) -> KernelMoments:
        mean = self.active_features(x) @ self.active_features(y).mT
        return KernelMoments(mean, torch.zeros_like(mean))

    def _accurate_features(self, x: Tensor) -> Tensor:
        """The features in float64."""
        checks.inputs(x, self.input_dim)
        factor = self.factor()
        values = accurate_values(self.base_kernel, self.landmarks, x)
        return torch.linalg.solve_triangular(factor, values, upper=False).mT

    def factor(self) -> Tensor:
        """The Cholesky factor L of the kernel at the landmarks, (..., M, M), in float64."""
        return self._factor.of(self._tensors(), self._compute_factor)

    def _tensors(self) -> list[Tensor]:
        return [self.landmarks, *self.base_kernel.parameters(), *self.base_kernel.buffers()]

    def _compute_factor(self) -> Tensor:
        """The Cholesky factor of the kernel at the landmarks, (..., M, M), with the smallest jitter that it needs."""
        matrix = accurate_values(self.base_kernel, self.landmarks, self.landmarks)
        scale = matrix.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        for jitter in _JITTERS:
            factor, info = torch.linalg.cholesky_ex(matrix + jitter * scale * identity)
            if not bool(info.any()) and bool(torch.isfinite(factor.detach()).all()):
                return factor
        raise ValueError(
            f"expected a positive definite {type(self.base_kernel).__name__}, got one whose matrix of the landmarks is "
            "not, or not finite; correct the kernel, its parameters or the landmarks"
        )

    def _with_base(self, base_kernel: Kernel) -> LandmarkKernel:
        base_kernel.active_dims = self.active_dims
        twin = LandmarkKernel(base_kernel, self.landmarks, isinstance(self.landmarks, torch.nn.Parameter))
        twin.landmarks = self.landmarks
        return twin.train(self.training)

    def __getitem__(self, index: Any) -> LandmarkKernel:
        return self._with_base(without_dims(self.base_kernel)[index]) if self.batch_shape else self

    def expand_batch(self, *sizes: Any) -> LandmarkKernel:
        return self._with_base(without_dims(self.base_kernel).expand_batch(*sizes))

    @property
    def description(self) -> str:
        return f"{type(self).__name__}({described(self.base_kernel)})"


def check_scalar(kernel: Kernel, x: Tensor) -> None:
    """Raise a ValueError for a kernel of several outputs, or one whose values are not those of ``forward``."""
    name = type(kernel).__name__
    if kernel.num_outputs_per_input(x, x) != 1:
        raise ValueError(
            f"expected a kernel of one output for landmarks, got {name}, which has several; use landmarks inside a "
            "MultitaskKernel, or Fourier features"
        )
    between = type(kernel).__mro__[: type(kernel).__mro__.index(Kernel)]
    if any("__call__" in vars(cls) for cls in between if cls not in (CheckedKernel, RandomFeatureKernel)):
        raise ValueError(
            f"expected a kernel with the values of its forward(x1, x2) for landmarks, got {name}, which overrides "
            "__call__; override forward"
        )
