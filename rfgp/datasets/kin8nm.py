"""Kin8nm: 8,192 states of a simulated robot arm x 8 inputs, the distance of its hand from a target.

Provenance: Delve "kin8nm", OpenML 189.
Licence: public.
"""

from .sources import Archive

load = Archive(
    name="kin8nm",
    task="regression",
    provenance='Delve "kin8nm", OpenML 189',
    licence="public",
)
