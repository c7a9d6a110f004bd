"""Whether two samples come from one distribution: maximum mean discrepancies, in linear time with random features."""

from .discrepancy import Discrepancy, block_mmd, kernel_inception_distance, mmd
from .permutations import PermutationTest, permutation_test

__all__ = [
    "Discrepancy",
    "PermutationTest",
    "block_mmd",
    "kernel_inception_distance",
    "mmd",
    "permutation_test",
]
