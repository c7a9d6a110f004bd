"""Concrete: 1,030 mixtures x 8 ingredients and age, the compressive strength.

Provenance: UCI "Concrete compressive strength".
Licence: CC BY 4.0.
"""

from .sources import Archive

load = Archive(
    name="concrete",
    task="regression",
    provenance='UCI "Concrete compressive strength"',
    licence="CC BY 4.0",
)
