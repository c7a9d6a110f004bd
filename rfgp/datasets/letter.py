"""Letter: 20,000 distorted capital letters x 16 statistics of the image, 26 classes.

Provenance: UCI "Letter recognition".
Licence: CC BY 4.0.
"""

from .sources import Archive

load = Archive(
    name="letter",
    task="classification",
    provenance='UCI "Letter recognition"',
    licence="CC BY 4.0",
)
