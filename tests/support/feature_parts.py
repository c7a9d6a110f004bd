"""The parts of kernels with features, as kernels with features."""

from rfgp.approximation import FeatureKernel
from rfgp.approximation.families.product import FactorsFamily


def parts(kernel):
    """The terms of a sum, the factors of a product, or the kernel inside another one."""
    return [FeatureKernel(part.kernel, part.maps) for part in _families(kernel.family)]


def leaves(kernel):
    """The families that have maps of their own."""
    return [leaf for leaf, _ in kernel.family.leaves()]


def leaf(kernel):
    """The family of a kernel with one map."""
    (only,) = leaves(kernel)
    return only


def map_inputs(kernel, x):
    """What the one map of a kernel is given."""
    only = leaf(kernel)
    return only.map_inputs(only.feature_map, only.centered(x))


def _families(family):
    found = family.parts
    return [part for only in found for part in only.parts] if isinstance(found[0], FactorsFamily) else found
