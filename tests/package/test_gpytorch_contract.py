"""Private names of GPyTorch and linear_operator that rfgp relies on, so that an upgrade fails here first."""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import inspect
import pkgutil
from pathlib import Path

import gpytorch
import linear_operator.operators as operators
import pytest
import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import (
    AdditiveKernel,
    IndexKernel,
    Kernel,
    LinearKernel,
    MultitaskKernel,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    RBFKernelGrad,
    ScaleKernel,
)
from gpytorch.likelihoods import (
    DirichletClassificationLikelihood,
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    MultitaskGaussianLikelihood,
)
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from gpytorch.priors import GammaPrior
from linear_operator.operators import LinearOperator
from syntax import nodes

import rfgp

ROOT = Path(rfgp.__file__).parent
FOREIGN = ("gpytorch", "linear_operator", "torch")

# Methods that rfgp overrides and that its foreign base classes call.
HOOKS = [
    (Kernel, "__getitem__"),
    (Kernel, "_set_lengthscale"),
    (Kernel, "expand_batch"),
    (Kernel, "num_outputs_per_input"),
    (Kernel, "prediction_strategy"),
    (Kernel, "_load_from_state_dict"),
    (torch.nn.Module, "get_extra_state"),
    (torch.nn.Module, "set_extra_state"),
    (torch.nn.Module, "_save_to_state_dict"),
    (torch.nn.Module, "_apply"),
    (LinearOperator, "_cholesky"),
    (LinearOperator, "_get_indices"),
    (LinearOperator, "_matmul"),
    (LinearOperator, "_t_matmul"),
    (LinearOperator, "_unsqueeze_batch"),
    (LinearOperator, "_size"),
    (LinearOperator, "_transpose_nonbatch"),
    (LinearOperator, "_expand_batch"),
    (LinearOperator, "_diagonal"),
    (LinearOperator, "_getitem"),
    (LinearOperator, "_mul_constant"),
    (LinearOperator, "_solve"),
    (LinearOperator, "add_diagonal"),
    (LinearOperator, "solve"),
    (LinearOperator, "inv_quad"),
    (LinearOperator, "inv_quad_logdet"),
    (LinearOperator, "evaluate_kernel"),
    (LinearOperator, "representation"),
    (LinearOperator, "representation_tree"),
    (LinearOperator, "root_decomposition"),
    (LinearOperator, "zero_mean_mvn_samples"),
    (DefaultPredictionStrategy, "exact_prediction"),
    (DefaultPredictionStrategy, "get_fantasy_strategy"),
    (DirichletClassificationLikelihood, "_prepare_targets"),
    (GaussianLikelihood, "marginal"),
    (MultivariateNormal, "log_prob"),
    (MultitaskGaussianLikelihood, "_shaped_noise_covar"),
]


def scale_kernel():
    return ScaleKernel(PolynomialKernel(power=2), outputscale_prior=GammaPrior(2.0, 1.0), batch_shape=torch.Size([2]))


def diagonal():
    return operators.DiagLinearOperator(torch.tensor([1.0, 2.0]))


def added_diagonal():
    return operators.AddedDiagLinearOperator(operators.RootLinearOperator(torch.ones(2, 1)), diagonal())


def multitask_normal():
    return MultitaskMultivariateNormal(torch.zeros(3, 2), torch.eye(6))


def dirichlet():
    return DirichletClassificationLikelihood(torch.tensor([0, 1, 1]))


# Private attributes of foreign objects that rfgp reads, each with such an object.
ATTRIBUTES = {
    "_C": lambda: torch,
    "_assert_async": lambda: torch,
    "_add_other_terms": lambda: gpytorch.mlls.ExactMarginalLogLikelihood,
    "_functorch": lambda: torch._C,
    "_buffers": lambda: torch.nn.Linear(1, 1),
    "_GaussianLikelihoodBase": lambda: gpytorch.likelihoods,
    "_OneDimensionalLikelihood": lambda: gpytorch.likelihoods,
    "_get_observed": lambda: gpytorch.settings.observation_nan_policy,
    "_load_state_dict_pre_hooks": scale_kernel,
    "_load_state_hook_ignore_shapes": scale_kernel,
    "_load_strict_shapes": scale_kernel,
    "_parameters": lambda: torch.nn.Linear(1, 1),
    "_version": lambda: torch.ones(1),
    "_batch_shape": scale_kernel,
    "_constant": lambda: operators.ConstantMulLinearOperator(diagonal(), torch.tensor(2.0)),
    "_diag": diagonal,
    "_interleaved": multitask_normal,
    "_is_grad_enabled": lambda: RBFKernel()(torch.ones(3, 1)),
    "_diag_tensor": added_diagonal,
    "_linear_op": added_diagonal,
    "_modules": scale_kernel,
    "_non_persistent_buffers_set": lambda: torch.nn.Linear(1, 1),
    "_nondifferentiable_kwargs": diagonal,
    "_prepare_targets": dirichlet,
    "_priors": scale_kernel,
    "_register_load_state_dict_pre_hook": scale_kernel,
}
PRIVATE = ("gpytorch_names.py", "torch_names.py")
STANDARD_LIBRARY = {"_asdict", "_fields", "_replace"}


@pytest.mark.parametrize(("owner", "name"), HOOKS, ids=[f"{owner.__name__}.{name}" for owner, name in HOOKS])
def test_hooks_exist(owner, name):
    assert callable(getattr(owner, name))


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_private_attributes_exist(name):
    assert hasattr(ATTRIBUTES[name](), name)


FILES = sorted(ROOT.rglob("*.py"))


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


@functools.cache
def attributes(context):
    found = (node for path in FILES for node in nodes(path) if isinstance(node, ast.Attribute))
    return {node.attr for node in found if isinstance(node.ctx, context) and is_private(node.attr)}


@functools.cache
def private_names_of(path):
    """What a file reads of private names: attributes, and names that it imports."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and is_private(node.attr):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(FOREIGN):
            found |= {alias.name for alias in node.names if is_private(alias.name)}
    return found


def test_private_names_are_read_in_one_file_alone():
    foreign = set(ATTRIBUTES) - names_defined_in_rfgp()
    for path in FILES:
        found = foreign & set(private_names_of(path))
        assert not found or path.name in PRIVATE, f"{path.name} reads {sorted(found)}; do it in gpytorch_names.py"
    known = {name for file in PRIVATE for name in private_names_of(ROOT / "_support" / file)}
    assert foreign <= known | {"_version"}


@functools.cache
def names_defined_in_rfgp():
    known = [node for path in FILES for node in nodes(path)]
    functions = {node.name for node in known if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    variables = {node.id for node in known if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    modules = {path.stem for path in FILES}
    return functions | variables | modules | attributes(ast.Store)


def test_no_other_private_attribute_is_used():
    unknown = attributes(ast.Load) - names_defined_in_rfgp() - STANDARD_LIBRARY - set(ATTRIBUTES)
    assert not unknown, f"add to ATTRIBUTES, with an object that has it: {sorted(unknown)}"


def rfgp_classes():
    for module in pkgutil.walk_packages(rfgp.__path__, "rfgp."):
        if not module.name.endswith("__main__"):
            members = vars(importlib.import_module(module.name)).values()
            yield from (cls for cls in members if inspect.isclass(cls) and cls.__module__ == module.name)


def foreign_bases(cls):
    return [base for base in cls.__mro__[1:] if base.__module__.startswith(FOREIGN)]


def test_every_overridden_private_method_is_a_listed_hook():
    listed = {name for _, name in HOOKS}
    found = {
        name
        for cls in rfgp_classes()
        for name, member in vars(cls).items()
        if is_private(name) and inspect.isfunction(member) and any(name in vars(base) for base in foreign_bases(cls))
    }
    assert found and not found - listed, f"add to HOOKS: {sorted(found - listed)}"


def test_no_operator_reads_entries_by_products_with_unit_vectors():
    default = LinearOperator._get_indices
    sized = [c for c in rfgp_classes() if issubclass(c, LinearOperator) and c._size is not LinearOperator._size]
    slow = [cls.__name__ for cls in sized if cls._get_indices is default]
    assert sized and not slow, f"define _get_indices, or a diagonal takes as many products as rows: {slow}"


def test_every_private_method_overrides_something_or_is_called():
    called = attributes(ast.Load)
    dead = [
        f"{cls.__name__}.{name}"
        for cls in rfgp_classes()
        for name, member in vars(cls).items()
        if is_private(name)
        and isinstance(member, property | staticmethod | classmethod | type(lambda: None))
        and name not in called | STANDARD_LIBRARY | {"_make", "_field_defaults"}
        and not any(name in vars(base) for base in cls.__mro__[1:])
    ]
    assert not dead, f"nothing calls {dead}; the hook it was may have been renamed"


def test_scale_kernel_keeps_its_registries_where_rfgp_looks():
    kernel = scale_kernel()
    prior, closure, _ = kernel._priors["outputscale_prior"]
    assert prior is kernel.outputscale_prior is kernel._modules["outputscale_prior"]
    assert torch.equal(closure(kernel), kernel.outputscale)
    assert kernel._batch_shape == kernel.batch_shape == torch.Size([2])
    constraint = kernel._constraints["raw_outputscale_constraint"]
    assert constraint is kernel.raw_outputscale_constraint is kernel._modules["raw_outputscale_constraint"]
    assert list(kernel._parameters) == ["raw_outputscale"]


def test_priors_are_looked_for_in_registries_and_named_children():
    seen = []

    class Looked(LinearKernel):
        def named_children(self):
            seen.append(type(self))
            return super().named_children()

    kernel = ScaleKernel(Looked(variance_prior=GammaPrior(2.0, 1.0)))
    assert [name for name, *_ in kernel.named_priors()] == ["base_kernel.variance_prior"] and seen == [Looked]
    kernel.base_kernel._priors = {}
    assert not list(kernel.named_priors())


def test_scale_kernel_calls_forward_of_its_base_kernel_and_mul_constant_of_the_result():
    calls = []

    class Operator(operators.RootLinearOperator):
        def _mul_constant(self, other):
            calls.append(other.shape)
            return super()._mul_constant(other)

    class Base(LinearKernel):
        def forward(self, x1, x2, **params):
            calls.append(x1.shape)
            return Operator(x1)

    base = Base(active_dims=[0, 2])
    scaled = ScaleKernel(base)
    assert torch.equal(scaled.active_dims, base.active_dims)
    scaled(torch.ones(4, 3)).to_dense()
    assert calls == [(4, 2), ()]


def test_added_diagonal_keeps_its_parts():
    total = added_diagonal()
    assert isinstance(total._linear_op, operators.RootLinearOperator)
    assert torch.equal(total._diag_tensor._diag, torch.tensor([1.0, 2.0]))
    assert total._noise is None
    constant = operators.ConstantDiagLinearOperator(torch.ones(1), diag_shape=3)
    assert torch.equal(constant.diag_values, torch.ones(1)) and isinstance(constant, operators.DiagLinearOperator)
    assert torch.equal(constant._diag, torch.ones(3))


def test_low_rank_root_keeps_its_root():
    root = torch.ones(3, 2)
    assert torch.equal(operators.LowRankRootLinearOperator(root).root.to_dense(), root)
    product = operators.MatmulLinearOperator(root, root.mT)
    assert torch.equal(product.left_linear_op.to_dense(), root)
    assert torch.equal(product.right_linear_op.to_dense(), root.mT)


def test_logdet_goes_through_inv_quad_logdet():
    class Operator(operators.AddedDiagLinearOperator):
        def inv_quad_logdet(self, inv_quad_rhs=None, logdet=False, reduce_inv_quad=True):
            return torch.tensor(1.0), torch.tensor(7.0)

    total = Operator(operators.RootLinearOperator(torch.ones(2, 1)), diagonal())
    assert float(total.logdet()) == 7.0


def test_normal_densities_are_those_that_rfgp_put_in_place_and_ask_the_setting():
    assert MultivariateNormal.log_prob.__code__.co_filename.endswith("normal_density.py")
    source = inspect.getsource(MultivariateNormal.log_prob.__wrapped__)
    assert "settings.fast_computations.log_prob.off()" in source and "inv_quad_logdet" in source
    lazy = RBFKernel()(torch.ones(3, 1))
    assert isinstance(lazy, gpytorch.lazy.LazyEvaluatedKernelTensor) and isinstance(lazy.kernel, RBFKernel)
    noisy = GaussianLikelihood()(MultivariateNormal(torch.zeros(3), lazy)).lazy_covariance_matrix
    assert isinstance(noisy, operators.SumLinearOperator) and noisy.linear_ops[0] is lazy


def test_lazy_kernel_matrices_and_strategies_are_those_that_rfgp_put_in_place_and_a_gp_asks_the_kernel():
    for hook in (gpytorch.lazy.LazyEvaluatedKernelTensor.evaluate_kernel, Kernel.prediction_strategy):
        assert "rfgp" in inspect.unwrap(hook, stop=lambda f: "rfgp" in f.__code__.co_filename).__code__.co_filename
    source = inspect.getsource(gpytorch.models.exact_prediction_strategies.prediction_strategy)
    assert "train_train_covar.kernel.prediction_strategy" in source
    assert "prediction_strategy" not in vars(AdditiveKernel) | vars(ProductKernel) | vars(MultitaskKernel)
    assert "evaluate_kernel()" in inspect.getsource(gpytorch.lazy.LazyEvaluatedKernelTensor.representation)


def test_base_samples_are_one_per_point_where_a_covariance_is_no_root():
    class Operator(operators.DenseLinearOperator):
        def root_decomposition(self, method=None):
            asked.append(method)
            return operators.RootLinearOperator(torch.eye(3))

    asked = []
    normal = MultivariateNormal(torch.zeros(3), Operator(torch.eye(3)))
    assert normal.base_sample_shape == (3,)
    assert MultivariateNormal(torch.zeros(3), operators.RootLinearOperator(torch.ones(3, 7))).base_sample_shape == (7,)
    base = normal.get_base_samples(torch.Size([2]))
    assert torch.equal(normal.rsample(torch.Size([2]), base_samples=base), base) and asked == [None]


def test_an_exact_model_asks_for_the_cross_covariance_by_a_slice_that_is_evaluated():
    calls = []

    class Counting(LinearKernel):
        def forward(self, x1, x2, **params):
            calls.append((len(x1), len(x2)))
            return super().forward(x1, x2, **params)

    joint = Counting()(torch.ones(5, 1))
    joint[..., 3:, :3].evaluate_kernel()
    assert calls == [(2, 3)]


def test_gaussian_noise_reaches_the_covariance_as_a_diagonal():
    covariance = operators.RootLinearOperator(torch.ones(3, 1))
    noisy = GaussianLikelihood()(MultivariateNormal(torch.zeros(3), covariance)).lazy_covariance_matrix
    assert isinstance(noisy, operators.AddedDiagLinearOperator)
    assert isinstance(noisy._diag_tensor, operators.ConstantDiagLinearOperator)
    fixed = FixedNoiseGaussianLikelihood(torch.tensor([1.0, 2.0, 3.0]))
    noisy = fixed(MultivariateNormal(torch.zeros(3), covariance)).lazy_covariance_matrix
    assert torch.equal(noisy._diag_tensor._diag, torch.tensor([1.0, 2.0, 3.0]))
    assert fixed.second_noise_covar is None


def test_exact_models_ask_the_kernel_for_a_prediction_strategy():
    asked = []

    class Asking(LinearKernel):
        def prediction_strategy(self, train_inputs, train_prior_dist, train_labels, likelihood):
            asked.append(train_prior_dist.lazy_covariance_matrix.evaluate_kernel().shape)
            return DefaultPredictionStrategy(train_inputs, train_prior_dist, train_labels, likelihood)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y):
            super().__init__(x, y, GaussianLikelihood())
            self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), ScaleKernel(Asking())

        def forward(self, x):
            return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x = torch.linspace(0.0, 1.0, 5).unsqueeze(-1)
    model = Model(x, x.squeeze(-1)).eval()
    assert model(x + 0.1).mean.shape == (5,)
    assert asked == [(5, 5)]
    strategy = model.prediction_strategy
    for name in ("train_inputs", "train_prior_dist", "train_labels", "likelihood", "lik_train_train_covar"):
        assert hasattr(strategy, name)


def test_settings_exist():
    assert gpytorch.settings.observation_nan_policy.value() == "ignore"
    assert not gpytorch.settings.skip_posterior_variances.on()
    assert gpytorch.settings.detach_test_caches.on()
    with gpytorch.settings.lazily_evaluate_kernels(False), gpytorch.settings.max_cholesky_size(10):
        assert isinstance(gpytorch.settings.max_cholesky_size.value(), int)
    with gpytorch.settings.cholesky_max_tries(6):
        assert gpytorch.settings.cholesky_max_tries.value() == 6


def test_dirichlet_targets_have_the_expected_layout():
    likelihood = dirichlet()
    noise, targets, classes = likelihood._prepare_targets(likelihood.targets, 0.01, torch.float64)
    assert classes == likelihood.num_classes == 2
    assert noise.shape == (2, 3) and targets.shape == (3, 2)
    assert likelihood.transformed_targets.shape == likelihood.noise_covar.noise.shape == (2, 3)
    assert likelihood.alpha_epsilon == 0.01


def test_kernels_have_the_parameters_that_the_families_read():
    polynomial, linear = PolynomialKernel(power=3, batch_shape=torch.Size([2])), LinearKernel(ard_num_dims=4)
    assert polynomial.power == 3 and polynomial.offset.shape == (2, 1)
    assert linear.variance.shape == (1, 4) and linear.ard_num_dims == 4
    assert torch.equal(LinearKernel(active_dims=[0, 2]).active_dims, torch.tensor([0, 2]))
    two, kernels = torch.Size([2]), gpytorch.kernels
    ard = {"batch_shape": two, "ard_num_dims": 4}
    for isotropic in (kernels.RBFKernel(**ard), kernels.MaternKernel(nu=1.5, **ard), kernels.RQKernel(**ard)):
        assert isotropic.lengthscale.shape == (2, 1, 4)
    assert kernels.RQKernel(**ard).alpha.shape == (2, 1) and kernels.MaternKernel(nu=1.5).nu == 1.5
    mixture = kernels.SpectralMixtureKernel(num_mixtures=3, **ard)
    assert mixture.num_mixtures == 3 and mixture.mixture_weights.shape == (2, 3)
    assert mixture.mixture_means.shape == mixture.mixture_scales.shape == (2, 3, 1, 4)
    periodic, cosine = kernels.PeriodicKernel(**ard), kernels.CosineKernel(batch_shape=two)
    assert periodic.lengthscale.shape == periodic.period_length.shape == (2, 1, 4)
    assert cosine.period_length.shape == (2, 1, 1) and kernels.ConstantKernel(batch_shape=two).constant.shape == (2, 1)


def test_periodic_kernels_divide_by_the_lengthscale_and_not_by_its_square():
    kernel, x = gpytorch.kernels.PeriodicKernel(), torch.tensor([[0.0], [0.3]])
    kernel.lengthscale, kernel.period_length = 0.5, 2.0
    expected = torch.exp(-2.0 / torch.tensor(0.5) * torch.sin(torch.pi * torch.tensor(0.3) / 2.0) ** 2)
    assert torch.allclose(kernel(x).to_dense()[0, 1], expected)


def test_compositions_keep_their_parts_where_rfgp_looks():
    rbf, linear = gpytorch.kernels.RBFKernel(), LinearKernel()
    assert list((rbf + linear).kernels) == list((rbf * linear).kernels) == [rbf, linear]
    assert len((rbf + (linear + rbf)).kernels) == 3 and len((rbf * (linear * rbf)).kernels) == 3
    assert (rbf + linear).active_dims is None


def test_a_scale_kernel_has_the_batch_of_its_base_kernel_in_its_parameter_alone():
    kernel = ScaleKernel(LinearKernel(batch_shape=torch.Size([2])))
    assert kernel.raw_outputscale.shape == kernel.batch_shape == (2,) and kernel._batch_shape == ()


def test_a_scale_kernel_around_nothing_can_be_indexed_and_expanded():
    kernel = ScaleKernel(Kernel(), batch_shape=torch.Size([3, 2]))
    kernel.outputscale = torch.arange(1.0, 7.0).reshape(3, 2)
    assert torch.allclose(kernel[1, 0].outputscale, torch.tensor(3.0))
    assert kernel.expand_batch(4, 3, 2).outputscale.shape == (4, 3, 2)


def test_a_prior_counts_in_every_product_that_its_kernel_occurs_in():
    kernel = scale_kernel()
    both = kernel * LinearKernel() + kernel * LinearKernel()
    assert len(list(both.named_priors())) == 2 and len(list(both.parameters())) == 4


def test_scales_and_sums_have_the_outputs_of_their_first_part_and_hand_it_unselected_inputs():
    x, seen = torch.ones(4, 3), []

    class Outputs(RBFKernelGrad):
        def num_outputs_per_input(self, x1, x2):
            seen.append(x1.shape)
            return 3

    for kernel in (ScaleKernel(Outputs()), Outputs() + ScaleKernel(Outputs()), Outputs() * ScaleKernel(Outputs())):
        assert kernel.num_outputs_per_input(x, x) == 3
    (Outputs(active_dims=[0, 2]) + Outputs(active_dims=[0, 2])).num_outputs_per_input(x, x)
    assert seen == [(4, 3)] * 4
    own = [Outputs(active_dims=[0, 2]), ScaleKernel(Outputs(active_dims=[0, 2]))]
    assert [kernel(x).shape for kernel in own] == [(12, 12)] * 2 and set(seen[4:]) == {(4, 2)}


def test_multitask_kernels_keep_their_parts_where_rfgp_looks():
    data, x = RBFKernel(active_dims=[0]), torch.tensor([[0.0, 1.0], [0.5, 2.0], [1.0, 3.0]])
    kernel = MultitaskKernel(data, num_tasks=2, rank=1, active_dims=[1])
    assert kernel.data_covar_module is data and kernel.num_tasks == kernel.num_outputs_per_input(x, x) == 2
    assert isinstance(kernel.task_covar_module, IndexKernel) and torch.equal(kernel.active_dims, torch.tensor([1]))
    gamma = kernel.task_covar_module.covar_matrix.to_dense()
    expected = torch.kron(RBFKernel()(x[:, 1:]).to_dense().contiguous(), gamma)  # not the columns of the data kernel
    assert torch.allclose(kernel(x).to_dense(), expected, atol=1e-6)
    assert kernel.task_covar_module.covar_factor.shape == (2, 1)


def test_multitask_normals_interleave_rows_and_index_kernels_take_numbers_of_tasks():
    assert multitask_normal()._interleaved
    kernel = IndexKernel(3, rank=2)
    tasks = torch.tensor([[2], [0]])
    expected = kernel.covar_matrix.to_dense()[tasks.squeeze(-1)][:, tasks.squeeze(-1)]
    assert torch.allclose(kernel(tasks).to_dense(), expected)


def test_a_shallow_copy_of_a_kernel_is_the_kernel():
    kernel = LinearKernel()
    assert copy.copy(kernel).__dict__ is kernel.__dict__


def test_kernels_without_parameters_have_the_default_dtype_and_no_device():
    kernel = Kernel().double()
    assert kernel.dtype == torch.float32 and kernel.device is None


def test_kernel_suite_ships_with_gpytorch():
    module = importlib.import_module("gpytorch.test.base_kernel_test_case")
    assert any(name.startswith("test_") for name in vars(module.BaseKernelTestCase))
