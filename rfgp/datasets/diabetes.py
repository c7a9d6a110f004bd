"""Diabetes: 442 patients x 10 inputs, the progression of the disease after one year.

Provenance: Efron et al., "Least angle regression", Annals of Statistics, 2004, as shipped with scikit-learn.
Licence: BSD 3-Clause, that of scikit-learn.
"""

from .sources import Bundled

load = Bundled(
    name="diabetes",
    task="regression",
    provenance='Efron et al., "Least angle regression", Annals of Statistics, 2004, as shipped with scikit-learn',
    licence="BSD 3-Clause, that of scikit-learn",
)
