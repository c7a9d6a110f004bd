"""The built-in data sets: what is in them, where they come from, and their terms of use."""

from __future__ import annotations

from .loaders import Archive, Bundled, Loader

_CATALOGUE = (
    Archive(
        "concrete",
        "regression",
        "1,030 mixtures x 8 ingredients and age, the compressive strength",
        provenance='UCI "Concrete compressive strength"',
        licence="CC BY 4.0",
    ),
    Bundled(
        "diabetes",
        "regression",
        "442 patients x 10 inputs, the progression of the disease after one year",
        provenance='Efron et al., "Least angle regression", Annals of Statistics, 2004, as shipped with scikit-learn',
        licence="BSD 3-Clause, that of scikit-learn",
    ),
    Bundled(
        "digits",
        "classification",
        "1,797 images of 8 x 8 pixels, 10 classes",
        provenance='UCI "Optical recognition of handwritten digits", its test part, as shipped with scikit-learn',
        licence="CC BY 4.0",
        scaling="unit",
    ),
    Archive(
        "energy",
        "regression",
        "768 buildings x 8 inputs, the heating load and the cooling load (the heating load alone by default)",
        provenance='UCI "Energy efficiency"',
        licence="CC BY 4.0",
        outputs=("heating_load", "cooling_load"),
    ),
    Archive(
        "fashion_mnist",
        "classification",
        "70,000 images of 28 x 28 pixels, 10 kinds of clothes, split at random",
        provenance='Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017',
        licence="MIT",
        scaling="unit",
    ),
    Archive(
        "kin8nm",
        "regression",
        "8,192 states of a simulated robot arm x 8 inputs, the distance of its hand from a target",
        provenance='Delve "kin8nm", OpenML 189',
        licence="public",
    ),
    Archive(
        "letter",
        "classification",
        "20,000 distorted capital letters x 16 statistics of the image, 26 classes",
        provenance='UCI "Letter recognition"',
        licence="CC BY 4.0",
    ),
    Archive(
        "mnist",
        "classification",
        "60,000 + 10,000 images of 28 x 28 pixels, 10 digits, with the usual split",
        provenance='LeCun, Cortes and Burges, "The MNIST database of handwritten digits"',
        licence="CC BY-SA 3.0",
        scaling="unit",
    ),
    Archive(
        "powerplant",
        "regression",
        "9,568 hours x 4 sensors, the net electrical energy output",
        provenance='UCI "Combined cycle power plant"',
        licence="CC BY 4.0",
    ),
    Archive(
        "protein",
        "regression",
        "45,730 decoys x 9 physicochemical properties, the distance (RMSD) from the native structure",
        provenance='UCI "Physicochemical properties of protein tertiary structure"',
        licence="CC BY 4.0",
    ),
    # Inputs are the flows at the 8 sites of the Mississippi network now, then those 6, 12, 18, 24, 36, 48 and 60 hours
    # ago. Rows with missing values are left out. Rows overlap in time, so that a random split is easier than a
    # forecast. Flows at "nasi2" hardly vary, except for a few extreme values.
    Archive(
        "rf1",
        "regression",
        "9,005 hours x 64 river flows of the past 60 hours, the flows at 8 sites 48 hours ahead (the first by default)",
        provenance='Mulan "RF1" (Spyromitros-Xioufis et al., 2016), flows from the US National Weather Service',
        licence="none stated by Mulan",
        outputs=("chsi2", "nasi2", "eadm7", "sclm7", "clkm7", "vali2", "napm7", "dldi4"),
    ),
    Archive(
        "yacht",
        "regression",
        "308 experiments x 6 hull dimensions and speeds, the residuary resistance",
        provenance='UCI "Yacht hydrodynamics"',
        licence="CC BY 4.0",
    ),
)

LOADERS: dict[str, Loader] = {source.name: source for source in _CATALOGUE}
"""The loader of every built-in data set by name."""
