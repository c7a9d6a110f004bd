r"""Observations of a function or field, one row of numbers each: inputs of :class:`rfgp.kernels.ObservationKernel`.

.. math:: L f = \frac1{|R|} \int_R \sum_t a_t f_t(x)\, dx

with the value and first derivatives of a function, or the components of a field, as f_t. Join rows by ``torch.cat``.
"""

from .rows import ObservationRows, boxes, derivatives, num_columns, points, segments, split

__all__ = ["ObservationRows", "boxes", "derivatives", "num_columns", "points", "segments", "split"]
