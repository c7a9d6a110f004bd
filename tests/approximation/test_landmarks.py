"""Landmark features: kernels, which rows they take, and everything that takes a kernel with features."""

from __future__ import annotations

import copy
import pickle

import gpytorch
import pytest
import torch
from feature_parts import parts
from gpytorch.kernels import (
    AdditiveKernel,
    HammingIMQKernel,
    IndexKernel,
    InducingPointKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    PiecewisePolynomialKernel,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    RBFKernelGrad,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from kernel_suite import suite
from linear_operator import to_dense
from output_problems import ExactOutputModel
from problems import ExactModel

import rfgp
from rfgp.approximation import FeatureKernel, LandmarkKernel, with_features
from rfgp.approximation.families import FAMILIES
from rfgp.approximation.landmarks import Landmarks, choose_landmarks
from rfgp.approximation.method import FeatureMethod
from rfgp.approximation.selection import predicted_error, rank_methods
from rfgp.diagnostics import kl_to_exact
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP

METHODS = ("landmarks", "landmarks_greedy", "landmarks_kmeans")
JITTER = 1e-8
ROUNDING = 1e-9
SCALAR_SHAPE = torch.Size()
pytestmark = pytest.mark.filterwarnings("ignore:.*exceed.* the .* training rows")
in_float64 = pytest.mark.usefixtures("float64_default")
every_method = pytest.mark.parametrize("method", METHODS)


def points(num_rows=60, columns=3, seed=0):
    return torch.randn(num_rows, columns, generator=torch.Generator().manual_seed(seed))


def targets(x, seed=1):
    noise = torch.randn(len(x), generator=torch.Generator().manual_seed(seed), dtype=x.dtype)
    return torch.sin(x.sum(-1)) + 0.1 * noise


class WordKernel(Kernel):
    """A kernel of strings, whose inputs are their numbers: weighted counts of common pairs of letters, normalized."""

    def __init__(self, words, **options):
        super().__init__(**options)
        pairs = sorted({word[i : i + 2] for word in words for i in range(len(word) - 1)})
        counts = [[sum(word[i : i + 2] == pair for i in range(len(word))) for pair in pairs] for word in words]
        self.register_buffer("counts", torch.nn.functional.normalize(1.0 * torch.tensor(counts), dim=-1))
        self.register_parameter("raw_decay", torch.nn.Parameter(torch.zeros(1)))
        self.register_constraint("raw_decay", gpytorch.constraints.Positive())

    def forward(self, x1, x2, diag=False, **params):
        left, right = (self.counts[x.squeeze(-1).long()] for x in (x1, x2))
        products = (left * right).sum(-1) if diag else left @ right.mT
        return torch.exp(self.raw_decay_constraint.transform(self.raw_decay) * (products - 1.0))


class HammingKernel(Kernel):
    """exp(-the weighted number of columns that differ), for categories given as whole numbers."""

    has_lengthscale = True

    def forward(self, x1, x2, diag=False, **params):
        if diag:
            return torch.exp(-((x1 != x2) / self.lengthscale).sum(-1))
        return torch.exp(-((x1.unsqueeze(-2) != x2.unsqueeze(-3)) / self.lengthscale.unsqueeze(-2)).sum(-1))


class DeepKernel(Kernel):
    """A Gaussian kernel of what a small network makes of the inputs; it does not know of ``diag``."""

    def __init__(self, columns, **options):
        super().__init__(**options)
        self.network = torch.nn.Sequential(torch.nn.Linear(columns, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
        self.base_kernel = RBFKernel()

    def forward(self, x1, x2, **params):
        return self.base_kernel.forward(self.network(x1), self.network(x2))


class Overriding(MaternKernel):
    """A kernel without a family."""

    def forward(self, x1, x2, **params):
        return super().forward(2.0 * x1, 2.0 * x2, **params)


LETTERS = torch.randint(0, 5, (40, 12), generator=torch.Generator().manual_seed(0)).tolist()
WORDS = ["".join("abcde"[letter] for letter in word) for word in LETTERS]


def words(num_rows=40):
    return torch.arange(num_rows)[:, None].to(torch.get_default_dtype())


def categories(num_rows=60, columns=3):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 4, (num_rows, columns), generator=generator).to(torch.get_default_dtype())


def with_tasks(x):
    return torch.cat([x[:, :2], (torch.arange(len(x)) % 2)[:, None].to(x)], dim=-1)


SCALAR = {
    "gaussian": (lambda: RBFKernel(ard_num_dims=3), points),
    "scaled": (lambda: ScaleKernel(MaternKernel(nu=1.5)), points),
    "of some columns": (lambda: ScaleKernel(RBFKernel(active_dims=[0, 2])), points),
    "scale of some columns": (lambda: ScaleKernel(RBFKernel(), active_dims=[1]), points),
    "sum": (lambda: ScaleKernel(RBFKernel(active_dims=[0])) + LinearKernel(active_dims=[1, 2]), points),
    "product": (lambda: PeriodicKernel(active_dims=[0]) * RBFKernel(active_dims=[1]), points),
    "tasks of rows": (
        lambda: ScaleKernel(RBFKernel(active_dims=[0, 1]) * IndexKernel(2, rank=1, active_dims=[2])),
        lambda: with_tasks(points()),
    ),
    "no family": (lambda: PiecewisePolynomialKernel(q=2), points),
    "subclass": (lambda: ScaleKernel(Overriding(nu=2.5)), points),
    "categories": (lambda: ScaleKernel(HammingKernel(ard_num_dims=3)), categories),
    "strings": (lambda: ScaleKernel(WordKernel(WORDS)), words),
    "deep": (lambda: ScaleKernel(DeepKernel(3)), points),
}


def made(name, num_landmarks=12, method="landmarks", seed=0):
    """The exact kernel, the one with landmarks, and inputs."""
    torch.manual_seed(seed)
    create, data = SCALAR[name]
    exact, x = create(), data()
    return exact, rfgp.approximate(exact, num_landmarks, method=method, train_inputs=x, seed=seed), x


def core_of(kernel):
    """The kernel with landmarks inside a scale."""
    return getattr(kernel, "family", kernel).unscaled


def projected(kernel, x, y):
    """The covariance of the features by dense algebra, from the exact kernel alone."""
    core = core_of(kernel)
    landmarks = core.maps.landmarks
    dims = kernel.active_dims if core.active_dims is None else core.active_dims
    x, y = (rows if dims is None else rows[:, dims] for rows in (x, y))
    exact = core.kernel.forward
    matrix = to_dense(exact(landmarks, landmarks))
    matrix = matrix + JITTER * matrix.diagonal().mean() * torch.eye(len(matrix))
    left, right = (to_dense(exact(rows, landmarks)) for rows in (x, y))
    return kernel.total_outputscale * left @ torch.linalg.solve(matrix, right.mT)


def suite_of(create):
    def with_landmarks(columns, batch_shape=SCALAR_SHAPE, active_dims=None, **options):
        kernel = create(batch_shape=batch_shape, active_dims=active_dims, **options)
        return LandmarkKernel(kernel, points(12, columns))

    return suite(with_landmarks, with_landmarks)


def by_name(method):
    def approximated(columns, batch_shape=SCALAR_SHAPE, active_dims=None, **options):
        inside = RBFKernel(batch_shape=batch_shape, active_dims=active_dims, **options)
        x = torch.zeros(20, 10)
        x[:, list(active_dims or range(columns))] = points(20, columns)
        x = x if active_dims else x[:, :columns]
        exact = ScaleKernel(inside, batch_shape=batch_shape)
        return rfgp.approximate(exact, 12, method=method, train_inputs=x, seed=0)

    return suite(approximated, approximated)


TestLandmarksOfGaussian = suite_of(RBFKernel)
TestLandmarksOfMatern = suite_of(lambda **o: MaternKernel(nu=0.5, **o))
TestLandmarksOfLinear = suite_of(LinearKernel)
TestLandmarksOfScaled = suite_of(lambda **o: ScaleKernel(RBFKernel(**o), batch_shape=o["batch_shape"]))
TestLandmarksOfHamming = suite_of(HammingKernel)
TestLandmarksOfPiecewisePolynomial = suite_of(PiecewisePolynomialKernel)
TestLandmarksByName = by_name("landmarks")
TestLandmarksByMeans = by_name("landmarks_kmeans")


@in_float64
@pytest.mark.parametrize("name", SCALAR)
def test_kernel_and_residual_are_those_of_dense_algebra(name):
    exact, kernel, x = made(name)
    test = x[::3]
    torch.testing.assert_close(kernel(test, x).to_dense(), projected(kernel, test, x), rtol=0.0, atol=ROUNDING)
    lacking = (exact(x).to_dense() - projected(kernel, x, x)).diagonal().clamp_min(0.0)
    torch.testing.assert_close(kernel.residual_variance(x), lacking, rtol=0.0, atol=ROUNDING)
    assert kernel.has_residual_covariance and kernel.num_scalar_features == 12 and not kernel.is_complex
    smallest = torch.linalg.eigvalsh((exact(x) - kernel(x)).to_dense())[0]
    assert float(smallest) > -ROUNDING
    assert torch.equal(kernel.exact_kernel(x).to_dense(), exact(x).to_dense())


@in_float64
@pytest.mark.parametrize("name", SCALAR)
def test_evidence_gradient_and_predictions_are_those_of_dense_algebra(name):
    _, kernel, x = made(name)
    y, likelihood, test = (
        targets(x),
        GaussianLikelihood(),
        x[::4] if name in ("strings", "categories") else 2.0 * x[::4],
    )
    if name == "tasks of rows":
        test = with_tasks(test)
    likelihood.noise = 0.05
    model = WeightSpaceGP(kernel, likelihood).condition(x, y)
    parameters = [p for p in model.parameters() if p.requires_grad]
    evidence = model.log_marginal_likelihood()
    gradient = torch.autograd.grad(evidence, parameters)

    noise = likelihood.noise * torch.eye(len(x))
    covariance = projected(kernel, x, x) + noise
    dense = torch.distributions.MultivariateNormal(torch.zeros(len(x)), covariance).log_prob(y)
    torch.testing.assert_close(evidence, dense, rtol=ROUNDING, atol=0.0)
    for got, expected in zip(gradient, torch.autograd.grad(dense, parameters), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-7, atol=ROUNDING * float(dense.detach().abs()))

    cross = projected(kernel, test, x)
    solved = torch.linalg.solve(covariance, cross.mT)
    mean, lacking = solved.mT @ y, kernel.exact_kernel(test, diag=True) - projected(kernel, test, test).diagonal()
    variance = (projected(kernel, test, test) - cross @ solved).diagonal() + lacking
    exact_gp = ExactModel(x, y, likelihood, kernel, gpytorch.means.ZeroMean()).eval()
    for posterior in (model.posterior(test), exact_gp(test)):
        torch.testing.assert_close(posterior.mean, mean, rtol=0.0, atol=ROUNDING)
        torch.testing.assert_close(posterior.variance, variance, rtol=0.0, atol=ROUNDING)


@in_float64
@pytest.mark.parametrize("name", ["gaussian", "sum", "categories", "strings"])
def test_all_rows_as_landmarks_give_the_exact_process(name):
    create, data = SCALAR[name]
    x = data().unique(dim=0)
    exact, likelihood = create(), GaussianLikelihood()
    kernel = rfgp.approximate(exact, len(x), method="landmarks", train_inputs=x, seed=0)
    models = [ExactModel(x, targets(x), likelihood, k, gpytorch.means.ZeroMean()).eval() for k in (kernel, exact)]
    test = x[:7] if name in ("strings", "categories") else points(7, seed=3)
    approximate, expected = [model(test) for model in models]
    torch.testing.assert_close(approximate.mean, expected.mean, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(approximate.variance, expected.variance, rtol=0.0, atol=1e-5)


@in_float64
@every_method
def test_the_variance_far_away_is_that_of_the_prior(method):
    exact, kernel, x = made("scaled", method=method)
    exact.outputscale = 2.5
    far = x[:3] + 1000.0
    model = WeightSpaceGP(kernel, GaussianLikelihood()).condition(x, targets(x))
    exact_gp = ExactModel(x, targets(x), GaussianLikelihood(), kernel).eval()
    for posterior in (model.posterior(far), exact_gp(far)):
        torch.testing.assert_close(posterior.variance, torch.full((3,), 2.5), rtol=ROUNDING, atol=0.0)


@in_float64
def test_several_tasks_have_landmarks_of_the_data_kernel():
    x = points(20)
    y = torch.stack([targets(x), targets(x).square()], dim=-1)
    exact = MultitaskKernel(ScaleKernel(RBFKernel()), num_tasks=2, rank=1)
    kernel = rfgp.approximate(exact, 8, method="landmarks", train_inputs=x, seed=0)
    assert isinstance(parts(kernel)[0].unscaled.maps, Landmarks) and kernel.has_residual_covariance
    likelihood, test = MultitaskGaussianLikelihood(2), points(5, seed=2)
    model = WeightSpaceGP(kernel, likelihood).condition(x, y)
    tasks = exact.task_covar_module.covar_matrix.to_dense()
    matrix, cross, prior = (
        torch.kron(projected(parts(kernel)[0], *pair), tasks) for pair in ((x, x), (test, x), (test, test))
    )
    covariance = matrix + torch.kron(torch.eye(20), torch.diag(likelihood.task_noises + likelihood.noise))
    dense = torch.distributions.MultivariateNormal(torch.zeros(40), covariance).log_prob(y.flatten())
    torch.testing.assert_close(model.log_marginal_likelihood(), dense, rtol=ROUNDING, atol=0.0)
    lacking = exact(test).to_dense().diagonal() - prior.diagonal()
    variance = (prior - cross @ torch.linalg.solve(covariance, cross.mT)).diagonal() + lacking
    mean = cross @ torch.linalg.solve(covariance, y.flatten())
    means = gpytorch.means.MultitaskMean(gpytorch.means.ZeroMean(), 2)
    exact_gp = ExactOutputModel(x, y, likelihood, kernel, means).eval()
    for posterior in (model.posterior(test), exact_gp(test)):
        torch.testing.assert_close(posterior.mean.flatten(), mean, rtol=0.0, atol=ROUNDING)
        torch.testing.assert_close(posterior.variance.flatten(), variance, rtol=0.0, atol=ROUNDING)


@in_float64
def test_a_sum_of_several_outputs_has_landmarks_in_every_term():
    x, terms = points(30), [MultitaskKernel(kernel, num_tasks=2) for kernel in (RBFKernel(), MaternKernel())]
    kernel = rfgp.approximate(AdditiveKernel(*terms), 9, method="landmarks", train_inputs=x, seed=0)
    assert [part.num_scalar_features for part in parts(kernel)] == [4, 5]
    expected = sum(
        torch.kron(projected(parts(part)[0], x, x), part.task_covar_module.covar_matrix.to_dense())
        for part in parts(kernel)
    )
    torch.testing.assert_close(kernel(x).to_dense(), expected, rtol=0.0, atol=ROUNDING)
    assert kernel.has_residual_covariance


@in_float64
def test_classes_share_the_landmarks():
    x = points()
    labels = (x[:, 0] > 0.0).long() + (x[:, 1] > 1.0).long()
    exact = ScaleKernel(RBFKernel(), batch_shape=torch.Size([3]))
    exact.outputscale = torch.tensor([0.5, 1.0, 2.0])
    kernel = rfgp.approximate(exact, 15, method="landmarks", train_inputs=x, seed=0)
    likelihood = DirichletClassificationLikelihood(num_classes=3)
    posterior = WeightSpaceGP(kernel, likelihood).condition(x, labels).posterior(x)
    assert kernel.unscaled.scalar_features(x).shape == (60, 15) and posterior.mean.shape == (3, 60)
    found = likelihood.class_probabilities(posterior).argmax(-1)
    assert float((found == labels).double().mean()) > 0.8
    far = WeightSpaceGP(kernel, likelihood).condition(x, labels).posterior(x[:1] + 100.0)
    torch.testing.assert_close(far.variance.squeeze(-1), exact.outputscale, rtol=ROUNDING, atol=0.0)


@in_float64
def test_streams_and_shards_equal_a_fit_of_all_rows():
    x, y = points(90), targets(points(90))

    def model():
        exact = ScaleKernel(RBFKernel())
        return WeightSpaceGP(
            rfgp.approximate(exact, 10, method="landmarks", train_inputs=x, seed=0), GaussianLikelihood()
        )

    whole = model().condition(x, y)
    streamed = model().condition([(x[rows], y[rows]) for rows in (slice(0, 40), slice(40, 90))])
    updated = model().condition(x[:40], y[:40]).update(x[40:], y[40:])
    merged = model().condition(x[:40], y[:40]).statistics.merge(model().condition(x[40:], y[40:]).statistics)
    for other in (streamed, updated, model().load_statistics(merged)):
        torch.testing.assert_close(other.posterior(x).mean, whole.posterior(x).mean, rtol=0.0, atol=ROUNDING)
        torch.testing.assert_close(other.log_marginal_likelihood(), whole.log_marginal_likelihood())


@in_float64
def test_other_landmarks_make_the_statistics_stale_and_travel_with_the_state():
    x, y = points(), targets(points())

    def model(seed):
        exact = ScaleKernel(RBFKernel())
        kernel = rfgp.approximate(exact, 10, method="landmarks", train_inputs=x, seed=seed)
        return WeightSpaceGP(kernel, GaussianLikelihood())

    first, second = model(0).condition(x, y), model(1).condition(x, y)
    state = copy.deepcopy(first.state_dict())
    mean = first.posterior(x).mean
    first.covar_module.load_state_dict(second.covar_module.state_dict())
    with pytest.raises(ValueError, match=r"got a new maps\.landmarks; call condition"):
        first.posterior(x)
    first.load_state_dict(state)
    assert torch.equal(first.posterior(x).mean, mean)
    second.load_state_dict(state)
    torch.testing.assert_close(second.posterior(x).mean, mean, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(pickle.loads(pickle.dumps(second)).posterior(x).mean, mean, rtol=0.0, atol=1e-12)
    assert torch.equal(second.resample().posterior(x).mean, mean)


def test_a_state_of_another_kernel_or_number_is_refused():
    x = points()
    kernel = LandmarkKernel(RBFKernel(), x[:5])
    before = copy.deepcopy(kernel.state_dict())
    for other in (LandmarkKernel(MaternKernel(), x[:5]), LandmarkKernel(RBFKernel(), x[:6])):
        with pytest.raises(ValueError, match="expected the state of"):
            kernel.load_state_dict(other.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in kernel.state_dict().items())


@in_float64
def test_what_is_kept_notices_every_change():
    x = points()
    kernel = LandmarkKernel(RBFKernel(), x[:6])
    changes = (
        lambda: kernel.exact_kernel.raw_lengthscale.data.fill_(1.0),
        lambda: kernel.initialize(lengthscale=0.3),
        lambda: kernel.landmarks.add_(0.1),
        lambda: kernel.load_state_dict(LandmarkKernel(RBFKernel(), x[6:12]).state_dict()),
    )
    with torch.no_grad():
        for change in changes:
            before = kernel.features(x)
            assert torch.equal(kernel.features(x), before)
            change()
            fresh = LandmarkKernel(copy.deepcopy(kernel.exact_kernel), kernel.landmarks)
            assert not torch.equal(kernel.features(x), before) and torch.equal(kernel.features(x), fresh.features(x))
    with torch.inference_mode():
        kernel.lengthscale = 0.7
        kernel.features(x)
    kernel.exact_kernel.requires_grad_(False)
    rows = x.clone().requires_grad_()
    kernel.features(rows).sum().backward()
    assert torch.isfinite(rows.grad).all()


@in_float64
def test_landmarks_are_learned_where_it_is_asked_for():
    fixed, learned = (LandmarkKernel(RBFKernel(), torch.rand(4, 2), learn=learn) for learn in (False, True))
    assert "maps.landmarks" in dict(fixed.named_buffers()) and "maps.landmarks" in dict(learned.named_parameters())


@in_float64
def test_learned_landmarks_have_gradients_and_improve_the_evidence():
    x = points(50, 2)
    y, scale = targets(x), ScaleKernel(RBFKernel())
    kernel = FeatureKernel(scale, Landmarks(x[:5], learn=True))
    likelihood = GaussianLikelihood()
    model = WeightSpaceGP(kernel, likelihood)

    def evidence(rows):
        with torch.no_grad():
            kernel.maps.landmarks.copy_(rows)
        return model.condition(x, y).log_marginal_likelihood()

    start = x[:5].clone()
    before = evidence(start)
    before.backward()
    gradient, step = kernel.maps.landmarks.grad.clone(), torch.zeros(5, 2)
    step[1, 0] = 1e-5
    slope = (evidence(start + step) - evidence(start - step)).detach() / 2e-5
    torch.testing.assert_close(gradient[1, 0], slope, rtol=1e-5, atol=0.0)
    evidence(start)
    rfgp.fit(model, x, y, max_evaluations=20, progress=False)
    assert not torch.equal(kernel.maps.landmarks, start)
    assert float(model.log_marginal_likelihood()) > float(before) and "maps.landmarks" in kernel.state_dict()


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("lengthscale", [0.1, 1.0, 10.0])
def test_float32_rows_keep_the_digits(nu, columns, lengthscale):
    x = points(400, columns)
    single, double = MaternKernel(nu=nu), MaternKernel(nu=nu).double()
    for kernel in (single, double):
        kernel.lengthscale = lengthscale
    kernel, accurate = LandmarkKernel(single, x[:200]), LandmarkKernel(double, x[:200].double())
    features = kernel.features(x)
    assert features.dtype == torch.float32 and kernel.residual_variance(x).dtype == torch.float32
    assert float(features.double().square().sum(-1).max()) < 1.0 + 1e-6
    expected = accurate.features(x.double())
    torch.testing.assert_close(features.double() @ features.double().mT, expected @ expected.mT, rtol=0.0, atol=3e-6)
    torch.testing.assert_close(
        kernel.residual_variance(x).double(), accurate.residual_variance(x.double()), rtol=1e-5, atol=3e-6
    )
    features.square().sum().backward()
    (expected.square().sum()).backward()
    torch.testing.assert_close(single.raw_lengthscale.grad.double(), double.raw_lengthscale.grad, rtol=1e-4, atol=1e-4)


@every_method
def test_landmarks_are_distinct_rows_of_the_inputs(method):
    x = points(40).repeat(3, 1)
    chosen = choose_landmarks(RBFKernel(), x, 15, method, seed=3)
    assert len(chosen.unique(dim=0)) == len(chosen) == 15
    assert all(bool((row == x).all(-1).any()) for row in chosen)
    assert torch.equal(chosen, choose_landmarks(RBFKernel(), x, 15, method, seed=3))
    assert not torch.equal(chosen, choose_landmarks(RBFKernel(), x, 15, method, seed=4))
    assert len(choose_landmarks(RBFKernel(), x, 100, method, seed=3)) == 40


@in_float64
def test_greedy_landmarks_are_the_pivots_of_a_dense_factorization():
    x, kernel = points(30), ScaleKernel(MaternKernel(nu=1.5))
    chosen = choose_landmarks(kernel, x, 10, "landmarks_greedy", seed=0)
    matrix, rows = kernel(x).to_dense(), [int((x == chosen[0]).all(-1).nonzero())]
    for landmark in chosen[1:]:
        inside = matrix[rows][:, rows]
        left = (matrix - matrix[:, rows] @ torch.linalg.solve(inside, matrix[rows])).diagonal()
        rows.append(int(left.argmax()))
        assert torch.equal(x[rows[-1]], landmark)


def test_greedy_landmarks_end_where_nothing_is_left():
    x = points(40)
    kernel = rfgp.approximate(LinearKernel(), 10, method="landmarks_greedy", train_inputs=x, seed=0)
    assert kernel.num_scalar_features == 3
    torch.testing.assert_close(kernel(x).to_dense(), kernel.exact_kernel(x).to_dense(), rtol=0.0, atol=1e-5)


@in_float64
def test_repeated_landmarks_do_not_break_the_factor():
    x = points()
    kernel = LandmarkKernel(RBFKernel(), x[:5].repeat(3, 1))
    expected = LandmarkKernel(kernel.exact_kernel, x[:5])(x).to_dense()
    torch.testing.assert_close(kernel(x).to_dense(), expected, rtol=0.0, atol=1e-7)


@pytest.mark.filterwarnings("ignore:num_features=")
def test_more_landmarks_than_rows_are_all_rows():
    x = points(10)
    with pytest.warns(UserWarning, match="num_features=20 exceeds the 10 training rows"):
        kernel = rfgp.approximate(RBFKernel(), 20, method="landmarks", train_inputs=x, seed=0)
    assert torch.equal(kernel.maps.landmarks.sort(0).values, x.sort(0).values)


FITTED = {"categories": 0.35, "strings": 0.3, "deep": 0.3}


@in_float64
@pytest.mark.parametrize("name", FITTED)
@every_method
def test_kernels_without_random_features_train_and_predict(name, method):
    _, kernel, x = made(name, 20, method)
    if name == "strings":
        y = torch.tensor([float(word.count("a")) for word in WORDS]) + 0.1 * targets(x)
    else:
        y = targets(x) if name == "deep" else x[:, 0] - 2.0 * (x[:, 1] == 2.0) + 0.1 * targets(x)
    model = WeightSpaceGP(kernel, GaussianLikelihood(), gpytorch.means.ConstantMean())
    summary = rfgp.fit(model, x, y, max_evaluations=40, progress=False)
    assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
    posterior = model.likelihood(model.posterior(x))
    assert float((posterior.mean - y).square().mean().sqrt() / y.std()) < FITTED[name]
    assert float(((posterior.mean - y).abs() < 2.5 * posterior.stddev).double().mean()) > 0.9
    exact_gp = ExactModel(x, y, model.likelihood, kernel, model.mean_module)
    rfgp.fit(exact_gp, max_evaluations=3, progress=False)
    assert torch.isfinite(exact_gp.eval()(x[:4]).variance).all()


def test_hamming_kernel_of_gpytorch_takes_landmarks():
    words = torch.nn.functional.one_hot(categories().long(), 4).flatten(-2).float()
    kernel = rfgp.approximate(HammingIMQKernel(vocab_size=4), 12, method="landmarks", train_inputs=words, seed=0)
    model = WeightSpaceGP(kernel, GaussianLikelihood()).condition(words, targets(categories()))
    assert model.posterior(words).variance.shape == (60,)


@in_float64
def test_diagnostics_and_predicted_errors_know_landmarks():
    exact, kernel, x = made("scaled")
    y = targets(x)
    model = WeightSpaceGP(kernel, GaussianLikelihood()).condition(x, y)
    assert float(kl_to_exact(model, x[:10], train_inputs=x, train_targets=y)) > 0.0
    error, matrix = predicted_error(kernel, x), exact(x).to_dense()
    assert error.is_closed_form
    relative = (projected(kernel, x, x) - matrix).norm() / matrix.norm()
    assert error.relative_error == pytest.approx(float(relative.detach()), rel=1e-6)
    ranking = rank_methods(exact, 20, x, methods=["landmarks", "fourier"])
    assert {candidate.method for candidate in ranking} == {"landmarks", "fourier"}
    assert FeatureMethod.parse("landmarks").is_landmarks


@pytest.mark.parametrize("around", [lambda kernel: kernel, ScaleKernel, lambda kernel: RBFKernel() + kernel])
def test_the_error_of_an_unsupported_kernel_offers_landmarks(around):
    with pytest.raises(ValueError, match=r'use one of these, or method="landmarks" with train_inputs, which'):
        rfgp.approximate(around(PiecewisePolynomialKernel()), 10, input_dim=2)
    advice = r'register it with rfgp.approximation.approximates, or method="landmarks" with'
    with pytest.raises(ValueError, match=advice):
        rfgp.approximate(around(Overriding()), 10, input_dim=2)
    assert Overriding not in FAMILIES


ROWS = points(20)


class NotAKernel(RBFKernel):
    """A kernel with negative values on the diagonal."""

    def forward(self, x1, x2, **params):
        return -super().forward(x1, x2, **params)


class Calling(RBFKernel):
    """A kernel whose values are not those of forward."""

    def __call__(self, x1, x2=None, **params):
        return super().__call__(2.0 * x1, x2, **params)


def landmarks_of(kernel, method="landmarks", **options):
    return rfgp.approximate(kernel, 5, method=method, **({"train_inputs": ROWS} | options))


BAD = {
    "no inputs": (lambda: landmarks_of(RBFKernel(), train_inputs=None), "expected train_inputs for 'landmarks'"),
    "no inputs, scaled": (lambda: landmarks_of(ScaleKernel(RBFKernel()), train_inputs=None), "expected train_inputs"),
    "not a number": (lambda: landmarks_of(RBFKernel(), train_inputs=ROWS / 0.0), "expected finite values in train_in"),
    "another form": (lambda: landmarks_of(RBFKernel(), "landmarks:ctr"), "expected a real form of landmarks"),
    "unknown": (lambda: landmarks_of(RBFKernel(), "landmarks_far"), "expected a method among"),
    "not a kernel": (lambda: landmarks_of("rbf"), "expected a kernel with random features"),
    "gradients": (lambda: landmarks_of(RBFKernelGrad()), "expected a kernel of one output for landmarks"),
    "field": (lambda: landmarks_of(rfgp.kernels.CurlFreeKernel(RBFKernel())), "expected a kernel of one output"),
    "fields": (
        lambda: landmarks_of(rfgp.kernels.HelmholtzKernel(RBFKernel(), RBFKernel())),
        "expected a kernel of one output",
    ),
    "inducing points": (
        lambda: landmarks_of(ScaleKernel(InducingPointKernel(RBFKernel(), ROWS[:5].clone(), GaussianLikelihood()))),
        "expected an exact kernel, got ScaleKernel with an InducingPointKernel.*approximate its base_kernel",
    ),
    "inducing points, auto": (
        lambda: rfgp.approximate(InducingPointKernel(RBFKernel(), ROWS[:5].clone(), GaussianLikelihood()), 5),
        "got InducingPointKernel; .*approximate its base_kernel",
    ),
    "calling": (lambda: landmarks_of(Calling()), "which overrides __call__; override forward"),
    "negative": (lambda: landmarks_of(NotAKernel()).features(ROWS), "expected a positive definite NotAKernel"),
    "negative, greedy": (lambda: landmarks_of(NotAKernel(), "landmarks_greedy"), "expected a positive definite Not"),
    "a batch, greedy": (
        lambda: landmarks_of(RBFKernel(batch_shape=torch.Size([2])), "landmarks_greedy"),
        "expected a kernel without batch dimensions for landmarks_greedy",
    ),
    "too few for a sum": (
        lambda: landmarks_of(AdditiveKernel(*[MultitaskKernel(RBFKernel(), num_tasks=2) for _ in range(6)])),
        "expected at least 6 features",
    ),
    "columns": (lambda: landmarks_of(RBFKernel(active_dims=[5])), "expected active_dims below input_dim=3"),
    "base": (lambda: LandmarkKernel("rbf", ROWS), "expected an exact GPyTorch kernel for exact_kernel"),
    "one row": (lambda: LandmarkKernel(RBFKernel(), ROWS[0]), "expected landmarks of shape"),
    "no rows": (lambda: LandmarkKernel(RBFKernel(), ROWS[:0]), "expected at least one row in landmarks"),
    "a batch": (lambda: LandmarkKernel(RBFKernel(), ROWS[None]), r"expected landmarks of shape \(M, d\)"),
    "whole numbers": (lambda: LandmarkKernel(RBFKernel(), ROWS.long()), "expected floating-point landmarks"),
    "infinite": (lambda: LandmarkKernel(RBFKernel(), ROWS / 0.0), "expected finite values in landmarks"),
    "dtype": (lambda: LandmarkKernel(RBFKernel(), ROWS.double()), "expected landmarks of dtype torch.float32"),
    "selected": (lambda: LandmarkKernel(RBFKernel(active_dims=[0]), ROWS), r"expected landmarks of shape \(M, 1\)"),
    "learn": (lambda: LandmarkKernel(RBFKernel(), ROWS, learn=1), "expected True or False for learn"),
    "other columns": (lambda: LandmarkKernel(RBFKernel(), ROWS).features(ROWS[:, :2]), "expected x with 3 columns"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_products_of_landmarks_made_apart_are_kronecker_products():
    parts = [LandmarkKernel(kernel, points(4)) for kernel in (RBFKernel(), PolynomialKernel(power=2))]
    kernel, x = with_features(ProductKernel(*parts)), points()
    expected = parts[0](x).to_dense() * parts[1](x).to_dense()
    torch.testing.assert_close(kernel(x).to_dense(), expected)
    assert isinstance(kernel.exact_kernel, ProductKernel) and kernel.num_scalar_features == 16
