"""Digits: 1,797 images of 8 x 8 pixels, 10 classes.

Provenance: UCI "Optical recognition of handwritten digits", its test part, as shipped with scikit-learn.
Licence: CC BY 4.0.
"""

from .sources import Bundled

load = Bundled(
    name="digits",
    task="classification",
    provenance='UCI "Optical recognition of handwritten digits", its test part, as shipped with scikit-learn',
    licence="CC BY 4.0",
    scaling="unit",
)
