"""Fashion-MNIST: 70,000 images of 28 x 28 pixels, 10 kinds of clothes, split at random.

Provenance: Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017.
Licence: MIT.
"""

from .sources import Archive

load = Archive(
    name="fashion_mnist",
    task="classification",
    provenance='Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017',
    licence="MIT",
    scaling="unit",
)
