"""What `import rfgp` shows: what a user calls, and the subpackages meant for users."""

import inspect

import rfgp

CALLED = {
    "VectorLeastSquares",
    "WeightSpaceGP",
    "approximate",
    "fit",
    "kl_to_exact",
    "load",
    "predict_map",
    "rank_methods",
    "save",
    "suggest_num_features",
}
PLUMBING = {"_support", "linalg"}


def test_the_package_shows_what_a_user_calls():
    names = dir(rfgp)
    assert set(names) == set(rfgp.__all__) and set(names) >= CALLED and not PLUMBING & set(names)
    for name in set(names) - CALLED:
        assert inspect.ismodule(getattr(rfgp, name)), name


def test_names_at_the_top_are_those_of_their_subpackages():
    homes = [rfgp.models, rfgp.models.maps, rfgp.diagnostics, rfgp.saving, rfgp.approximation.selection, rfgp.training]
    for name in CALLED - {"approximate"}:
        assert any(getattr(rfgp, name) is getattr(home, name, None) for home in homes), name
