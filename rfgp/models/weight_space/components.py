"""The posterior of the terms of a sum of kernels, such as trend and season, from the posterior of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from gpytorch.means import ZeroMean
from torch import Tensor

from ..._support import checks
from ...approximation.reference_tensor import reference_tensor
from ...inference import OutputFactor
from ...inference.posterior.covariance import ResidualCovariance
from ...inference.posterior.regression import Regression
from ...likelihoods import MultitaskMultivariateNormal
from .conditioned import conditioned_of

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel
    from .model import WeightSpaceGP


def component_posterior(model: WeightSpaceGP, x: Tensor) -> MultitaskMultivariateNormal:
    """See :meth:`WeightSpaceGP.component_posterior`."""
    conditioned_of(model)
    _check_model(model)
    checks.finite(checks.inputs(x).detach())
    checks.same_kind(x, reference_tensor(model.covar_module, x), "x", "the kernel")
    if x.dim() != 2:
        raise ValueError(f"expected inputs of shape (N, d) for components, got {tuple(x.shape)}; flatten the batch")
    known, weights = model.predictor.at_present(model)
    components: Any = Components(cast("FeatureKernel", known.kernel))
    found = Regression(components, ZeroMean(), known.noise).distribution(x, weights)
    return cast(MultitaskMultivariateNormal, found)


class Components:
    r"""The terms of a sum of kernels as outputs of its features: each has those that belong to it.

    :param kernel: a kernel of one output with real features, those of its terms side by side.
    :raises ValueError: for a kernel whose features do not belong to terms.
    """

    is_complex = False

    def __init__(self, kernel: FeatureKernel) -> None:
        self.kernel, self.terms = kernel, kernel.summands()
        widths = [term.num_scalar_features for term in self.terms]
        if len(widths) == 1 or sum(widths) != kernel.num_scalar_features:
            kind = type(kernel.exact_kernel).__name__
            raise ValueError(
                f"expected a sum of kernels, each with features of its own, got {kind}; pass an AdditiveKernel to "
                "rfgp.approximate, with output scales inside, and no landmarks or grid of the whole sum"
            )
        self._widths = torch.tensor(widths)

    def output_factor(self, operator: Any = None) -> OutputFactor:
        """Ones for the features of each term."""
        count = int(self._widths.sum())
        is_own = torch.eye(len(self.terms), dtype=torch.float64).repeat_interleave(self._widths, dim=0)
        device = reference_tensor(self.kernel).device
        return OutputFactor(torch.arange(count, device=device)[None], is_own[None].to(device), count)

    def scalar_features(self, x: Tensor) -> Tensor:
        """The features of all terms side by side."""
        return self.kernel.scalar_features(x)

    def residual_covariance(self, x: Tensor) -> ResidualCovariance | None:
        """What the features of each term lack of its variance."""
        residuals = [term.residual_variance(x) for term in self.terms]
        known = [x.new_zeros(x.shape[:-1]) if residual is None else residual for residual in residuals]
        if all(residual is None for residual in residuals):
            return None
        places = torch.eye(len(known), dtype=x.dtype, device=x.device)
        return ResidualCovariance(torch.stack(known, dim=-1), torch.diag_embed(places))


def _check_model(model: WeightSpaceGP) -> None:
    """Raise where a component is no sum of weights times features."""
    if model.num_outputs > 1 or model.noise.is_complex or model.noise.is_batched or model.covar_module.is_complex:
        raise ValueError(
            "expected one real output, and real features, for components, got others; take the :ctr form of the "
            "method, and a model for each output"
        )
    if model.block_size is not None or model.num_draws > 1:
        got = "several draws" if model.num_draws > 1 else "blocks"
        raise ValueError(
            f"expected a model without blocks, of one draw of the weights, for components, got {got}; make one with "
            "block_size=None and num_draws=1"
        )
