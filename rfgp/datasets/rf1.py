"""RF1: 9,005 hours x 64 river flows of the past 60 hours, the flows at 8 sites 48 hours ahead (the first by default).

Inputs are the flows at the 8 sites of the Mississippi network now, then those 6, 12, 18, 24, 36, 48 and 60 hours ago.
Rows with missing values are left out. Rows overlap in time, so that a random split is easier than a forecast. Flows
at "nasi2" hardly vary, except for a few extreme values.

Provenance: Mulan "RF1" (Spyromitros-Xioufis et al., 2016), flows from the US National Weather Service.
Licence: none stated by Mulan.
"""

from .sources import Archive

load = Archive(
    name="rf1",
    task="regression",
    provenance='Mulan "RF1" (Spyromitros-Xioufis et al., 2016), flows from the US National Weather Service',
    licence="none stated by Mulan",
    outputs=("chsi2", "nasi2", "eadm7", "sclm7", "clkm7", "vali2", "napm7", "dldi4"),
)
