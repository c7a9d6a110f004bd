"""Power plant: 9,568 hours x 4 sensors, the net electrical energy output.

Provenance: UCI "Combined cycle power plant".
Licence: CC BY 4.0.
"""

from .sources import Archive

load = Archive(
    name="powerplant",
    task="regression",
    provenance='UCI "Combined cycle power plant"',
    licence="CC BY 4.0",
)
