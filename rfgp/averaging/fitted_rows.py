"""Training rows as part of a model."""

from __future__ import annotations

from typing import Any

from torch import Tensor


class FittedRows:
    """A model that predicts by its training rows, which a file of it holds.

    :ivar x: inputs (N, d).
    :ivar y: targets.
    """

    x: Tensor
    y: Tensor

    def saved_attributes(self, with_rows: bool) -> dict[str, Any]:
        """What :func:`rfgp.save` writes; raises a ValueError without the training rows."""
        if not with_rows:
            name = type(self).__name__
            raise ValueError(
                f"expected with_rows=True for an {name}, got False; it predicts by its training rows: fit a "
                "rfgp.models.WeightSpaceGP"
            )
        return dict(vars(self))

    @property
    def num_rows_kept(self) -> int:
        """The number of training rows."""
        return len(self.x)
