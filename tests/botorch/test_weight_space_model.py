"""WeightSpaceModel against BoTorch's SingleTaskGP with the very same kernel."""

import copy
import pickle

import gpytorch
import pytest
import torch
from botorch.acquisition import qKnowledgeGradient
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.acquisition.proximal import ProximalAcquisitionFunction
from botorch.cross_validation import efficient_loo_cv
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.optim.utils import get_X_baseline
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import Kernel, MaternKernel, MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.operators import DiagLinearOperator

import rfgp
from rfgp.botorch import WeightSpaceModel
from rfgp.botorch.checks import checked_noise

pytestmark = pytest.mark.filterwarnings("ignore:.*not standardized", "ignore:.*single precision", "ignore:.*Data")
D = 64


def rand(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def problem(outputs=1, rows=30):
    x = rand(rows, 2)
    columns = [torch.sin(5.0 * x + t).sum(-1) for t in range(outputs)]
    return x, torch.stack(columns, -1) + 0.1 * rand(rows, outputs, seed=1)


def features(seed=0):
    kernel = ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2)).double()
    kernel.base_kernel.lengthscale = torch.tensor([[0.2, 0.3]])
    return rfgp.approximate(kernel, D, input_dim=2, seed=seed)


class Reference(Kernel):
    """A plain kernel of GPyTorch on the same features."""

    def __init__(self, kernel, batch=()):
        super().__init__(batch_shape=torch.Size(batch))
        self.same = kernel

    def forward(self, x1, x2, diag=False, **params):
        left, right = self.same.features(x1), self.same.features(x2)
        return (left * right).sum(-1) if diag else left @ right.mT


def pair(noise=False, **transforms):
    x, y = problem()
    variances = 0.01 + 0.05 * rand(30, 1, seed=2) if noise else None
    kernel = features()
    options = {name: copy.deepcopy(part) for name, part in transforms.items()}
    model = WeightSpaceModel(x, y, variances, kernel=kernel, **transforms)
    if not noise:
        model.likelihood.noise = 0.05
        options["likelihood"] = model.likelihood
    model.mean_module.initialize(constant=0.2)
    reference = SingleTaskGP(x, y, variances, covar_module=Reference(kernel), mean_module=model.mean_module, **options)
    return model, reference.requires_grad_(False)


def sampler(count=64):
    return SobolQMCNormalSampler(torch.Size([count]), seed=3)


def check_posteriors(found, wanted, tol=1e-8):
    assert found.distribution.batch_shape == wanted.distribution.batch_shape
    torch.testing.assert_close(found.mean, wanted.mean, rtol=tol, atol=tol)
    torch.testing.assert_close(found.variance, wanted.variance, rtol=tol, atol=tol)
    torch.testing.assert_close(
        found.distribution.covariance_matrix, wanted.distribution.covariance_matrix, rtol=tol, atol=tol
    )
    torch.testing.assert_close(sampler()(found), sampler()(wanted), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("noise", [False, True], ids=["learned", "known"])
@pytest.mark.parametrize("shape", [(4, 2), (5, 3, 2), (2, 5, 1, 2)])
def test_posterior_is_that_of_single_task_gp(shape, noise):
    model, reference = pair(noise)
    x = rand(*shape, seed=4)
    check_posteriors(model.posterior(x), reference.posterior(x))
    check_posteriors(model.posterior(x, observation_noise=True), reference.posterior(x, observation_noise=True))
    given = 0.1 + rand(*shape[:-1], 1, seed=5)
    check_posteriors(model.posterior(x, observation_noise=given), reference.posterior(x, observation_noise=given))


ACQUISITIONS = {
    "qLogEI": lambda model: qLogExpectedImprovement(model, 1.0, sampler=sampler()),
    "qLogNEI": lambda model: qLogNoisyExpectedImprovement(model, model.train_inputs[0], sampler=sampler()),
    "qLogNEI, no root kept": lambda model: qLogNoisyExpectedImprovement(
        model, model.train_inputs[0], sampler=sampler(), cache_root=False, prune_baseline=False
    ),
    "qKG": lambda model: qKnowledgeGradient(model, num_fantasies=8, sampler=sampler(8)),
    "qKG of samples": lambda model: qKnowledgeGradient(
        model, num_fantasies=8, sampler=sampler(8), inner_sampler=sampler(), objective=_objective()
    ),
}


def _objective():
    from botorch.acquisition import IdentityMCObjective

    return IdentityMCObjective()


@pytest.mark.parametrize("noise", [False, True], ids=["learned", "known"])
@pytest.mark.parametrize("name", ACQUISITIONS)
def test_acquisition_functions_are_those_of_single_task_gp(name, noise):
    values, slopes = [], []
    for model in pair(noise):
        torch.manual_seed(0)
        acquisition = ACQUISITIONS[name](model)
        x = rand(3, 3 + (8 if "KG" in name else 0), 2, seed=4).requires_grad_()
        value = acquisition(x)
        values.append(value.detach())
        slopes.append(torch.autograd.grad(value.sum(), x)[0])
    torch.testing.assert_close(*values, rtol=1e-8, atol=1e-8)
    if name != "qKG of samples":
        torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-6)


def test_slopes_run_through_the_covariance_of_fantasies():
    """SingleTaskGP loses a part of them."""
    acquisition = ACQUISITIONS["qKG of samples"](pair()[0])
    assert torch.autograd.gradcheck(acquisition, rand(1, 10, 2, seed=4).requires_grad_(), fast_mode=True)


@pytest.mark.parametrize(
    "transforms",
    [
        {"outcome_transform": None},
        {"outcome_transform": Standardize(m=1), "input_transform": Normalize(d=2)},
        {"input_transform": Normalize(d=2, bounds=torch.tensor([[-1.0, -1.0], [2.0, 3.0]], dtype=torch.float64))},
    ],
    ids=["none", "both", "bounds"],
)
def test_transforms_are_those_of_single_task_gp(transforms):
    model, reference = pair(**transforms)
    x = rand(5, 3, 2, seed=4)
    check_posteriors(model.posterior(x), reference.posterior(x))
    values = [part.fantasize(x, sampler(4)).posterior(x) for part in (model, reference)]
    check_posteriors(*values)


def test_an_outcome_transform_that_is_not_linear():
    x, y = problem()
    models = [kind(x, y.exp(), outcome_transform=Log(), **part) for kind, part in _kinds().items()]
    models[1].likelihood = models[0].likelihood
    models[1].mean_module = models[0].mean_module
    posteriors = [model.posterior(rand(5, 3, 2, seed=4)) for model in models]
    torch.testing.assert_close(posteriors[0].mean, posteriors[1].mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(sampler()(posteriors[0]), sampler()(posteriors[1]), rtol=1e-6, atol=1e-6)


def _kinds():
    kernel = features()
    return {WeightSpaceModel: {"kernel": kernel}, SingleTaskGP: {"covar_module": Reference(kernel)}}


@pytest.mark.parametrize("noise", [False, True], ids=["learned", "known"])
@pytest.mark.parametrize("shape", [(3, 2), (5, 3, 2)])
def test_fantasies_are_those_of_single_task_gp(shape, noise):
    model, reference = pair(noise)
    x, new = rand(*shape, seed=4), rand(4, 2, seed=5)
    for part in (model, reference):
        part.posterior(new)
    found, wanted = (part.fantasize(x, sampler(6)) for part in (model, reference))
    assert found.batch_shape == wanted.batch_shape == (6, *shape[:-2])
    assert found.num_outputs == 1
    torch.testing.assert_close(found.train_inputs[0], wanted.train_inputs[0])
    torch.testing.assert_close(found.train_targets, wanted.train_targets, rtol=1e-6, atol=1e-6)
    check_posteriors(found.posterior(new), wanted.posterior(new))
    at_each = rand(6, *shape[:-2], 2, 2, seed=6)
    check_posteriors(found.posterior(at_each), wanted.posterior(at_each))
    check_posteriors(
        found.posterior(at_each, observation_noise=True), wanted.posterior(at_each, observation_noise=True)
    )


def test_fantasies_of_fantasies():
    model, _ = pair()
    first, second, new = rand(3, 2, 2, seed=4), rand(1, 2, seed=5), rand(4, 2, seed=6)
    found = model.fantasize(first, sampler(5))
    both = found.fantasize(second, sampler(7))
    assert both.batch_shape == (7, 5, 3)
    y = both.outcome_transform.untransform(both.train_targets.unsqueeze(-1))[0]
    one = SingleTaskGP(
        both.train_inputs[0][1, 2, 0],
        y[1, 2, 0],
        covar_module=Reference(model.covar_module),
        likelihood=model.likelihood,
        mean_module=model.mean_module,
        outcome_transform=model.outcome_transform,
    )
    one.outcome_transform = model.outcome_transform
    one.set_train_data(targets=both.train_targets[1, 2, 0], strict=False)
    found, wanted = both.posterior(new), one.posterior(new)
    torch.testing.assert_close(found.mean[1, 2, 0], wanted.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.variance.expand(7, 5, 3, 4, 1)[1, 2, 0], wanted.variance, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("noise", [False, True], ids=["learned", "known"])
def test_hundreds_of_observations_one_by_one_are_a_refit(noise):
    x, y = problem(rows=330)
    variances = 0.05 + 0.05 * rand(330, 1, seed=2) if noise else None
    kernel = features()
    some = slice(30)
    model = WeightSpaceModel(
        x[some], y[some], None if variances is None else variances[some], kernel=kernel, outcome_transform=None
    )
    current = model
    for i in range(30, 330):
        row = slice(i, i + 1)
        current = current.condition_on_observations(x[row], y[row], noise=None if variances is None else variances[row])
    likelihood = None if noise else model.likelihood
    whole = WeightSpaceModel(x, y, variances, kernel=kernel, likelihood=likelihood, outcome_transform=None)
    whole.mean_module.load_state_dict(model.mean_module.state_dict())
    new = rand(5, 3, 2, seed=4)
    check_posteriors(current.posterior(new), whole.posterior(new))
    check_posteriors(current.posterior(new, observation_noise=True), whole.posterior(new, observation_noise=True))
    assert current.train_inputs[0].equal(x) and current.train_targets.equal(y.squeeze(-1))
    assert model.train_inputs[0].shape == (30, 2)


def test_a_conditioned_model_keeps_its_values_and_can_be_fitted():
    model, _ = pair()
    new, (x, y) = rand(4, 2, seed=4), problem(rows=40)
    found = model.condition_on_observations(x[30:], y[30:])
    before = found.posterior(new).mean
    model.covar_module.exact_kernel.base_kernel.lengthscale = 0.2
    model.likelihood.noise = 0.3
    assert not torch.allclose(model.posterior(new).mean, before)
    torch.testing.assert_close(found.posterior(new).mean, before)
    found.requires_grad_(True)
    summary = found.fit(max_evaluations=20)
    assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
    torch.testing.assert_close(
        model.covar_module.exact_kernel.base_kernel.lengthscale, torch.full((1, 2), 0.2).double()
    )
    assert not torch.allclose(found.posterior(new).mean, before)


def test_a_change_of_parameters_is_noticed():
    model, reference = pair()
    x = rand(4, 2, seed=4)
    model.posterior(x)
    reference.train()
    model.covar_module.exact_kernel.base_kernel.lengthscale = 0.3
    check_posteriors(model.posterior(x), reference.posterior(x))
    model.covar_module.resample(torch.Generator().manual_seed(1))
    reference.train()
    check_posteriors(model.posterior(x), reference.posterior(x))


def many(outputs=2, noise=False):
    """Independent outputs, and a SingleTaskGP for each."""
    x, y = problem(outputs)
    variances = 0.01 + 0.05 * rand(30, outputs, seed=2) if noise else None
    base = RBFKernel(ard_num_dims=2).double()
    base.lengthscale = torch.tensor([[0.5, 0.8]])
    model = WeightSpaceModel(x, y, variances, kernel=base, num_features=D, seed=0)
    if not noise:
        model.likelihood.task_noises = torch.linspace(0.05, 0.2, outputs)
    model.covar_module.task_covar_module.var = torch.linspace(0.7, 1.5, outputs)
    references = []
    for t in range(outputs):
        kernel = ScaleKernel(Reference(_Data(model.covar_module))).double()
        kernel.outputscale = float(model.covar_module.task_covar_module.var[t])
        part = SingleTaskGP(x, y[:, [t]], None if variances is None else variances[:, [t]], covar_module=kernel)
        if not noise:
            part.likelihood.noise = float(model.likelihood.task_noises[t])
        references.append(part.requires_grad_(False))
    return model, references


class _Data(torch.nn.Module):
    """The scalar features of a kernel of several outputs."""

    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def features(self, x):
        return self.kernel.scalar_features(x)


@pytest.mark.parametrize("noise", [False, True], ids=["learned", "known"])
@pytest.mark.parametrize("shape", [(4, 2), (5, 3, 2)])
def test_independent_outputs_are_models_of_each(shape, noise):
    model, references = many(noise=noise)
    x = rand(*shape, seed=4)
    for kind in (False, True):
        found = model.posterior(x, observation_noise=kind)
        assert sampler()(found).shape == (64, *shape[:-1], 2)
        for t, reference in enumerate(references):
            wanted = reference.posterior(x, observation_noise=kind)
            torch.testing.assert_close(found.mean[..., [t]], wanted.mean, rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(found.variance[..., [t]], wanted.variance, rtol=1e-8, atol=1e-8)
            one = model.posterior(x, output_indices=[t], observation_noise=kind)
            check_posteriors(one, wanted)
            check_posteriors(model.subset_output([t]).posterior(x, observation_noise=kind), wanted)
    y = torch.stack([torch.sin(x).sum(-1), torch.cos(x).sum(-1)], -1)
    given = 0.1 + rand(*shape[:-1], 2, seed=7) if noise else None
    new = model.condition_on_observations(x, y, noise=given)
    part = model.subset_output([1]).condition_on_observations(
        x, y[..., [1]], noise=None if given is None else given[..., [1]]
    )
    at = rand(3, 2, seed=8)
    references[1].posterior(at)
    known = {} if given is None else {"noise": given[..., [1]]}
    wanted = references[1].condition_on_observations(x, y[..., [1]], **known).posterior(at)
    check_posteriors(part.posterior(at), wanted)
    torch.testing.assert_close(new.posterior(at).mean[..., [1]], wanted.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(
        new.posterior(at).variance[..., [1]].expand_as(wanted.variance), wanted.variance, rtol=1e-8, atol=1e-8
    )
    assert new.train_targets.shape == (*shape[:-2], 2, 30 + shape[-2])


def test_independent_outputs_are_drawn_as_by_single_task_gp():
    x, y = problem(2)
    kernel = features()
    several = MultitaskKernel(kernel.exact_kernel, num_tasks=2, rank=0)
    several.task_covar_module.var = torch.ones(2)
    model = WeightSpaceModel(x, y, kernel=rfgp.approximate(several, D, input_dim=2, seed=0))
    reference = SingleTaskGP(x, y, covar_module=Reference(kernel, (2,)))
    with torch.no_grad():
        reference.likelihood.noise = model.likelihood.task_noises.unsqueeze(-1)
    reference.requires_grad_(False)
    at = rand(5, 3, 2, seed=4)
    check_posteriors(model.posterior(at), reference.posterior(at))
    assert model.posterior(at).distribution._interleaved is False
    weights = ScalarizedPosteriorTransform(torch.tensor([0.3, 0.7], dtype=torch.float64))
    found, wanted = (part.posterior(at, posterior_transform=weights) for part in (model, reference))
    torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(sampler()(found), sampler()(wanted), rtol=1e-6, atol=1e-6)
    values = []
    for part in (model, reference):
        torch.manual_seed(0)
        acquisition = qLogNoisyExpectedImprovement(part, x, sampler=sampler(), posterior_transform=weights)
        values.append(acquisition(at))
    torch.testing.assert_close(*values, rtol=1e-8, atol=1e-8)
    check_posteriors(*(part.fantasize(at, sampler(4)).posterior(at) for part in (model, reference)))


def correlated():
    x, y = problem(3)
    kernel = MultitaskKernel(RBFKernel(ard_num_dims=2), num_tasks=3, rank=2).double()
    torch.manual_seed(0)
    kernel.task_covar_module.covar_factor.data.normal_()
    return WeightSpaceModel(x, y, kernel=kernel, num_features=D, seed=0, outcome_transform=None)


@pytest.mark.parametrize("rank", [0, 1])
def test_correlated_outputs_are_the_dense_posterior(rank):
    x, y = problem(3)
    model = correlated()
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(3, rank=rank).double()
    model = WeightSpaceModel(
        x,
        y,
        kernel=model.covar_module,
        likelihood=likelihood,
        mean=gpytorch.means.ConstantMean(),
        outcome_transform=None,
    )
    at, new = rand(4, 3, 2, seed=4), rand(2, 2, seed=5)
    z = rand(2, 3, seed=6)
    found = model.condition_on_observations(new, z).posterior(at, observation_noise=True)
    inputs, targets = torch.cat([x, new]), torch.cat([y, z])
    kernel = model.covar_module
    nothing = DiagLinearOperator(torch.zeros(96, dtype=torch.float64))
    zero = gpytorch.distributions.MultitaskMultivariateNormal(torch.zeros(32, 3).double(), nothing)
    noise = likelihood(zero).covariance_matrix.detach()
    dense = (kernel.features(inputs) @ kernel.features(inputs).mT + noise).detach()
    for i in range(4):
        cross = (kernel.features(at[i]) @ kernel.features(inputs).mT).detach()
        mean = (cross @ torch.linalg.solve(dense, targets.reshape(-1))).reshape(3, 3)
        covariance = kernel.features(at[i]) @ kernel.features(at[i]).mT - cross @ torch.linalg.solve(dense, cross.mT)
        torch.testing.assert_close(found.mean[i], mean, rtol=1e-8, atol=1e-8)
        whole = covariance.detach() + noise[:9, :9]
        torch.testing.assert_close(found.distribution.covariance_matrix[i], whole, rtol=1e-8, atol=1e-8)
    assert sampler()(found).shape == (64, 4, 3, 3)
    one = model.posterior(at, output_indices=[2, 0])
    torch.testing.assert_close(one.mean, model.posterior(at).mean[..., [2, 0]])
    torch.testing.assert_close(model.subset_output([1]).posterior(at).variance, model.posterior(at).variance[..., [1]])
    assert model.fantasize(at, sampler(5)).posterior(new).mean.shape == (5, 4, 2, 3)


def test_landmarks_add_the_variance_that_they_lack():
    x, y = problem()
    kernel = rfgp.approximate(RBFKernel(ard_num_dims=2).double(), 8, method="landmarks", train_inputs=x, seed=0)
    model = WeightSpaceModel(x, y, kernel=kernel, outcome_transform=None)
    at = rand(4, 2, seed=4)
    wanted = model.gp.condition(x, y.squeeze(-1)).posterior(at)
    found = model.posterior(at)
    torch.testing.assert_close(found.mean.squeeze(-1), wanted.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.distribution.covariance_matrix, wanted.covariance_matrix, rtol=1e-8, atol=1e-8)


def test_defaults_are_those_of_single_task_gp():
    x, y = problem(rows=60)
    model, reference = WeightSpaceModel(x, y, num_features=512, seed=0), SingleTaskGP(x, y)
    names = sorted(name.rpartition(".")[2] for name, *_ in model.named_priors())
    assert names == sorted(name.rpartition(".")[2] for name, *_ in reference.named_priors())
    for part in (model, reference):
        mll = ExactMarginalLogLikelihood(part.likelihood, part)
        assert fit_gpytorch_mll(mll) is mll and not part.training
    at = rand(20, 1, 2, seed=4)
    found, wanted = model.posterior(at), reference.posterior(at)
    assert ((found.mean - wanted.mean).abs() < 0.05 * y.std()).all()
    torch.testing.assert_close(
        model.covar_module.exact_kernel.lengthscale, reference.covar_module.lengthscale, rtol=0.1, atol=0.0
    )


def test_defaults_of_several_outputs():
    x, y = problem(3)
    model = WeightSpaceModel(x, y, num_features=D, seed=0)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer_kwargs={"max_evaluations": 20})
    torch.testing.assert_close(model.covar_module.task_covar_module.var, torch.ones(3).double())
    error = model.posterior(x).mean - y
    assert (error.std(0) < 0.5 * y.std(0)).all()
    assert len({float(mean.constant.detach()) for mean in model.mean_module.base_means}) == 3
    names = [name for name, *_ in model.named_priors()]
    assert len(names) == 2


def test_iterations_of_botorchs_optimizer_are_evaluations():
    x, y = problem()
    found = [WeightSpaceModel(x, y, kernel=features()) for _ in range(2)]
    for model, options in zip(found, ({"options": {"maxiter": 3}}, {"max_evaluations": 3}), strict=True):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer_kwargs=options)
    assert all(map(torch.equal, *(model.parameters() for model in found)))
    assert not torch.equal(found[0].likelihood.noise, WeightSpaceModel(x, y, kernel=features()).likelihood.noise)
    with pytest.raises(ValueError, match="maxiter alone among the options of BoTorch's optimizer, got gtol"):
        found[0].custom_fit(None, optimizer_kwargs={"options": {"gtol": 1e-3}})


def test_functions_are_drawn_where_observations_have_gradients():
    x, y = problem()
    model = WeightSpaceModel(x, y.requires_grad_(), kernel=features())
    same = WeightSpaceModel(x, y.detach(), kernel=features())
    torch.manual_seed(1)
    drawn = model.sample_functions(2)(x)
    torch.manual_seed(1)
    torch.testing.assert_close(drawn, same.sample_functions(2)(x))


def test_float32():
    x, y = problem()
    kernel = features()
    exact = WeightSpaceModel(x, y, kernel=kernel)
    exact.likelihood.noise = 0.05
    model = WeightSpaceModel(x.float(), y.float(), kernel=copy.deepcopy(kernel).float(), likelihood=exact.likelihood)
    at = rand(5, 3, 2, seed=4)
    found = model.posterior(at.float())
    assert found.mean.dtype == found.rsample().dtype == torch.float32
    torch.testing.assert_close(found.mean.double(), exact.posterior(at).mean, rtol=1e-3, atol=1e-3)
    value = qLogExpectedImprovement(model, 0.0, sampler=sampler())(at.float())
    wanted = qLogExpectedImprovement(exact, 0.0, sampler=sampler())(at)
    torch.testing.assert_close(value.double(), wanted, rtol=1e-3, atol=1e-3)
    assert torch.isfinite(qLogNoisyExpectedImprovement(model, x.float(), sampler=sampler())(at.float())).all()
    assert model.fantasize(at.float(), sampler(4)).posterior(at.float()).mean.dtype == torch.float32


def test_conditioned_models_follow_their_dtype_and_refuse_points_of_another_batch():
    x, y = problem()
    at = rand(5, 2, seed=4)
    exact = WeightSpaceModel(x, y, kernel=features()).condition_on_observations(at, torch.ones(5, 1))
    wanted = exact.posterior(at).mean
    found = copy.deepcopy(exact).float().posterior(at.float()).mean
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, rtol=1e-3, atol=1e-3)
    batch = exact.condition_on_observations(rand(2, 3, 2), torch.ones(2, 3, 1))
    assert batch.posterior(rand(2, 4, 2)).mean.shape == (2, 4, 1)
    with pytest.raises(ValueError, match="expected X of shape"):
        batch.posterior(rand(5, 4, 2))


def test_optimize_acqf():
    model, _ = pair()
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    for name, q in (("qLogNEI", 2), ("qKG", 1)):
        candidate, value = optimize_acqf(ACQUISITIONS[name](model), bounds, q, num_restarts=2, raw_samples=8)
        assert candidate.shape == (q, 2) and torch.isfinite(value).all()


def test_many_points_at_once_need_no_matrix_of_pairs():
    model, _ = pair()
    x = rand(30_000, 2, seed=4)
    posterior = model.posterior(x)
    few = model.posterior(x[:10])
    torch.testing.assert_close(posterior.mean[:10], few.mean)
    torch.testing.assert_close(posterior.variance[:10], few.variance)
    torch.manual_seed(0)
    draws = posterior.rsample(torch.Size([400]))[:, :10, 0]
    covariance = few.distribution.covariance_matrix
    variance = covariance.diagonal()
    error = ((variance[:, None] * variance + covariance.square()) / 400).sqrt()
    assert ((torch.cov(draws.mT) - covariance).abs() < 5 * error).all()
    noisy = model.posterior(x, observation_noise=True)
    scale = model.outcome_transform.stdvs.square() * 0.05
    torch.testing.assert_close(noisy.variance[:10], few.variance + scale)
    assert model.posterior(x[:3000]).rsample(torch.Size([2])).shape == (2, 3000, 1)


def test_more_baseline_points_than_features():
    x, y = problem(rows=200)
    model = WeightSpaceModel(x, y, kernel=features())
    acquisition = qLogNoisyExpectedImprovement(model, x, sampler=sampler(), prune_baseline=False)
    assert torch.isfinite(acquisition(rand(4, 2, 2, seed=4))).all()


@pytest.mark.parametrize("outputs", [1, 2])
def test_function_samples(outputs):
    x, y = problem(outputs)
    model = WeightSpaceModel(x, y, num_features=D, seed=0, input_transform=Normalize(d=2))
    torch.manual_seed(0)
    count = 4000
    sample = model.sample_functions(count)
    at = rand(3, 2, 2, seed=4)
    values = sample(at)
    assert values.shape == (count, 3, 2, outputs)
    torch.testing.assert_close(sample(at[1]), values[:, 1])
    torch.testing.assert_close(pickle.loads(pickle.dumps(sample))(at), values)
    posterior = model.posterior(at)
    error = (posterior.variance / count).sqrt()
    assert ((values.mean(0) - posterior.mean).abs() < 5 * error).all()
    assert ((values.var(0) - posterior.variance).abs() < 5 * posterior.variance * (2 / count) ** 0.5).all()
    one = model.sample_functions(1)
    point = at.clone().requires_grad_()
    assert torch.autograd.grad(one(point).sum(), point)[0].abs().max() > 0
    before = one(at)
    model.likelihood.initialize(**({"noise": 0.5} if outputs == 1 else {"task_noises": torch.full((2,), 0.5)}))
    torch.testing.assert_close(one(at), before)


def test_a_model_without_rows():
    model, _ = pair(outcome_transform=None)
    x, at = problem(rows=40)[0], rand(4, 2, seed=4)
    y = problem(rows=40)[1]
    gp = copy.deepcopy(model.gp).condition(x[:30], y[:30].squeeze(-1))
    bare = WeightSpaceModel.from_model(gp)
    check_posteriors(bare.posterior(at), model.posterior(at))
    new = (part.condition_on_observations(x[30:], y[30:]).posterior(at) for part in (bare, model))
    check_posteriors(*new)
    assert bare.batch_shape == () and bare.fantasize(at, sampler(3)).batch_shape == (3,)
    with pytest.raises(ValueError, match="keeps none"):
        bare.fit()


def test_states_and_copies():
    model, _ = pair()
    at = rand(4, 2, seed=4)
    wanted = model.posterior(at).mean
    torch.testing.assert_close(copy.deepcopy(model).posterior(at).mean, wanted)
    torch.testing.assert_close(pickle.loads(pickle.dumps(model)).posterior(at).mean, wanted)
    x, y = problem()
    other = WeightSpaceModel(x, y, kernel=features(seed=5))
    other.posterior(at)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other.posterior(at).mean, wanted)
    few = WeightSpaceModel(x[:20], y[:20], kernel=features(seed=5))
    few.load_state_dict(model.state_dict())
    again = WeightSpaceModel(x[:20], y[:20], kernel=model.covar_module, likelihood=model.likelihood)
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(few.posterior(at).mean, again.posterior(at).mean)
    assert not torch.allclose(few.posterior(at).mean, wanted)


def test_bad_calls():
    x, y = problem()
    with pytest.raises(ValueError, match=r"shape \(N, d\)"):
        WeightSpaceModel(x.expand(2, 30, 2), y.expand(2, 30, 1))
    with pytest.raises(ValueError, match="features of one output"):
        WeightSpaceModel(x, torch.cat([y, y], -1), kernel=features())
    blocks = rfgp.approximate(RBFKernel().double(), 8, method="landmarks", train_inputs=x)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    with pytest.raises(ValueError, match="without blocks"):
        WeightSpaceModel.from_model(rfgp.WeightSpaceGP(blocks, likelihood, block_size=4))
    model, _ = pair()
    with pytest.raises(ValueError, match=r"expected X \(..., q, d\) and Y"):
        model.condition_on_observations(x, torch.cat([y, y], -1))
    with pytest.raises(ValueError, match="finite"):
        model.condition_on_observations(x, torch.full_like(y, torch.nan))
    with pytest.raises(ValueError, match="optimizer_kwargs"):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer=lambda *args, **kwargs: None)
    fantasies = model.fantasize(x[:2], sampler(3))
    with pytest.raises(ValueError, match="before it is conditioned"):
        fantasies.fit()
    with pytest.raises(ValueError, match="without batch dimensions"):
        fantasies.sample_functions(2)
    many_outputs = correlated()
    with pytest.raises(ValueError, match="or divided"):
        many_outputs.subset_output([0]).fit()


@pytest.mark.parametrize("transform", [None, Normalize(2)])
def test_training_mode_and_forward_are_the_prior_as_in_single_task_gp(transform):
    model, reference = pair(**({} if transform is None else {"input_transform": transform}))
    found, wanted = efficient_loo_cv(model).posterior, efficient_loo_cv(reference).posterior
    torch.testing.assert_close(found.mean, wanted.mean)
    torch.testing.assert_close(found.variance, wanted.variance)
    for each in (model, reference):
        each.train()
    values = [
        ExactMarginalLogLikelihood(each.likelihood, each)(each(*each.train_inputs), each.train_targets)
        for each in (model, reference)
    ]
    torch.testing.assert_close(*values)
    model.eval()
    at = rand(4, 2, seed=4)
    torch.testing.assert_close(
        model(model.transform_inputs(at)).mean, reference.eval()(reference.transform_inputs(at)).mean
    )


def test_training_inputs_are_transformed_in_evaluation_mode_as_in_single_task_gp():
    model, reference = pair(input_transform=Normalize(d=2, bounds=torch.tensor([[-1.0, -1.0], [2.0, 3.0]]).double()))
    for mode in (True, False, True):
        for one in (model, reference):
            one.train(mode)
        torch.testing.assert_close(model.train_inputs[0], reference.train_inputs[0])
    values, baselines = [], []
    for one in (model.eval(), reference.eval()):
        base = qLogExpectedImprovement(one, best_f=0.0, sampler=sampler())
        near = ProximalAcquisitionFunction(base, proximal_weights=torch.tensor([0.3, 0.5]).double(), beta=1.0)
        values.append(near(rand(4, 1, 2, seed=5)))
        baselines.append(get_X_baseline(base))
    torch.testing.assert_close(*values, rtol=1e-6, atol=1e-6)
    assert torch.equal(*baselines)


def test_the_prior_of_several_outputs():
    x, y = problem(3)
    model = WeightSpaceModel(x, y, num_features=D, seed=0)
    value = ExactMarginalLogLikelihood(model.likelihood, model)(model(x), model.train_targets.mT)
    model.eval()
    wanted = model.gp.condition(x, model.train_targets.mT).log_marginal_likelihood()
    terms = sum(prior.log_prob(closure(part)).sum() for _, part, prior, closure, _ in model.named_priors())
    torch.testing.assert_close(value * y.numel(), wanted + terms)


def test_bad_data():
    x, y = problem()
    for bad in (x.numpy(), (10 * x).long(), x[:0], x[0]):
        with pytest.raises(ValueError, match="train_X"):
            WeightSpaceModel(bad, y)
    for bad in (y.tolist(), (10 * y).long(), y.float(), y[:, :0], y[:, 0], y.to(torch.complex128)):
        with pytest.raises(ValueError, match="train_Y"):
            WeightSpaceModel(x, bad)
    with pytest.raises(ValueError, match="train_Yvar"):
        WeightSpaceModel(x, y, 0.1)


def test_bad_points_outputs_and_noise():
    x, y = problem(2)
    model = WeightSpaceModel(x, y, num_features=D, seed=0)
    at = rand(3, 2, seed=4)
    functions, nan = model.sample_functions(2), torch.full_like(at, torch.nan)
    for call in (model.posterior, functions, lambda points: model.condition_on_observations(points, y[:3])):
        with pytest.raises(ValueError, match="finite values in X"):
            call(nan)
    for indices in ([2], [-3], [], [0, 5]):
        with pytest.raises(ValueError, match="of outputs"):
            model.posterior(at, output_indices=indices)
        with pytest.raises(ValueError, match="of outputs"):
            model.subset_output(indices)
    last = model.posterior(at).mean[:, 1:]
    torch.testing.assert_close(model.posterior(at, output_indices=[-1]).mean, last)
    torch.testing.assert_close(model.subset_output([-1]).posterior(at).mean, last)
    shapes = torch.ones(4, 2).double(), torch.ones(3, 3).double(), torch.ones(3).double()
    for noise in (0.1, *shapes, -torch.ones(3, 2).double(), torch.ones(3, 2)):
        with pytest.raises(ValueError, match="noise"):
            model.posterior(at, observation_noise=noise)
        with pytest.raises(ValueError, match="noise"):
            model.condition_on_observations(at, y[:3], noise=noise)
    for noise in shapes:
        with pytest.raises(ValueError, match=r"expected noise variances of shape \(..., 3, 2\)"):
            checked_noise(noise, at, 2)


def test_pickles_with_several_outputs_and_priors_that_are_registered_by_name():
    x, y = problem(2)
    model, at = WeightSpaceModel(x, y, num_features=D, seed=0), rand(3, 2, seed=4)
    assert len(list(model.named_priors())) == 2
    torch.testing.assert_close(pickle.loads(pickle.dumps(model)).posterior(at).mean, model.posterior(at).mean)
    kernel = features()
    kernel.register_prior("outputscale_prior", gpytorch.priors.GammaPrior(2.0, 1.0), "outputscale")
    functions = WeightSpaceModel(x, y[:, :1], kernel=kernel).sample_functions(2)
    assert torch.equal(pickle.loads(pickle.dumps(functions))(at), functions(at))
    assert len(list(kernel.named_priors())) == 1


@pytest.mark.parametrize("noise", [False, True])
def test_leaving_out_has_the_format_and_values_of_botorch(noise):
    model, reference = pair(noise, outcome_transform=Standardize(m=1))
    for observation_noise in (True, False):
        expected = efficient_loo_cv(reference, observation_noise=observation_noise)
        found = model.leave_out(observation_noise=observation_noise)
        for actual, wanted in (
            (found.posterior.mean, expected.posterior.mean),
            (found.posterior.variance, expected.posterior.variance),
            (found.observed_Y, expected.observed_Y),
        ):
            torch.testing.assert_close(actual, wanted, rtol=1e-6, atol=1e-8)
        assert (found.observed_Yvar is None) == (expected.observed_Yvar is None) == (not noise)
        if noise:
            torch.testing.assert_close(found.observed_Yvar, expected.observed_Yvar)
    grouped = model.leave_out(5)
    assert grouped.posterior.mean.shape == (30, 1, 1) and grouped.model is model


def test_leaving_out_several_outputs_and_what_cannot_be_left_out():
    x, y = problem(2)
    model = WeightSpaceModel(x, y, num_features=32, seed=0)
    found = model.leave_out()
    assert found.posterior.mean.shape == found.posterior.variance.shape == found.observed_Y.shape == (30, 1, 2)
    torch.testing.assert_close(found.observed_Y, y.unsqueeze(1))
    assert float((found.posterior.mean - found.observed_Y).abs().mean()) < 0.5
    model.posterior(x[:1])
    with pytest.raises(ValueError, match="not conditioned"):
        model.condition_on_observations(x[:1], y[:1]).leave_out()
