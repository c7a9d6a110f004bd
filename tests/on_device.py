"""Everything that a device can change, against the processor: features, sums, factors, models, training, files.

``python tests/on_device.py --device cuda --out FOLDER`` writes a line of ``results.jsonl`` and a new ``summary.txt``
after every check, those that matter most first, until ``--minutes`` are over. A check that raises is written down, and
the next one begins. Random weights are the same on every device, so that values are compared.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent / "support"))

import gpytorch
import torch
from contract import MODELS, Model
from gpytorch.kernels import MaternKernel, MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    GaussianLikelihood,
    MultitaskGaussianLikelihood,
    SoftmaxLikelihood,
    StudentTLikelihood,
)
from problems import COMPOSITIONS, KERNELS, composition, methods_of
from torch import Tensor

import rfgp
from rfgp import likelihoods, models

Values = dict[str, Tensor]
Check = Callable[[torch.device], Values]
TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-3}
"""How far values may be apart, relative to the largest one of their kind."""


def rows(count: int = 400, columns: int = 3, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, targets and points, on the processor."""
    generator = torch.Generator().manual_seed(1)
    x = 2.0 * torch.rand(count, columns, generator=generator, dtype=torch.float64)
    y = torch.sin(3.0 * x.sum(-1)) + 0.2 * torch.randn(count, generator=generator, dtype=torch.float64)
    return x.to(dtype), y.to(dtype), x[:40].flip(-1).to(dtype)


def exact(base: gpytorch.kernels.Kernel | None = None) -> ScaleKernel:
    kernel = MaternKernel(nu=1.5) if base is None else base
    kernel.lengthscale = 0.7
    return ScaleKernel(kernel)


def moments(distribution: Any) -> Values:
    covariance = distribution.covariance_matrix
    return {"mean": distribution.mean, "variance": distribution.variance, "covariance": covariance}


def gradient(value: Tensor, model: torch.nn.Module) -> Values:
    parameters = [p for p in model.parameters() if p.requires_grad]
    slopes = torch.autograd.grad(value, parameters, allow_unused=True)
    flat = [torch.zeros_like(p) if slope is None else slope for p, slope in zip(parameters, slopes, strict=True)]
    return {"evidence": value, "gradient": torch.cat([slope.flatten() for slope in flat])}


# Checks: functions of a device


def features(name: str, method: str, dtype: torch.dtype, device: torch.device) -> Values:
    torch.set_default_dtype(dtype)
    case = KERNELS[name]
    x = case.inputs(60).to(dtype)
    known = {"train_inputs": x} if "maclaurin" in method else {"input_dim": case.columns}
    kernel = rfgp.approximate(case.make().to(dtype), 24, method=method, seed=0, **known).to(device)
    found = kernel.features(x.to(device))
    kernel_values = kernel.exact_kernel(x.to(device)).to_dense()
    return {"features": torch.view_as_real(found) if found.is_complex() else found, "exact": kernel_values}


def composed(name: str, device: torch.device) -> Values:
    x = torch.rand(30, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = rfgp.approximate(composition(name), 48, input_dim=3, seed=0).to(device)
    return {"matrix": kernel(x.to(device)).to_dense()}


def contract(case: Model, neighbors: int | None, device: torch.device) -> Values:
    x, y, given = case.rows()
    x, y, xs = x.to(device), y.to(device), case.inputs()[1].to(device)
    given = {key: value.to(device) for key, value in given.items()}
    model = case.unfitted().to(device)
    model.num_neighbors = neighbors if neighbors is not None else model.num_neighbors
    found = gradient(model.condition(x, y, **given).log_marginal_likelihood(), model)
    found |= moments(model.posterior(xs))
    left_out = model.leave_one_out(x, y, **given)
    found |= {"left out, mean": left_out.mean, "left out, log density": left_out.log_prob}
    half = [{key: value[part] for key, value in given.items()} for part in (slice(12), slice(12, None))]
    model.condition(x[:12], y[:12], **half[0]).update(x[12:], y[12:], **half[1])
    return found | {"update, mean": model.posterior(xs).mean}


def regression(method: str, width: int, dtype: torch.dtype, noise: float, options: Any, device: torch.device) -> Values:
    """Cholesky factors in both precisions, from easy noise to hard noise, and predictions at points."""
    x, y, xs = rows(4000, dtype=dtype)
    likelihood = GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive()).to(dtype)
    likelihood.noise = noise
    kernel = rfgp.approximate(exact().to(dtype), width, method=method, train_inputs=x, seed=0)
    model = models.WeightSpaceGP(kernel, likelihood, **options).to(device)
    found = gradient(model.condition(x.to(device), y.to(device)).log_marginal_likelihood(), model)
    points = model.point_predictor()(xs.to(device))
    return found | moments(model.posterior(xs.to(device))) | {"points": points.variance}


def latent(likelihood: Any, targets: Callable[[Tensor], Tensor], options: Any, device: torch.device) -> Values:
    x, y, xs = rows()
    kernel = rfgp.approximate(exact(), 24, method="landmarks", train_inputs=x, seed=0)
    model = models.LaplaceGP(kernel, likelihood(), **options).to(device)
    found = gradient(model.condition(x.to(device), targets(y).to(device)).log_marginal_likelihood(), model)
    return found | moments(model.posterior(xs.to(device)))


def variational(device: torch.device) -> Values:
    x, y, xs = (values.to(device) for values in rows())
    kernel = rfgp.approximate(exact(), 24, input_dim=3, seed=0)
    model = models.WeightSpaceVariationalGP(kernel, BernoulliLikelihood()).to(device)
    for _ in range(3):
        model.natural_step(x, (y > 0).double(), step_size=0.7)
    return gradient(model.elbo(x, (y > 0).double()), model) | moments(model.posterior(xs))


def heteroscedastic(device: torch.device) -> Values:
    x, y, xs = (values.to(device) for values in rows())
    kernels = [rfgp.approximate(exact(), width, input_dim=3, seed=0) for width in (24, 12)]
    model = models.HeteroscedasticGP(*kernels).to(device).condition(x, y)
    return moments(model.posterior(xs)) | {"noise": model.noise_variance(xs)}


def several(missing: bool, options: Any, device: torch.device) -> Values:
    x, y, xs = rows()
    table = torch.stack([y, y.square()], dim=-1)
    if missing:
        table[::5, 0] = torch.nan
    kernel = MultitaskKernel(exact(), 2, rank=1)
    kernel.task_covar_module.covar_factor.data = torch.tensor([[0.8], [0.5]]).double()
    kernel.task_covar_module.var = torch.tensor([0.2, 0.3]).double()
    made = rfgp.approximate(kernel, 24, method="landmarks", train_inputs=x, seed=0)
    model = models.WeightSpaceGP(made, MultitaskGaussianLikelihood(2), **options).to(device)
    model.condition(x.to(device), table.to(device))
    return moments(model.posterior(xs.to(device))) | {"evidence": model.log_marginal_likelihood()}


def grid(columns: int, width: int, device: torch.device) -> Values:
    x, y, xs = rows(2000, columns)
    kernel = rfgp.approximate(exact(RBFKernel()), width, method="fourier_grid", train_inputs=x)
    model = models.WeightSpaceGP(kernel, GaussianLikelihood()).to(device)
    found = gradient(model.condition(x.to(device), y.to(device)).log_marginal_likelihood(), model)
    return found | moments(model.posterior(xs.to(device)))


def trained(strategy: str, options: Any, device: torch.device) -> Values:
    x, y, xs = rows(600)
    method = "landmarks" if options else "fourier"
    kernel = rfgp.approximate(exact(RBFKernel(ard_num_dims=3)), 32, method=method, train_inputs=x, seed=0)
    model = models.WeightSpaceGP(kernel, GaussianLikelihood(), **options).to(device)
    rfgp.fit(model, x.to(device), y.to(device), strategy=strategy, max_evaluations=6, progress=False)
    found = model.posterior(xs.to(device))
    return {"mean": found.mean, "variance": found.variance, "noise": model.likelihood.noise}


def trained_latent(device: torch.device) -> Values:
    x, y, xs = rows(600)
    kernel = rfgp.approximate(exact(), 32, method="landmarks", train_inputs=x, seed=0)
    model = models.LaplaceGP(kernel, BernoulliLikelihood(), block_size=64).to(device)
    rfgp.fit(model, x.to(device), (y > 0).double().to(device), max_evaluations=6, progress=False)
    return {"mean": model.posterior(xs.to(device)).mean}


def exact_model(device: torch.device) -> Values:
    x, y, xs = (values.to(device) for values in rows(200))

    class Plain(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(x, y, GaussianLikelihood())
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = rfgp.approximate(exact(), 32, input_dim=3, seed=0)

        def forward(self, inputs: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    model = Plain().to(device).train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    found = gradient(objective(model(x), y), model)
    return found | moments(model.eval()(xs))


def a_map(device: torch.device) -> Values:
    x, y, _ = (values.to(device) for values in rows())
    kernel = rfgp.approximate(exact(), 32, input_dim=3, seed=0)
    model = models.WeightSpaceGP(kernel, GaussianLikelihood()).to(device).condition(x, y)
    found = rfgp.predict_map(model, rows(3000)[0].to(device), dtype=torch.float64, progress=False)
    return {"mean": found.mean, "variance": found.variance}


def across(device: torch.device) -> Values:
    """Saved on the device and loaded on the processor, moved back, copied, and a state that is loaded."""
    x, y, xs = rows()
    kernel = rfgp.approximate(exact(), 24, method="landmarks", train_inputs=x, seed=0)
    model = models.WeightSpaceGP(kernel, GaussianLikelihood(), block_size=50).to(device)
    model.condition(x.to(device), y.to(device))
    with tempfile.TemporaryDirectory() as folder:
        rfgp.save(model, f"{folder}/model.pt")
        loaded = rfgp.load(f"{folder}/model.pt")
    again = copy.deepcopy(model).to(device)
    again.load_state_dict(model.state_dict())
    found = {"loaded": loaded.cpu().posterior(xs).mean, "copied": again.posterior(xs.to(device)).mean}
    return found | {"moved": copy.deepcopy(model).cpu().posterior(xs).variance}


def many_classes(num_classes: int, device: torch.device) -> Values:
    x, _, xs = rows(1000)
    labels = torch.arange(1000) % num_classes
    likelihood = likelihoods.DirichletClassificationLikelihood(num_classes=num_classes, dtype=torch.float64)
    kernel = rfgp.approximate(exact(), 24, input_dim=3, seed=0)
    model = models.WeightSpaceGP(kernel, likelihood).to(device).condition(x.to(device), labels.to(device))
    return {"evidence": model.log_marginal_likelihood(), "mean": model.posterior(xs.to(device)).mean}


def student() -> StudentTLikelihood:
    likelihood = StudentTLikelihood()
    likelihood.initialize(deg_free=4.0, noise=0.1)
    return likelihood


def three(y: Tensor) -> Tensor:
    return torch.bucketize(y, torch.tensor([-0.5, 0.5]).to(y))


def checks() -> Iterator[tuple[str, Check]]:
    """All checks with their names, in the order in which they matter."""
    blocks = {"block_size": 64}
    for dtype in (torch.float64, torch.float32):
        for noise in (1e-2, 1e-4):
            name = f"{str(dtype)[6:]}, noise {noise:g}"
            yield f"regression/fourier, {name}", partial(regression, "fourier", 256, dtype, noise, {})
            yield f"regression/blocks, {name}", partial(regression, "landmarks", 64, dtype, noise, blocks)
    for case in MODELS:
        if case.data == "complete":
            yield f"contract/{case}", partial(contract, case, None)
    yield "several/complete", partial(several, False, {})
    yield "several/blocks with gaps", partial(several, True, blocks)
    yield "latent/probit", partial(latent, BernoulliLikelihood, lambda y: (y > 0).double(), {})
    yield "latent/probit in blocks", partial(latent, BernoulliLikelihood, lambda y: (y > 0).double(), blocks)
    yield "trained/evidence", partial(trained, "evidence", {})
    yield "trained/auto in blocks", partial(trained, "auto", blocks)
    for columns, width in ((1, 61), (2, 441), (3, 343)):
        yield f"grid/{columns} inputs", partial(grid, columns, width)
    yield "across/files, copies and states", across
    yield "map", a_map
    yield "exact model", exact_model
    for case in MODELS:
        if case.data == "complete" and case.settings == "blocks":
            yield f"neighbors/{case}", partial(contract, case, 5)
    for strategy in ("subset", "blocks", "neighbors", "leave_one_out"):
        yield f"trained/{strategy}", partial(trained, strategy, {})
    yield "trained/probit in blocks", trained_latent
    yield "latent/counts", partial(latent, likelihoods.PoissonLikelihood, lambda y: (3.0 * y.abs()).round(), {})
    yield "latent/student in blocks", partial(latent, student, lambda y: y, blocks)
    softmax = partial(SoftmaxLikelihood, num_classes=3, mixing_weights=False)
    yield "latent/softmax", partial(latent, softmax, three, {})
    yield "latent/softmax in blocks", partial(latent, softmax, three, blocks)
    yield "variational", variational
    yield "heteroscedastic", heteroscedastic
    for number in (3, 40, 200):
        yield f"classes/{number}", partial(many_classes, number)
    for case in MODELS:
        if case.data != "complete":
            yield f"contract/{case}", partial(contract, case, None)
    for name, case in KERNELS.items():
        for method in methods_of(case):
            for dtype in (torch.float64, torch.float32):
                yield f"features/{name}, {method}, {str(dtype)[6:]}", partial(features, name, method, dtype)
    for name in COMPOSITIONS:
        yield f"composed/{name}", partial(composed, name)


def difference(found: Values, wanted: Values) -> float:
    """The largest difference, relative to the largest value of the processor and to the tolerance of the dtype."""
    worst = 0.0
    for name, value in wanted.items():
        value, other = value.detach(), found[name].detach().cpu()
        if not torch.equal(torch.isnan(value), torch.isnan(other)):
            return float("inf")
        value, other = value.nan_to_num(), other.nan_to_num()
        gap = (other - value).abs().max() / value.abs().max().clamp_min(1e-3)
        worst = max(worst, float(gap) / TOLERANCE.get(value.dtype, 1e-7))
    return worst


def measured(check: Check, device: torch.device) -> dict[str, Any]:
    """One check: the difference, and the seconds on the device and on the processor; or what was raised."""
    seconds = []
    try:
        values = []
        for place in (device, torch.device("cpu")):
            torch.manual_seed(0)
            torch.set_default_dtype(torch.float64)
            start = time.perf_counter()
            values.append(check(place))
            if place.type == "cuda":
                torch.cuda.synchronize(place)
            seconds.append(time.perf_counter() - start)
        return {"over_tolerance": difference(*values), "device_s": seconds[0], "cpu_s": seconds[1]}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:500], "trace": traceback.format_exc()[-3000:]}


def summary(done: dict[str, dict[str, Any]], total: int) -> str:
    """What failed, what is farthest apart, and the seconds."""
    errors = {name: record["error"] for name, record in done.items() if "error" in record}
    apart = {name: record["over_tolerance"] for name, record in done.items() if "error" not in record}
    beyond = {name: value for name, value in apart.items() if value > 1.0}
    lines = [f"{len(done)} of {total} checks: {len(errors)} raised, {len(beyond)} beyond the tolerance"]
    lines += [f"raised   {name}: {error}" for name, error in errors.items()]
    lines += [f"apart    {name}: {value:.3g} tolerances" for name, value in sorted(beyond.items(), key=lambda i: -i[1])]
    slow = sorted((r["device_s"] / max(r["cpu_s"], 1e-9), n) for n, r in done.items() if "error" not in r)[::-1]
    lines += [f"slower   {name}: {ratio:.1f} times the processor" for ratio, name in slow[:10]]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu, to see that it runs")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    parser.add_argument("--minutes", type=float, default=8.0, help="after which no further check begins")
    parser.add_argument("--only", default="", help="checks whose names contain this")
    options = parser.parse_args()
    device, start = torch.device(options.device), time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    versions = {"torch": torch.__version__, "gpytorch": gpytorch.__version__, "python": platform.python_version()}
    (options.out / "device.json").write_text(json.dumps({"device": str(device), "name": name} | versions))
    wanted = [(name, check) for name, check in checks() if options.only in name]
    done: dict[str, dict[str, Any]] = {}
    with open(options.out / "results.jsonl", "w", encoding="utf-8") as file:
        for name, check in wanted:
            if time.perf_counter() - start > 60.0 * options.minutes:
                break
            done[name] = measured(check, device)
            file.write(json.dumps({"name": name} | done[name]) + "\n")
            file.flush()
            (options.out / "summary.txt").write_text(summary(done, len(wanted)), encoding="utf-8")
    print(summary(done, len(wanted)), end="")
    return int(any("error" in record or record["over_tolerance"] > 1.0 for record in done.values()))


if __name__ == "__main__":
    sys.exit(main())
