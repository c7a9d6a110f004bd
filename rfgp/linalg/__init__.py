"""Linear algebra of random features, and seeded draws: tensors in, tensors out. Nothing here knows a feature map."""

from .cholesky_factor import (
    check_factor,
    cholesky,
    cholesky_,
    dense_evidence,
    log_determinant,
    log_determinant_and_quadratic,
)
from .chunks import joined, row_chunks
from .complex_numbers import accurate_dtype
from .gram_matrix import add_gram_, column_gram, gram, members_of_groups, mirror_, products_by_group
from .precision import FLOAT32_NOISE, is_ill_conditioned, largest_square, product_dtype, spaced_rows
from .walsh_hadamard import fwht, hadamard, next_power_of_two

__all__ = [
    "FLOAT32_NOISE",
    "accurate_dtype",
    "add_gram_",
    "check_factor",
    "cholesky",
    "cholesky_",
    "column_gram",
    "dense_evidence",
    "fwht",
    "gram",
    "hadamard",
    "is_ill_conditioned",
    "joined",
    "largest_square",
    "log_determinant",
    "log_determinant_and_quadratic",
    "members_of_groups",
    "mirror_",
    "next_power_of_two",
    "product_dtype",
    "products_by_group",
    "row_chunks",
    "spaced_rows",
]
