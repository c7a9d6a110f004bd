"""Energy: 768 buildings x 8 inputs, the heating load and the cooling load (the heating load alone by default).

Provenance: UCI "Energy efficiency".
Licence: CC BY 4.0.
"""

from .sources import Archive

load = Archive(
    name="energy",
    task="regression",
    provenance='UCI "Energy efficiency"',
    licence="CC BY 4.0",
    outputs=("heating_load", "cooling_load"),
)
