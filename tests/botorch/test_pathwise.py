"""BoTorch's pathwise sampling with kernels of features: draws have the moments of the posterior."""

import botorch
import gpytorch
import pytest
import torch
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.models import ModelListGP, MultiTaskGP, SingleTaskGP
from botorch.sampling.pathwise import draw_kernel_feature_paths, draw_matheron_paths, get_matheron_path_model
from botorch.sampling.pathwise.features.generators import GenKernelFeatures, gen_kernel_features
from gpytorch.kernels import IndexKernel, MaternKernel, MultitaskKernel, PolynomialKernel, RBFKernel, ScaleKernel

import rfgp
import rfgp.botorch
from rfgp.botorch import PathwiseFeatureMap

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
    pytest.mark.filterwarnings("ignore:.*A not p.d., added jitter"),
]

DRAWS, COLUMNS = 20_000, 2


def rows(num_rows=25, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(num_rows, COLUMNS, generator=generator)
    return x, torch.sin(4.0 * x.sum(-1, keepdim=True)) + 0.1 * torch.randn(num_rows, 1, generator=generator)


def approximated(exact, num_features=24, **options):
    return rfgp.approximate(exact, num_features, seed=0, **({"input_dim": COLUMNS} | options))


def landmarks():
    return approximated(
        ScaleKernel(MaternKernel(nu=2.5)), 10, input_dim=None, train_inputs=rows()[0], method="landmarks"
    )


KERNELS = {
    "plain": lambda: approximated(RBFKernel(ard_num_dims=COLUMNS)),
    "scale": lambda: approximated(ScaleKernel(RBFKernel())),
    "scale of GPyTorch": lambda: ScaleKernel(approximated(RBFKernel())),
    "complex": lambda: approximated(ScaleKernel(PolynomialKernel(power=2)), method="tensor_srht:complex"),
    "sum": lambda: approximated(ScaleKernel(RBFKernel()) + PolynomialKernel(power=2)),
    "product": lambda: approximated(ScaleKernel(RBFKernel() * PolynomialKernel(power=2))),
    "active dims": lambda: approximated(ScaleKernel(RBFKernel(active_dims=[1])) * RBFKernel(active_dims=[0])),
    "landmarks": landmarks,
    "waits for inputs": lambda: approximated(ScaleKernel(MaternKernel(nu=2.5)), input_dim=None),
}
each_kernel = pytest.mark.parametrize("name", KERNELS)


def single(kernel, outcome_transform=None):
    x, y = rows()
    model = SingleTaskGP(x, y, covar_module=kernel, outcome_transform=outcome_transform)
    model.likelihood.noise = 0.05
    return model.eval()


def check_moments(draws, mean, covariance):
    """Mean and covariance of independent draws (S, q) within five standard errors."""
    count, scales = len(draws), covariance.diagonal()
    assert ((draws.mean(0) - mean).abs() <= 5.0 * (scales / count).sqrt()).all()
    centered = draws - mean
    spread = scales[:, None] * scales + covariance.square()
    assert ((centered.mT @ centered / count - covariance).abs() <= 5.0 * (spread / count).sqrt()).all()


def of_features(model, x):
    """Mean and covariance at x without the residual variance of the features, which no function of them has."""
    (inputs,), noise = model.train_inputs, model.likelihood.noise
    kernel, mean = model.covar_module, model.mean_module
    cross, total = kernel(x, inputs).to_dense(), kernel(inputs).to_dense() + noise * torch.eye(len(inputs))
    solved = torch.linalg.solve(total, cross.mT)
    offset = model.train_targets - mean(inputs)
    return mean(x) + solved.mT @ offset, kernel(x).to_dense() - cross @ solved


def independent(shape):
    return torch.randn(shape)


def prior_sampler(model, sample_shape):
    return draw_kernel_feature_paths(model, sample_shape=sample_shape, weight_generator=independent)


@each_kernel
def test_paths_of_the_posterior_have_its_moments(name):
    model, at = single(KERNELS[name]()), torch.rand(4, COLUMNS)
    with torch.no_grad():
        draws = draw_matheron_paths(model, torch.Size([DRAWS]), prior_sampler=prior_sampler)(at)
        mean, covariance = of_features(model, at)
        check_moments(draws, mean, covariance)
        posterior = model.posterior(at)
        torch.testing.assert_close(posterior.mean.squeeze(-1), mean)
        if name != "landmarks":
            torch.testing.assert_close(posterior.distribution.covariance_matrix, covariance, rtol=1e-6, atol=1e-8)


@each_kernel
def test_paths_of_the_prior_have_its_moments(name):
    model, at = single(KERNELS[name]()), torch.rand(4, COLUMNS)
    with torch.no_grad():
        draws = prior_sampler(model, torch.Size([DRAWS]))(at)
        check_moments(draws, model.mean_module(at), model.covar_module(at).to_dense())


@each_kernel
def test_the_map_has_the_features_of_the_kernel(name):
    kernel, x = KERNELS[name](), torch.rand(5, COLUMNS)
    feature_map = gen_kernel_features(kernel, num_inputs=COLUMNS, num_outputs=7)
    features = feature_map(x)
    assert not features.is_complex() and features.shape == (5, feature_map.num_outputs)
    torch.testing.assert_close(features @ features.mT, kernel(x).to_dense())


def test_paths_are_functions_with_gradients_and_undo_the_standardization():
    model = single(KERNELS["scale"](), botorch.models.transforms.Standardize(m=1))
    at = torch.rand(6, COLUMNS, requires_grad=True)
    torch.manual_seed(3)
    paths = draw_matheron_paths(model, torch.Size([DRAWS]), prior_sampler=prior_sampler)
    values = paths(at)
    posterior = model.posterior(at)
    error = (posterior.variance.squeeze(-1) / DRAWS).sqrt()
    assert ((values.mean(0) - posterior.mean.squeeze(-1)).abs() <= 5.0 * error).all()
    path = get_matheron_path_model(model)
    torch.testing.assert_close(path(at), path(at))
    (slope,) = torch.autograd.grad(path(at).sum(), at)
    step = torch.zeros_like(at)
    step[:, 0] = 1e-5
    rise = (path(at + step) - path(at - step)).squeeze(-1) / 2e-5
    torch.testing.assert_close(slope[:, 0], rise, rtol=1e-5, atol=1e-6)


def test_thompson_samples_are_values_of_a_path():
    model = single(KERNELS["scale"]())
    acquisition, at = PathwiseThompsonSampling(model), torch.rand(7, 1, COLUMNS)
    values = acquisition(at)
    assert values.shape == (7,)
    torch.testing.assert_close(acquisition(at), values)
    posterior = model.posterior(at)
    assert ((values - posterior.mean.flatten()).abs() <= 6.0 * posterior.variance.flatten().sqrt()).all()


def test_several_models_and_batches_of_outputs():
    models = ModelListGP(single(KERNELS["scale"]()), single(KERNELS["sum"]()))
    at = torch.rand(4, COLUMNS)
    first, second = draw_matheron_paths(models, torch.Size([3]))(at)
    assert first.shape == second.shape == (3, 4)
    x, y = rows()
    kernel = approximated(ScaleKernel(RBFKernel(batch_shape=torch.Size([2])), batch_shape=torch.Size([2])))
    model = SingleTaskGP(x, torch.cat([y, -y], dim=-1), covar_module=kernel, outcome_transform=None).eval()
    with torch.no_grad():
        draws = draw_matheron_paths(model, torch.Size([DRAWS]), prior_sampler=prior_sampler)(at)
        assert draws.shape == (DRAWS, 2, 4)
        posterior = model.posterior(at)
        for output in range(2):
            error = (posterior.variance[:, output] / DRAWS).sqrt()
            assert ((draws[:, output].mean(0) - posterior.mean[:, output]).abs() <= 5.0 * error).all()


def test_tasks_in_a_column_have_paths():
    x, y = rows()
    with_task = torch.cat([x, torch.arange(len(x))[:, None] % 2], dim=-1)
    data = ScaleKernel(RBFKernel(active_dims=[0, 1]))
    kernel = approximated(data * IndexKernel(num_tasks=2, rank=1, active_dims=[2]), input_dim=COLUMNS + 1)
    model = SingleTaskGP(with_task, y, covar_module=kernel, outcome_transform=None)
    model.likelihood.noise = 0.05
    at = torch.cat([torch.rand(4, COLUMNS), torch.tensor([[0.0], [1.0], [0.0], [1.0]])], dim=-1)
    with torch.no_grad():
        draws = draw_matheron_paths(model.eval(), torch.Size([DRAWS]), prior_sampler=prior_sampler)(at)
        latent = model(at)
        check_moments(draws, latent.mean, latent.covariance_matrix)


def test_a_kernel_of_several_outputs_is_refused():
    kernel = approximated(MultitaskKernel(RBFKernel(), num_tasks=2))
    with pytest.raises(ValueError, match=r"^expected a kernel of one output for BoTorch's pathwise sampling, got"):
        PathwiseFeatureMap(kernel, COLUMNS)


def test_exact_kernels_keep_the_maps_of_botorch():
    for exact in (RBFKernel(), ScaleKernel(MaternKernel(nu=2.5))):
        assert not isinstance(gen_kernel_features(exact, num_inputs=2, num_outputs=8), PathwiseFeatureMap)


VERSION = f"BoTorch {botorch.__version__}"


def test_the_names_of_botorch_that_are_used_exist():
    assert callable(GenKernelFeatures.register), f"{VERSION} has no dispatcher GenKernelFeatures with register"
    kinds = {kind for (kind,) in GenKernelFeatures.funcs}
    assert {RBFKernel, ScaleKernel} <= kinds, f"{VERSION} registers other kernels than RBFKernel and ScaleKernel"
    asked = {}

    class Known(gpytorch.kernels.LinearKernel):
        pass

    GenKernelFeatures.register(Known)(lambda kernel, **options: asked.update(options) or PathwiseFeatureMap(known, 2))
    known = approximated(RBFKernel())
    draw_kernel_feature_paths(single(Known()), torch.Size([1]))
    del GenKernelFeatures.funcs[(Known,)]
    GenKernelFeatures.reorder()
    names = f"{VERSION} asks the generator for {sorted(asked)}"
    assert asked.keys() == {"num_inputs", "num_outputs"} and asked["num_inputs"] == COLUMNS, names
    base = PathwiseFeatureMap.__mro__[1]
    parts = {"num_outputs", "batch_shape", "input_transform", "output_transform"}
    assert parts == set(base.__annotations__), f"{VERSION} expects other attributes of a FeatureMap than {parts}"


def test_multitask_gp_takes_a_kernel_of_features():
    x, y = rows()
    with_task = torch.cat([x, torch.arange(len(x))[:, None] % 2], dim=-1)
    model = MultiTaskGP(with_task, y, task_feature=-1, covar_module=approximated(ScaleKernel(RBFKernel())))
    assert model.posterior(torch.rand(3, COLUMNS)).mean.isfinite().all()


@pytest.mark.parametrize("outputs", [1, 2])
def test_paths_of_a_weight_space_model_are_draws_of_its_posterior(outputs, count=600):
    x, new = (
        torch.rand(size, 2, generator=torch.Generator().manual_seed(size), dtype=torch.float64) for size in (30, 7)
    )
    y = torch.stack([x.sum(-1), x[:, 0].square()], dim=-1)[:, :outputs]
    model = rfgp.botorch.WeightSpaceModel(x, y, num_features=64, seed=0)
    torch.manual_seed(0)
    paths = get_matheron_path_model(model, torch.Size([count]))
    drawn, posterior = paths.posterior(new.expand(count, 7, 2)).mean, model.posterior(new)
    assert drawn.shape == (count, 7, outputs) and get_matheron_path_model(model).posterior(new).mean.shape == (
        7,
        outputs,
    )
    error = (posterior.variance / count).sqrt()
    assert bool(((drawn.mean(0) - posterior.mean).abs() < 5.0 * error).all())
    assert bool(((drawn.var(0) / posterior.variance - 1.0).abs() < 5.0 * (2.0 / count) ** 0.5).all())


def test_pathwise_thompson_sampling_takes_a_weight_space_model():
    x = torch.rand(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = rfgp.botorch.WeightSpaceModel(x, x.sum(-1, keepdim=True), num_features=32, seed=0)
    assert PathwiseThompsonSampling(model)(x[:4].unsqueeze(-2)).shape == (4,)
