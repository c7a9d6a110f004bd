"""Vector-valued least squares against the dense equations of M, the objective itself and the posterior mean."""

import pickle

import gpytorch
import pytest
import torch
from gpytorch.kernels import MaternKernel, MultitaskKernel, PolynomialKernel, RBFKernel, ScaleKernel
from torch import Tensor

import rfgp
from rfgp.features import Gaussian, Matern, PowerWeighted, RandomFourier, WidenedGaussian
from rfgp.functionals import Divergence, Gradient, Potential, Value
from rfgp.kernels import (
    ConstantCovariance,
    CurlFreeKernel,
    DecomposableKernel,
    DivergenceFreeKernel,
    GraphLaplacianCovariance,
    HelmholtzKernel,
    LinearlyObservedKernel,
)
from rfgp.models import VectorLeastSquares, knn_laplacian
from rfgp.models.least_squares.simplex import decode, encode

pytestmark = pytest.mark.usefixtures("float64_default")

COLUMNS, LABELED, UNLABELED, WIDTH = 2, 9, 6, 16
RIDGE, ALONG_GRAPH = 1e-2, 3e-2


def base(lengthscale=0.9):
    kernel = RBFKernel()
    kernel.lengthscale = lengthscale
    return kernel


def scaled(kernel, outputscale=1.7):
    result = ScaleKernel(kernel)
    result.outputscale = outputscale
    return result


def multitask():
    torch.manual_seed(3)
    return MultitaskKernel(base(), num_tasks=3, rank=2)


def covariance():
    return ConstantCovariance(torch.tensor([[2.0, 0.5, -0.3], [0.5, 1.0, 0.2], [-0.3, 0.2, 0.7]]))


def shared_helmholtz():
    kernel = base()
    return HelmholtzKernel(kernel, kernel)


def fourier(spectrum):
    return RandomFourier(COLUMNS, WIDTH, spectrum, generator=torch.Generator().manual_seed(5))


KERNELS = {
    "rbf": (base, "auto"),
    "scaled rbf": (lambda: scaled(base()), "fourier"),
    "sum": (lambda: scaled(base()) + MaternKernel(nu=1.5), "auto"),
    "polynomial": (lambda: PolynomialKernel(power=2), "auto"),
    "curl-free": (lambda: CurlFreeKernel(base()), "auto"),
    "curl-free, unbounded": (lambda: CurlFreeKernel(base()), Gaussian()),
    "curl-free, widened": (lambda: CurlFreeKernel(base()), WidenedGaussian()),
    "curl-free, Matern": (lambda: scaled(CurlFreeKernel(MaternKernel(nu=2.5))), PowerWeighted(Matern(2.5), (1,))),
    "divergence-free": (lambda: DivergenceFreeKernel(base()), "fourier"),
    "value and gradient": (lambda: LinearlyObservedKernel(base(), [Value(), Gradient()]), "auto"),
    "divergence of a field": (lambda: LinearlyObservedKernel(CurlFreeKernel(base()), [Divergence(), Value()]), "auto"),
    "Helmholtz": (lambda: HelmholtzKernel(base(), base(0.5)), "auto"),
    "Helmholtz, one measure": (shared_helmholtz, "auto"),
    "multitask": (multitask, "auto"),
    "constant covariance": (lambda: DecomposableKernel(scaled(base()), covariance()), "fourier"),
    "graph covariance": (lambda: DecomposableKernel(base(), GraphLaplacianCovariance(torch.ones(3, 3))), "fourier"),
}
SCALAR = ("rbf", "scaled rbf", "sum", "polynomial")
DECOMPOSABLE = ("multitask", "constant covariance", "graph covariance")


def make(name) -> torch.nn.Module:
    exact, method = KERNELS[name]
    method = method if isinstance(method, str) else fourier(method)
    return rfgp.approximate(exact(), WIDTH, input_dim=COLUMNS, method=method, seed=2).requires_grad_(False)


def num_outputs(kernel):
    return kernel.features(torch.zeros(1, COLUMNS)).shape[0]


def output_operator(outputs, generator):
    """One row more than outputs for a single one, else one less."""
    rows = 2 if outputs == 1 else outputs - 1
    return torch.randn(rows, outputs, generator=generator)


class Problem:
    """Data for a kernel; ``dense`` is the (n T, K) matrix of features of labeled and then unlabeled inputs."""

    def __init__(self, name, has_operator, has_unlabeled, has_graph=True):
        generator = torch.Generator().manual_seed(7)
        self.kernel = make(name)
        self.outputs = num_outputs(self.kernel)
        self.operator = output_operator(self.outputs, generator) if has_operator else None
        self.matrix = torch.eye(self.outputs) if self.operator is None else self.operator
        self.x = torch.randn(LABELED, COLUMNS, generator=generator)
        self.y = torch.randn(LABELED, len(self.matrix), generator=generator)
        self.unlabeled = torch.randn(UNLABELED, COLUMNS, generator=generator) if has_unlabeled else None
        self.every = torch.cat([self.x, self.unlabeled]) if has_unlabeled else self.x
        self.graph = knn_laplacian(self.every, 3, lengthscale=0.8)
        self.along_graph = ALONG_GRAPH if has_graph else 0.0
        self.dense = self.kernel.features(self.every)
        self.test = torch.randn(5, COLUMNS, generator=generator)

    def fit(self, **options):
        model = VectorLeastSquares(
            self.kernel,
            regularization=RIDGE,
            output_operator=self.operator,
            manifold_regularization=self.along_graph,
            **options,
        )
        return model.fit(self.x, self.y, self.unlabeled, self.graph)

    @property
    def selection(self):
        """The matrix J^{1/2} kron C, (l T', n T)."""
        rows = torch.eye(len(self.every))[:LABELED]
        return torch.kron(rows, self.matrix)

    @property
    def penalty(self):
        return torch.kron(self.graph.to_dense(), torch.eye(self.outputs))

    def weights(self):
        """M Eq. 71, dense."""
        phi, select = self.dense.mT, self.selection
        inner = select.mT @ select + LABELED * self.along_graph * self.penalty
        system = phi @ inner @ phi.mT + LABELED * RIDGE * torch.eye(len(phi))
        return torch.linalg.solve(system, phi @ select.mT @ self.y.reshape(-1, 1))

    def kernel_form(self):
        """Predictions by M Eq. 72, from the kernel matrix of the features."""
        select = self.selection
        matrix = self.dense @ self.dense.mT
        inner = select.mT @ select + LABELED * self.along_graph * self.penalty
        system = inner @ matrix + LABELED * RIDGE * torch.eye(len(matrix))
        coefficients = torch.linalg.solve(system, select.mT @ self.y.reshape(-1, 1))
        return self.kernel.features(self.test) @ self.dense.mT @ coefficients

    def objective(self, weights: Tensor) -> Tensor:
        """M Eq. 67 for weights (K, S)."""
        values = self.dense @ weights
        residual = self.y.reshape(-1, 1) - self.selection @ values
        along_graph = (values * (self.penalty @ values)).sum(0)
        squares = residual.square().sum(0) / LABELED
        return squares + RIDGE * weights.square().sum(0) + self.along_graph * along_graph


def close(a, b, scale=1.0):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9 * scale)


with_and_without = [False, True]
every_problem = [
    pytest.mark.parametrize("has_unlabeled", with_and_without, ids=["labeled", "unlabeled"]),
    pytest.mark.parametrize("has_operator", with_and_without, ids=["identity", "C"]),
    pytest.mark.parametrize("name", KERNELS),
]


def on_every_problem(test):
    for mark in every_problem:
        test = mark(test)
    return test


@pytest.mark.parametrize("has_graph", [False, True], ids=["ridge", "graph"])
@on_every_problem
def test_equals_both_dense_forms(name, has_operator, has_unlabeled, has_graph):
    problem = Problem(name, has_operator, has_unlabeled, has_graph)
    model = problem.fit()
    close(model.weights, problem.weights())
    predicted = model.predict(problem.test)
    assert predicted.shape == ((5,) if name in SCALAR else (5, problem.outputs))
    close(predicted.reshape(-1, 1), problem.kernel_form())


@on_every_problem
def test_minimizes_the_objective(name, has_operator, has_unlabeled):
    problem = Problem(name, has_operator, has_unlabeled)
    weights = problem.fit().weights
    smallest = problem.objective(weights)
    steps = torch.randn(len(weights), 50) * weights.abs().mean()
    for size in (1e-3, 1e-1, 1.0):
        assert bool((problem.objective(weights + size * steps) > smallest).all())


@pytest.mark.parametrize("has_graph", [False, True], ids=["ridge", "graph"])
@on_every_problem
def test_lbfgs_has_the_same_optimum(name, has_operator, has_unlabeled, has_graph):
    problem = Problem(name, has_operator, has_unlabeled, has_graph)
    exact, model = problem.fit(), problem.fit(solver="lbfgs")
    assert model.num_iterations > 0 and exact.num_iterations is None
    torch.testing.assert_close(model.predict(problem.test), exact.predict(problem.test), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_is_the_posterior_mean_with_noise_variance_l_gamma(name):
    kernel = make(name)
    generator = torch.Generator().manual_seed(0)
    x, test = (torch.randn(n, COLUMNS, generator=generator) for n in (12, 4))
    y = torch.randn(12, num_outputs(kernel), generator=generator)
    model = VectorLeastSquares(kernel, regularization=RIDGE).fit(x, y)
    matrix, cross = kernel(x).to_dense(), kernel(test, x).to_dense()
    matrix = matrix + 12 * RIDGE * torch.eye(len(matrix))
    expected = cross @ torch.linalg.solve(matrix, y.reshape(-1, 1))
    close(model.predict(test).reshape(-1, 1), expected)


def test_is_the_prediction_of_a_gpytorch_model():
    kernel = make("curl-free")
    generator = torch.Generator().manual_seed(0)
    x, y, test = (torch.randn(n, 2, generator=generator) for n in (12, 12, 4))
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2, has_task_noise=False)
    likelihood.noise = 12 * RIDGE

    class Model(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ZeroMean(), num_tasks=2)
            self.covar_module = kernel

        def forward(self, x):
            return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))

    with torch.no_grad():
        expected = Model().eval()(test).mean
    torch.testing.assert_close(
        VectorLeastSquares(kernel, regularization=RIDGE).fit(x, y).predict(test), expected, rtol=1e-7, atol=1e-7
    )


@pytest.mark.parametrize("name", ["rbf", "curl-free", "value and gradient", "multitask"])
def test_other_regularizations_from_the_same_sums(name):
    problem = Problem(name, has_operator=True, has_unlabeled=True)
    model = problem.fit()
    before = model.weights.clone()
    for ridge, along_graph in ((0.5, None), (0.1, 0.2), (0.1, 0.0)):
        twin = model.with_regularization(ridge, along_graph)
        own = model.manifold_regularization if along_graph is None else along_graph
        fresh = VectorLeastSquares(
            problem.kernel, regularization=ridge, output_operator=problem.operator, manifold_regularization=own
        ).fit(problem.x, problem.y, problem.unlabeled, problem.graph)
        close(twin.weights, fresh.weights)
        assert (twin.regularization, twin.manifold_regularization) == (ridge, own)
    assert torch.equal(model.weights, before) and model.regularization == RIDGE
    without = VectorLeastSquares(problem.kernel, regularization=RIDGE, output_operator=problem.operator)
    with pytest.raises(ValueError, match="without; fit again"):
        without.fit(problem.x, problem.y).with_regularization(RIDGE, 1.0)
    with pytest.raises(ValueError, match="lbfgs"):
        problem.fit(solver="lbfgs").with_regularization(RIDGE)
    with pytest.raises(ValueError, match="positive"):
        model.with_regularization(0.0)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("name", ["rbf", "curl-free", "multitask"])
@pytest.mark.parametrize("layout", ["dense", "csr", "coo", "uncoalesced"])
def test_layouts_of_the_laplacian(name, layout):
    problem = Problem(name, has_operator=False, has_unlabeled=True)
    expected = problem.fit().weights
    graph = problem.graph
    twice = torch.cat([graph.indices()] * 2, dim=-1), torch.cat([0.5 * graph.values()] * 2)
    problem.graph = {
        "dense": lambda: graph.to_dense(),
        "csr": lambda: graph.to_sparse_csr(),
        "coo": lambda: graph,
        "uncoalesced": lambda: torch.sparse_coo_tensor(*twice, graph.shape, check_invariants=True),
    }[layout]()
    close(problem.fit().weights, expected)


@pytest.mark.parametrize("name", DECOMPOSABLE)
def test_decomposable_kernels_need_no_system_of_all_columns(name, monkeypatch):
    problem = Problem(name, has_operator=False, has_unlabeled=True)
    shapes = []
    real = rfgp.models.least_squares.equations.cholesky
    monkeypatch.setattr(
        rfgp.models.least_squares.equations, "cholesky", lambda m: shapes.append(m.shape[-1]) or real(m)
    )
    problem.fit()
    assert set(shapes) == {problem.kernel.num_scalar_features} and len(shapes) <= problem.outputs


def test_rows_in_many_chunks(monkeypatch):
    problem = Problem("curl-free", has_operator=True, has_unlabeled=True)
    expected = problem.fit()
    values = expected.predict(problem.test)

    def chunks(rows, columns, itemsize=8):
        return [slice(start, min(start + 2, rows)) for start in range(0, rows, 2)]

    for module in (rfgp.models.least_squares.model, rfgp.models.least_squares.equations):
        monkeypatch.setattr(module, "row_chunks", chunks)
    monkeypatch.setattr(rfgp.models.least_squares.equations, "_BLOCK", 3)
    model = problem.fit()
    close(model.weights, expected.weights)
    close(model.predict(problem.test), values)


@pytest.mark.parametrize("name", ["rbf", "curl-free", "multitask"])
def test_single_precision_data_are_summed_in_double(name):
    problem = Problem(name, has_operator=False, has_unlabeled=True)
    expected = problem.fit().predict(problem.test)
    problem.kernel.float()
    problem.x, problem.y, problem.unlabeled = (t.float() for t in (problem.x, problem.y, problem.unlabeled))
    model = problem.fit()
    assert model.weights.dtype == torch.float64
    predicted = model.predict(problem.test.float())
    assert predicted.dtype == torch.float32
    torch.testing.assert_close(predicted.double(), expected, rtol=1e-4, atol=1e-4)


def test_scalar_targets_and_batches_of_inputs():
    problem = Problem("rbf", has_operator=False, has_unlabeled=False)
    matrix = problem.fit()
    problem.y = problem.y.squeeze(-1)
    vector = problem.fit()
    assert torch.equal(matrix.weights, vector.weights)
    x = torch.randn(4, 3, COLUMNS)
    assert vector.predict(x).shape == (4, 3)
    close(vector.predict(x)[1], vector.predict(x[1]))
    field = Problem("curl-free", has_operator=False, has_unlabeled=False).fit()
    assert field.predict(x).shape == (4, 3, 2)
    close(field.predict(x)[1], field.predict(x[1]))


def test_linear_functionals_of_the_fit_by_autograd():
    model = Problem("curl-free", has_operator=False, has_unlabeled=True).fit()
    x = torch.randn(5, 2, requires_grad=True)
    with torch.enable_grad():
        by_output = model.covar_module.output_factor(Potential()).scalar_weights(model.weights)[..., 0]
        potential = (model.covar_module.scalar_features(x) @ by_output).squeeze(-1)
        (gradient,) = torch.autograd.grad(potential.sum(), x)
    close(potential.detach(), model.predict(x.detach(), Potential()))
    close(gradient, model.predict(x.detach()))
    with pytest.raises(ValueError, match="operator-valued kernel"):
        Problem("rbf", False, False).fit().predict(torch.zeros(2, 2), Divergence())


def test_lbfgs_says_where_it_did_not_converge():
    problem = Problem("curl-free", has_operator=False, has_unlabeled=False)
    with pytest.warns(UserWarning, match="L-BFGS ended after 2 iterations"):
        problem.fit(solver="lbfgs", max_iterations=2)
    problem.y = torch.zeros_like(problem.y)
    model = problem.fit(solver="lbfgs")
    assert model.num_iterations == 0 and not model.weights.any()


def test_stale_parameters_and_pickles():
    problem = Problem("curl-free", has_operator=False, has_unlabeled=False, has_graph=False)
    model = problem.fit()
    again = pickle.loads(pickle.dumps(model))
    close(again.predict(problem.test), model.predict(problem.test))
    problem.kernel.base_kernel.lengthscale = 0.3
    with pytest.raises(ValueError, match="raw_lengthscale"):
        model.predict(problem.test)
    model.fit(problem.x, problem.y).predict(problem.test)
    problem.kernel.resample(torch.Generator().manual_seed(1))
    with pytest.raises(ValueError, match="random weights"):
        model.predict(problem.test)
    with pytest.raises(ValueError, match="call fit"):
        VectorLeastSquares(problem.kernel, regularization=RIDGE).predict(problem.test)


def test_failed_fits_leave_the_model_as_it_was():
    problem = Problem("curl-free", has_operator=False, has_unlabeled=True)
    model = problem.fit()
    before = model.weights.clone()
    negative = -1e3 * problem.graph.to_dense()
    with pytest.raises(ValueError, match="positive definite"):
        model.fit(problem.x, problem.y, problem.unlabeled, negative)
    assert torch.equal(model.weights, before)


BAD_OPTIONS = {
    "no features": (lambda: VectorLeastSquares(RBFKernel(), regularization=1.0), "random features"),
    "complex": (
        lambda: VectorLeastSquares(
            rfgp.approximate(RBFKernel(), 8, input_dim=2, method="fourier:complex"), regularization=1.0
        ),
        "real features",
    ),
    "batch": (
        lambda: VectorLeastSquares(
            rfgp.approximate(ScaleKernel(RBFKernel(), batch_shape=torch.Size([2])), 8, input_dim=2), regularization=1.0
        ).fit(torch.zeros(3, 2), torch.zeros(3)),
        "without batches",
    ),
    "ridge of zero": (lambda: VectorLeastSquares(make("rbf"), regularization=0.0), "regularization that is positive"),
    "NaN ridge": (lambda: VectorLeastSquares(make("rbf"), regularization=float("nan")), "regularization"),
    "negative graph": (
        lambda: VectorLeastSquares(make("rbf"), regularization=1.0, manifold_regularization=-1.0),
        "manifold_regularization that is at least 0",
    ),
    "solver": (lambda: VectorLeastSquares(make("rbf"), regularization=1.0, solver="sgd"), "cholesky, lbfgs"),
    "tolerance": (lambda: VectorLeastSquares(make("rbf"), regularization=1.0, tolerance=0.0), "tolerance"),
    "iterations": (lambda: VectorLeastSquares(make("rbf"), regularization=1.0, max_iterations=0), "max_iterations"),
    "vector as C": (
        lambda: VectorLeastSquares(make("rbf"), regularization=1.0, output_operator=torch.ones(2)),
        "output_operator of shape",
    ),
    "NaN in C": (
        lambda: VectorLeastSquares(make("rbf"), regularization=1.0, output_operator=torch.full((1, 1), torch.nan)),
        "finite",
    ),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_bad_options(name):
    call, message = BAD_OPTIONS[name]
    with pytest.raises(ValueError, match=message):
        call()


NAN = float("nan")
DOUBLE = torch.float64
BAD_DATA = {
    "shape of x": ({"x": torch.zeros(2, 9, 2, dtype=DOUBLE)}, "one model per batch"),
    "NaN in x": ({"x": torch.full((9, 2), NAN, dtype=DOUBLE)}, "finite values in x"),
    "missing targets": ({"y": torch.full((9, 2), NAN, dtype=DOUBLE)}, "finite values in y"),
    "rows of y": ({"y": torch.zeros(8, 2, dtype=DOUBLE)}, r"y of shape \(9, 2\)"),
    "columns of y": ({"y": torch.zeros(9, 3, dtype=DOUBLE)}, r"y of shape \(9, 2\)"),
    "vector y": ({"y": torch.zeros(9, dtype=DOUBLE)}, r"y of shape \(9, 2\)"),
    "labels": ({"y": torch.zeros(9, 2, dtype=torch.long)}, "encode class labels"),
    "float32 y": ({"y": torch.zeros(9, 2, dtype=torch.float32)}, "dtype"),
    "float32 x": ({"x": torch.zeros(9, 2, dtype=torch.float32)}, "dtype"),
    "columns of unlabeled": ({"unlabeled": torch.zeros(6, 3, dtype=DOUBLE)}, "2 columns"),
    "NaN in unlabeled": ({"unlabeled": torch.full((6, 2), NAN, dtype=DOUBLE)}, "finite values in unlabeled"),
    "no laplacian": ({"laplacian": None}, "knn_laplacian"),
    "shape of the laplacian": ({"laplacian": torch.eye(9)}, r"laplacian of shape \(15, 15\)"),
    "asymmetric": ({"laplacian": torch.arange(225.0).reshape(15, 15)}, "symmetric"),
    "asymmetric, sparse": ({"laplacian": torch.arange(225.0).reshape(15, 15).to_sparse()}, "symmetric"),
    "NaN in the laplacian": ({"laplacian": torch.full((15, 15), NAN)}, "finite values in laplacian"),
    "no tensor": ({"laplacian": "graph"}, "str"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data(name):
    changes, message = BAD_DATA[name]
    problem = Problem("curl-free", has_operator=False, has_unlabeled=True)
    model = VectorLeastSquares(problem.kernel, regularization=RIDGE, manifold_regularization=ALONG_GRAPH)
    data = {"x": problem.x, "y": problem.y, "unlabeled": problem.unlabeled, "laplacian": problem.graph}
    with pytest.raises(ValueError, match=message):
        model.fit(**data | changes)


def test_output_operator_must_fit_the_kernel():
    problem = Problem("curl-free", has_operator=False, has_unlabeled=False)
    model = VectorLeastSquares(problem.kernel, regularization=RIDGE, output_operator=torch.ones(1, 3))
    with pytest.raises(ValueError, match="with 2 columns"):
        model.fit(problem.x, torch.zeros(LABELED))


def test_output_operator_of_one_row_takes_vectors():
    problem = Problem("curl-free", has_operator=True, has_unlabeled=False)
    expected = problem.fit().weights
    problem.y = problem.y.squeeze(-1)
    assert torch.equal(problem.fit().weights, expected)


def test_laplacian_against_brute_force():
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    distance = torch.cdist(x, x).fill_diagonal_(torch.inf)
    nearest = distance.argsort(-1)[:, :4]
    edges = torch.zeros(30, 30, dtype=torch.bool).scatter_(1, nearest, True)
    edges = edges | edges.mT
    for lengthscale in (None, 0.7):
        weight = edges.double() if lengthscale is None else edges * torch.exp(-0.5 * (distance / lengthscale) ** 2)
        expected = torch.diag(weight.sum(-1)) - weight
        found = knn_laplacian(x, 4, lengthscale=lengthscale)
        assert found.layout is torch.sparse_coo and found.dtype == x.dtype
        torch.testing.assert_close(found.to_dense(), expected, rtol=1e-12, atol=1e-12)
        root = weight.sum(-1).rsqrt()
        normalized = knn_laplacian(x, 4, lengthscale=lengthscale, is_normalized=True).to_dense()
        torch.testing.assert_close(normalized, root[:, None] * expected * root, rtol=1e-12, atol=1e-12)
        assert float(torch.linalg.eigvalsh(expected).min()) > -1e-12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: knn_laplacian(torch.zeros(5, 2), 5), "neighbors"),
        (lambda: knn_laplacian(torch.zeros(5, 2), 0), "neighbors"),
        (lambda: knn_laplacian(torch.zeros(1, 2), 1), "at least two"),
        (lambda: knn_laplacian(torch.zeros(2, 5, 2), 1), "at least two"),
        (lambda: knn_laplacian(torch.full((5, 2), NAN), 1), "finite"),
        (lambda: knn_laplacian(torch.zeros(5, 2), 1, lengthscale=0.0), "lengthscale"),
    ],
)
def test_bad_arguments_of_the_laplacian(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def two_moons(num_rows, generator):
    """Points on two interleaved half circles with noise of 0.1, and which one they are on."""
    labels = torch.arange(num_rows) % 2
    angle = torch.pi * torch.rand(num_rows, generator=generator)
    upper = torch.stack([angle.cos(), angle.sin()], dim=-1)
    lower = torch.stack([1.0 - angle.cos(), 0.5 - angle.sin()], dim=-1)
    noise = 0.1 * torch.randn(num_rows, 2, generator=generator)
    return torch.where(labels[:, None] == 0, upper, lower) + noise, labels


def test_unlabeled_data_help_where_classes_are_manifolds():
    differences = []
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        x, labels = two_moons(206, generator)
        kernel = rfgp.approximate(base(0.3), 200, input_dim=2, seed=seed)
        train, rest = slice(0, 6), slice(6, None)
        y = encode(labels[train], 2)
        graph = knn_laplacian(x, 8)
        errors = []
        for along_graph in (0.0, 1e-2):
            model = VectorLeastSquares(kernel, regularization=1e-3, manifold_regularization=along_graph)
            predicted = model.fit(x[train], y, x[rest], graph).predict(x[rest])
            errors.append(float((decode(predicted.unsqueeze(-1)) != labels[rest]).double().mean()))
        differences.append(errors[0] - errors[1])
    gain = torch.tensor(differences)
    assert float(gain.mean()) > 3.0 * float(gain.std()) / len(gain) ** 0.5


def test_classification_of_three_classes_by_simplex_coding():
    generator = torch.Generator().manual_seed(0)
    centers = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    labels = torch.arange(300) % 3
    x = centers[labels] + 0.5 * torch.randn(300, 2, generator=generator)
    kernel = rfgp.approximate(DecomposableKernel(base(1.5), ConstantCovariance(torch.eye(2))), 64, input_dim=2, seed=0)
    model = VectorLeastSquares(kernel, regularization=1e-3).fit(x[:150], encode(labels[:150], 3))
    found = decode(model.predict(x[150:]))
    wrong = int((found != labels[150:]).sum())
    assert wrong <= 5  # of 150; a boundary is at 3 standard deviations, so that less than 1 is expected
