"""The observations of a model, in the parts in which they came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from torch import Tensor

from ..likelihoods import MultitaskFixedNoiseGaussianLikelihood


class ObservedPart(NamedTuple):
    """Observations y (..., n, m), transformed, that came together, at inputs x (..., n, d), not transformed."""

    x: Tensor
    y: Tensor
    noise: Tensor | None

    def mapped(self, of_x: Callable[[Tensor], Tensor], of_y: Callable[[Tensor], Tensor]) -> ObservedPart:
        """The same with functions of inputs and of outputs."""
        return ObservedPart(of_x(self.x), of_y(self.y), None if self.noise is None else of_y(self.noise))


class Observed:
    """All observations of a model."""

    def __init__(self, parts: Sequence[ObservedPart] = (), batch_shape: torch.Size = torch.Size()) -> None:  # noqa: B008
        self.parts, self.batch_shape = tuple(parts), batch_shape

    @property
    def inputs(self) -> Tensor:
        """All inputs, (..., N, d)."""
        return self._joined([part.x for part in self.parts])

    @property
    def targets(self) -> Tensor:
        """All transformed observations, (..., N, m)."""
        return self._joined([part.y for part in self.parts])

    @property
    def noise(self) -> Tensor | None:
        """Their noise variances, (..., N, m); None where some are not given."""
        variances = [part.noise for part in self.parts if part.noise is not None]
        return None if len(variances) < len(self.parts) else self._joined(variances)

    def plus(self, part: ObservedPart) -> Observed:
        """With another part."""
        shapes = [values.shape[:-2] for values in part if values is not None]
        return Observed([*self.parts, part], torch.broadcast_shapes(self.batch_shape, *shapes))

    def mapped(self, of_x: Callable[[Tensor], Tensor], of_y: Callable[[Tensor], Tensor]) -> Observed:
        """The same with functions of all inputs and of all outputs."""
        return Observed([part.mapped(of_x, of_y) for part in self.parts], self.batch_shape)

    def mean_noise(self, likelihood: Any, outputs: Sequence[int]) -> Tensor:
        """The mean of the given noise variances, (..., 1, m); without rows that of the likelihood's, by output."""
        if self.parts and self.noise is not None:
            return self.noise.mean(dim=-2, keepdim=True)
        fixed: Tensor = likelihood.noise_covar.noise
        num_outputs = getattr(likelihood, "num_tasks", 1)
        return fixed.reshape(-1, num_outputs).mean(dim=0, keepdim=True)[:, list(outputs)]

    def rows(self, gp: Any, num_outputs: int, transform: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Transformed inputs, targets and noise variances as a WeightSpaceGP takes them."""
        x, y = self.inputs, self.targets
        noise = self.noise if has_given_noise(gp.likelihood) else None
        if x.dim() > 2 or num_outputs != gp.num_outputs:
            raise ValueError(
                "expected all outputs of one set of observations, got a batch or some outputs; fit the model before it "
                "is conditioned on batches or divided"
            )
        if transform is not None:
            if any(parameter.requires_grad for parameter in transform.parameters()):
                raise ValueError(
                    "expected a transform of inputs without parameters to learn, got some; set requires_grad_(False)"
                )
            with torch.no_grad():
                x = transform.preprocess_transform(x)
        if gp.covar_module.has_output_factor:
            return x, y, noise
        return x, y.squeeze(-1), None if noise is None else noise.squeeze(-1)

    def _joined(self, values: list[Tensor]) -> Tensor:
        if not values:
            raise ValueError("expected a model with rows, got one made by from_model, which keeps none; pass train_X")
        if len(values) == 1:
            return values[0]
        return torch.cat([part.expand(*self.batch_shape, *part.shape[-2:]) for part in values], dim=-2)


def has_given_noise(likelihood: Likelihood) -> bool:
    """Whether the noise of every observation is given beside it."""
    return isinstance(likelihood, FixedNoiseGaussianLikelihood | MultitaskFixedNoiseGaussianLikelihood)
