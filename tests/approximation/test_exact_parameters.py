"""Approximated kernels have the parameters, constraints and priors of the exact kernel, whichever is changed later."""

from __future__ import annotations

import copy
import pickle

import gpytorch
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import (
    IndexKernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior, LogNormalPrior
from problems import ExactModel

import rfgp
from rfgp.approximation import LandmarkKernel

pytestmark = pytest.mark.usefixtures("float64_default")

WIDTH = 24


def points(num_rows=6, seed=0):
    return torch.rand(num_rows, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def scaled():
    exact = ScaleKernel(RBFKernel())
    return exact, rfgp.approximate(exact, WIDTH, input_dim=2, seed=0)


def twice():
    """Three kernels with one output scale: the exact one and two approximations."""
    exact, kernel = scaled()
    return exact, kernel, rfgp.approximate(exact, WIDTH, input_dim=2, seed=1)


def expanded():
    """An output scale that occurs in every product of a product of sums."""
    exact = ScaleKernel(RBFKernel()) * (LinearKernel() + MaternKernel())
    kernel = rfgp.approximate(exact, 4 * WIDTH, input_dim=2, seed=0)
    return exact.kernels[0], kernel.kernels[0]


GROUPS = {"one": scaled, "two": twice, "product of sums": expanded}
CHANGES = {
    "constraint": lambda kernel: kernel.register_constraint("raw_outputscale", Interval(0.0, 0.3)),
    "constraint with a start": lambda kernel: kernel.register_constraint(
        "raw_outputscale", GreaterThan(0.1, initial_value=0.2)
    ),
    "attribute": lambda kernel: setattr(kernel, "raw_outputscale_constraint", Interval(0.0, 0.3)),
    "prior": lambda kernel: kernel.register_prior("outputscale_prior", GammaPrior(2.0, 1.0), "outputscale"),
    "other prior": lambda kernel: kernel.register_prior("own_prior", GammaPrior(2.0, 1.0), "raw_outputscale"),
    "value": lambda kernel: setattr(kernel, "outputscale", 0.25),
    "initialize": lambda kernel: kernel.initialize(outputscale=0.25),
    "initialize raw": lambda kernel: kernel.initialize(raw_outputscale=torch.tensor(0.4)),
    "parameter": lambda kernel: setattr(kernel, "raw_outputscale", torch.nn.Parameter(torch.tensor(0.7))),
}


@pytest.mark.parametrize("index", [0, 1, -1])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("group", GROUPS)
def test_what_is_done_to_one_output_scale_is_done_to_all(group, change, index):
    kernels = GROUPS[group]()
    CHANGES[change](kernels[index])
    for kernel in [*kernels, *[getattr(kernel, "exact_kernel", kernel) for kernel in kernels[1:]]]:
        assert torch.equal(kernel.outputscale, kernels[0].outputscale)
        assert kernel.raw_outputscale is kernels[0].raw_outputscale
        assert kernel.raw_outputscale_constraint is kernels[0].raw_outputscale_constraint
        state = {name.removeprefix("exact_kernel.") for name in kernel.state_dict()}
        assert state >= {"raw_outputscale", "raw_outputscale_constraint.lower_bound"}
        priors = [module for _, module, *_ in kernel.named_priors()]
        assert priors == ([kernels[0]] if "prior" in change else [])
        assert kernel.raw_outputscale_constraint in list(kernel.constraints()) or change == "attribute"


def test_a_changed_output_scale_changes_the_features():
    exact, kernel = scaled()
    x = points()
    before = kernel(x).to_dense() / kernel.outputscale
    exact.register_constraint("raw_outputscale", Interval(0.0, 0.3))
    exact.outputscale = 0.2
    torch.testing.assert_close(kernel(x).to_dense(), 0.2 * before)
    torch.testing.assert_close(kernel.features(x).square().sum(-1), 0.2 * torch.ones(6))


def test_a_constraint_of_the_exact_scale_is_in_the_state_and_moves_with_the_kernel():
    exact, kernel = scaled()
    exact.register_constraint("raw_outputscale", Interval(0.0, 0.3))
    assert float(kernel.state_dict()["exact_kernel.raw_outputscale_constraint.upper_bound"]) == pytest.approx(0.3)
    kernel.float()
    assert exact.raw_outputscale_constraint.upper_bound.dtype == exact.raw_outputscale.dtype == torch.float32


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda kernel: pickle.loads(pickle.dumps(kernel))])
def test_a_copy_has_an_output_scale_of_its_own(clone):
    exact, kernel = scaled()
    copied = clone(kernel)
    exact.register_constraint("raw_outputscale", Interval(0.0, 0.3))
    copied.register_constraint("raw_outputscale", GreaterThan(0.5))
    copied.outputscale = 0.9
    assert float(copied.outputscale.detach()) == pytest.approx(0.9) and float(exact.outputscale.detach()) < 0.3
    assert copied.exact_kernel.raw_outputscale is copied.raw_outputscale is not kernel.raw_outputscale
    assert torch.isfinite(copied(points()).to_dense()).all()


def test_elements_of_a_batch_and_expanded_kernels_have_the_constraint_of_now():
    exact = ScaleKernel(RBFKernel(batch_shape=torch.Size([3])), batch_shape=torch.Size([3]))
    kernel = rfgp.approximate(exact, WIDTH, input_dim=2, seed=0)
    exact.register_constraint("raw_outputscale", Interval(0.0, 0.3))
    exact.outputscale = torch.tensor([0.1, 0.2, 0.25])
    torch.testing.assert_close(kernel[1].outputscale, torch.tensor(0.2))
    torch.testing.assert_close(kernel.expand_batch(2, 3).outputscale[1], torch.tensor([0.1, 0.2, 0.25]))


# The kernel, the name of a parameter and a value for it.
LEAVES = {
    "Gaussian": (RBFKernel, "lengthscale", 0.4),
    "ARD": (lambda: RBFKernel(ard_num_dims=2), "lengthscale", 0.4),
    "polynomial": (lambda: PolynomialKernel(power=2), "offset", 0.4),
    "linear": (LinearKernel, "variance", 0.4),
    "period": (PeriodicKernel, "period_length", 0.4),
}


def leaf(name, how):
    make, parameter, value = LEAVES[name]
    exact = make()
    if how == "landmarks":
        return exact, LandmarkKernel(exact, points(5, 3), learn=True), parameter, value
    return exact, rfgp.approximate(exact, WIDTH, input_dim=2, seed=0), parameter, value


every_leaf = pytest.mark.parametrize("name", LEAVES)
every_way = pytest.mark.parametrize("how", ["features", "landmarks"])


@every_way
@every_leaf
def test_parameters_have_their_names_on_the_approximated_kernel(name, how):
    exact, kernel, parameter, value = leaf(name, how)
    raw = f"raw_{parameter}"
    assert kernel.has_lengthscale is exact.has_lengthscale and kernel.ard_num_dims == exact.ard_num_dims
    assert getattr(kernel, raw) is getattr(exact, raw)
    assert getattr(kernel, f"{raw}_constraint") is getattr(exact, f"{raw}_constraint")
    setattr(kernel, parameter, value)
    assert torch.allclose(getattr(exact, parameter), torch.tensor(value))
    ScaleKernel(kernel).initialize(**{f"base_kernel.{parameter}": 0.5})
    assert torch.allclose(getattr(exact, parameter), torch.tensor(0.5))
    kernel.initialize(**{raw: torch.tensor(0.1)})
    assert float(getattr(exact, raw).detach().flatten()[0]) == pytest.approx(0.1)
    assert torch.equal(getattr(kernel, parameter), getattr(exact, parameter))


@every_way
@pytest.mark.parametrize("index", [0, 1])
@every_leaf
def test_constraints_and_priors_reach_the_kernel_and_the_exact_one(name, index, how):
    exact, kernel, parameter, _ = leaf(name, how)
    changed = (exact, kernel)[index]
    changed.register_constraint(f"raw_{parameter}", Interval(0.2, 0.3))
    changed.register_prior(f"{parameter}_prior", GammaPrior(2.0, 1.0), parameter)
    for each in (exact, kernel):
        values = getattr(each, parameter)
        assert ((values > 0.2) & (values < 0.3)).all()
        ((found, module, prior, closure, setting),) = each.named_priors()
        assert found.endswith(f"{parameter}_prior") and prior is each.get_submodule(found)
        assert torch.equal(closure(module), values)
        setting(module, torch.full_like(values, 0.25))
        assert torch.allclose(getattr(exact, parameter), torch.tensor(0.25))
        assert len(list(each.named_constraints())) == len(list(exact.named_constraints()))


def test_the_names_of_parameters_of_nothing_are_unknown():
    kernel = rfgp.approximate(RBFKernel(), WIDTH, input_dim=2, seed=0)
    with pytest.raises(AttributeError, match="offset"):
        kernel.offset  # noqa: B018
    with pytest.raises(AttributeError, match="offset"):
        kernel.initialize(offset=1.0)
    with pytest.raises(RuntimeError, match="nonexistent"):
        kernel.register_constraint("raw_offset", GreaterThan(0.1))
    kernel.remark = "kept here"
    assert not hasattr(kernel.exact_kernel, "remark")


def test_a_prior_on_learned_landmarks_is_not_one_of_the_exact_kernel():
    exact, kernel, _, _ = leaf("Gaussian", "landmarks")
    kernel.maps.register_prior("landmarks_prior", gpytorch.priors.NormalPrior(0.0, 1.0), "landmarks")
    assert [name for name, *_ in kernel.named_priors()] == ["maps.landmarks_prior"] and not list(exact.named_priors())


def priored(kernel=RBFKernel):
    return kernel(lengthscale_prior=LogNormalPrior(0.0, 1.0))


def with_prior(scale=2.0):
    return ScaleKernel(priored(), outputscale_prior=GammaPrior(scale, 1.0))


TREES = {
    "alone": priored,
    "scaled": with_prior,
    "sum": lambda: with_prior() + ScaleKernel(priored(MaternKernel)),
    "product": lambda: with_prior() * priored(MaternKernel),
    "scaled sum": lambda: ScaleKernel(with_prior() + LinearKernel(), outputscale_prior=GammaPrior(3.0, 1.0)),
    "tasks": lambda: MultitaskKernel(with_prior(), num_tasks=2),
    "index": lambda: ScaleKernel(priored(MaternKernel)) * IndexKernel(2, active_dims=[1]),
    "curl-free": lambda: ScaleKernel(rfgp.kernels.CurlFreeKernel(priored())),
    "Helmholtz": lambda: rfgp.kernels.HelmholtzKernel(priored(), priored()),
}
every_tree = pytest.mark.parametrize("tree", TREES)


@every_tree
def test_priors_and_constraints_have_the_names_and_values_of_the_exact_model(tree):
    exact = TREES[tree]()
    kernel = rfgp.approximate(exact, WIDTH, input_dim=2, seed=0)
    expected = {
        f"exact_kernel.{name}": prior.log_prob(closure(module)).sum()
        for name, module, prior, closure, _ in exact.named_priors()
    }
    found = [(name, prior.log_prob(closure(module)).sum()) for name, module, prior, closure, _ in kernel.named_priors()]
    assert dict(found) == expected and len(found) == len(expected)
    assert sorted(name for name, _ in kernel.named_constraints()) == sorted(
        f"exact_kernel.{n}" for n, _ in exact.named_constraints()
    )


def test_priors_of_a_product_of_sums_enter_the_evidence_once():
    exact = with_prior() * (LinearKernel() + priored(MaternKernel))
    kernel = rfgp.approximate(exact, 4 * WIDTH, input_dim=2, seed=0)
    x = points(5)
    for module in (exact, kernel, kernel.exact_kernel):
        assert len(list(module.named_priors())) == 3
    likelihood = GaussianLikelihood()
    model = ExactModel(x, x[:, 0], likelihood, kernel)
    evidence = ExactMarginalLogLikelihood(likelihood, model)(model(x), x[:, 0])
    prior = sum(prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in exact.named_priors())
    dense = torch.distributions.MultivariateNormal(
        torch.zeros(5), kernel(x).to_dense() + likelihood.noise * torch.eye(5)
    )
    torch.testing.assert_close(evidence, (dense.log_prob(x[:, 0]) + prior) / 5)


def test_a_kernel_that_occurs_twice_keeps_one_constraint():
    shared = RBFKernel()
    kernel = rfgp.approximate(shared * (LinearKernel() + MaternKernel()), 4 * WIDTH, input_dim=2, seed=0)
    shared.register_constraint("raw_lengthscale", Interval(0.0, 0.2))
    shared.register_prior("lengthscale_prior", GammaPrior(2.0, 1.0), "lengthscale")
    seen = [leaf for leaf, _ in kernel.family.leaves() if leaf.kernel is shared]
    assert len(seen) == 2 and float(seen[0].kernel.lengthscale.detach().max()) < 0.2
    assert len(list(kernel.named_priors())) == len(list(kernel.exact_kernel.named_priors())) == 1
