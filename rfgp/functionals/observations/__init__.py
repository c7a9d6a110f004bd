r"""Observations of a function or field as rows of numbers: values, derivatives, averages and integrals over regions.

Every row is one number that is measured, and a point is the smallest region:

.. math:: L f = \frac1{|R|} \int_R \sum_t a_t f_t(x)\, dx

The outputs f_t of a scalar function are its value and its first derivatives; those of a field are its components.
Rows of several kinds are put one after the other with ``torch.cat``, and a :class:`rfgp.kernels.ObservationKernel`
takes them as inputs, for training and for prediction alike.
"""

from .rows import ObservationRows, boxes, derivatives, num_columns, points, segments, split

__all__ = ["ObservationRows", "boxes", "derivatives", "num_columns", "points", "segments", "split"]
