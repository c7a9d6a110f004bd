"""Yacht: 308 experiments x 6 hull dimensions and speeds, the residuary resistance.

Provenance: UCI "Yacht hydrodynamics".
Licence: CC BY 4.0.
"""

from .sources import Archive

load = Archive(
    name="yacht",
    task="regression",
    provenance='UCI "Yacht hydrodynamics"',
    licence="CC BY 4.0",
)
