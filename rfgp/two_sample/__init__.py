"""Whether two samples come from one distribution: maximum mean discrepancies, in linear time with random features."""

from .blocks import block_mmd
from .discrepancy import Discrepancy, mmd
from .inception import kernel_inception_distance
from .permutations import PermutationTest, permutation_test

__all__ = [
    "Discrepancy",
    "PermutationTest",
    "block_mmd",
    "kernel_inception_distance",
    "mmd",
    "permutation_test",
]
