"""Energy: 768 buildings x 8 inputs, the heating load (the first of two outputs).

Provenance: UCI "Energy efficiency".
Licence: CC BY 4.0.
"""

from .sources import Archive

load = Archive(
    name="energy",
    task="regression",
    provenance='UCI "Energy efficiency"',
    licence="CC BY 4.0",
    output=0,
)
