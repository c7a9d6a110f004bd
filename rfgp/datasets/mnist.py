"""MNIST: 60,000 + 10,000 images of 28 x 28 pixels, 10 digits, with the usual split.

Provenance: LeCun, Cortes and Burges, "The MNIST database of handwritten digits".
Licence: CC BY-SA 3.0.
"""

from .sources import Archive

load = Archive(
    name="mnist",
    task="classification",
    provenance='LeCun, Cortes and Burges, "The MNIST database of handwritten digits"',
    licence="CC BY-SA 3.0",
    scaling="unit",
)
