"""Protein: 45,730 decoys x 9 physicochemical properties, the distance (RMSD) from the native structure.

Provenance: UCI "Physicochemical properties of protein tertiary structure".
Licence: CC BY 4.0.
"""

from .sources import Archive

load = Archive(
    name="protein",
    task="regression",
    provenance='UCI "Physicochemical properties of protein tertiary structure"',
    licence="CC BY 4.0",
)
