"""Localized Maclaurin features: the collapse of plain ones at short lengthscales, cured, and when not to use them.

The sinc toy of T 5.3.3 and 5.5.1 with ten features, and the yacht and kin8nm data of T 5.5.3. Exact models are trained
by their evidence, and yacht also has the thesis' lengthscale of 0.32 with a noise variance of 0.01, which the thesis
does not tell; every approximation takes their parameters. KL is of noisy marginals, approximate from exact, summed
over test inputs; standard errors over seeds of the weights.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from tqdm import tqdm

import rfgp
from rfgp.diagnostics import exact_posterior, kl_divergence
from rfgp.diagnostics.exact import independent_normal
from rfgp.models import LocalizedMaclaurinGP, WeightSpaceGP
from rfgp.study import plots

from ..common import environment, mean_and_error, save_figure
from ..gpytorch_models import ExactModel
from .item import Claim, Options

TOY_FEATURES = 10
METHODS = ("fourier", "fourier_hadamard", "optimized_maclaurin")


def trained(x, y, rows=1500, fixed=None):
    """Kernel and likelihood of largest evidence on some rows; lengthscale and noise may be fixed."""
    some = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:rows]
    likelihood = GaussianLikelihood().double()
    model = ExactModel(x[some], y[some], likelihood, ScaleKernel(RBFKernel()), ZeroMean()).double()
    if fixed is not None:
        model.covar_module.base_kernel.lengthscale, likelihood.noise = fixed
        model.covar_module.base_kernel.requires_grad_(False)
        likelihood.requires_grad_(False)
    rfgp.fit(model, strategy=rfgp.training.Evidence(initialize=fixed is None), progress=False)
    return model.covar_module.requires_grad_(False), likelihood.requires_grad_(False)


def noisy(distribution, noise):
    """Independent normal marginals with the noise variance added."""
    return independent_normal(distribution.mean.double(), distribution.variance.double().clamp_min(0.0) + noise)


def approximation(method, kernel, likelihood, x, y, width, seed, **options):
    """A fitted model by a method's name; "localized" takes centers or a threshold."""
    if method == "localized":
        return LocalizedMaclaurinGP(kernel, likelihood, width, seed=seed, **options).condition(x, y)
    form = ":real" if method == "optimized_maclaurin" and x.shape[-1] == 1 else ""
    approximate = rfgp.approximate(kernel, width, method=method + form, train_inputs=x, seed=seed)
    return WeightSpaceGP(approximate, likelihood).condition(x, y)


def toy(frequencies=(5.0, 2.0, 0.5)):
    """Predictions of every method on a grid, and their KL to the exact model, for three frequencies."""
    result = []
    for frequency in frequencies:
        generator = torch.Generator().manual_seed(0)
        x = torch.linspace(-4.0, 4.0, 100, dtype=torch.float64)[:, None]
        clean = torch.sin(frequency * x[:, 0]) / x[:, 0]
        y = clean + 0.1 * torch.randn(100, generator=generator, dtype=torch.float64)
        kernel, likelihood = trained(x, y)
        grid = torch.linspace(-6.0, 6.0, 240, dtype=torch.float64)[:, None]
        exact = exact_posterior(kernel, likelihood, x, y, grid)
        reference = noisy(exact, float(likelihood.noise))
        options = {"localized, a center per input": {"centers": grid}, "localized, threshold 1": {"threshold": 1.0}}
        names = {"fourier": "fourier", "Maclaurin": "optimized_maclaurin"} | dict.fromkeys(options, "localized")
        curves = {"exact": (exact.mean.tolist(), exact.stddev.tolist())}
        divergences, centers = {}, {}
        for name, method in names.items():
            model = approximation(method, kernel, likelihood, x, y, TOY_FEATURES, 0, **options.get(name, {}))
            latent = model.posterior(grid)
            divergences[name] = float(kl_divergence(noisy(latent, float(likelihood.noise)), reference))
            curves[name] = (latent.mean.tolist(), latent.variance.clamp_min(0.0).sqrt().tolist())
            centers[name] = len(model.centers) if method == "localized" else 1
        result.append(
            {
                "frequency": frequency,
                "lengthscale": float(kernel.base_kernel.lengthscale),
                "outputscale": float(kernel.outputscale),
                "noise": float(likelihood.noise),
                "x": x[:, 0].tolist(),
                "y": y.tolist(),
                "grid": grid[:, 0].tolist(),
                "curves": curves,
                "kl": divergences,
                "centers": centers,
            }
        )
    return result


def real_data(name, data_dir, fixed, thresholds, widths, seeds, most_rows):
    """KL and RMSE against the threshold, and against the number of features, on one data set."""
    if name == "diabetes":
        found = rfgp.study.datasets.load(name)
        x, y = found.x_train, found.y_train
    else:
        with np.load(Path(data_dir) / f"{name}.npz") as archive:
            x, y = (torch.as_tensor(archive[key]).double() for key in ("x", "y"))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:most_rows]
    x, y = x[order], y[order].reshape(-1)
    cut = int(0.9 * len(x))
    mean, deviation = x[:cut].mean(0), x[:cut].std(0)
    x, y = (x - mean) / deviation, (y - y[:cut].mean()) / y[:cut].std()
    train, test = (x[:cut], y[:cut]), (x[cut:], y[cut:])
    kernel, likelihood = trained(*train, fixed=fixed)
    noise = float(likelihood.noise)
    reference = noisy(exact_posterior(kernel, likelihood, *train, test[0]), noise)

    def measure(method, width, seed, **options):
        model = approximation(method, kernel, likelihood, *train, width, seed, **options)
        latent = model.posterior(test[0])
        return {
            "method": method,
            "width": width,
            "seed": seed,
            "threshold": options.get("threshold"),
            "centers": len(model.centers) if method == "localized" else 1,
            "kl": float(kl_divergence(noisy(latent, noise), reference)),
            "rmse": float((latent.mean - test[1]).square().mean().sqrt()),
        }

    jobs = [("localized", widths[-1], s, {"threshold": t}) for t in thresholds for s in range(seeds)]
    jobs += [(m, w, s, {}) for m in METHODS for w in widths for s in range(seeds)]
    jobs += [("localized", w, s, {"threshold": thresholds[-1]}) for w in widths[:-1] for s in range(seeds)]
    return {
        "rows": cut,
        "lengthscale": float(kernel.base_kernel.lengthscale),
        "median_distance": float(torch.pdist(train[0][:2000]).median()),
        "outputscale": float(kernel.outputscale),
        "noise": noise,
        "exact_rmse": float((reference.mean - test[1]).square().mean().sqrt()),
        "runs": [measure(m, w, s, **options) for m, w, s, options in tqdm(jobs, desc=name, disable=seeds == 1)],
    }


def grouped(runs, keys):
    """Lists of runs by their values of some keys."""
    groups = {}
    for run in runs:
        groups.setdefault(tuple(run[key] for key in keys), []).append(run)
    return groups


def draw(result, out):
    """The toy as in T Fig. 5.2 and 5.8, and the data sets as in Fig. 5.10."""
    names = ["fourier", "Maclaurin", "localized, a center per input"]
    figure, axes = plots.figure(3, 3, width=3.6, height=2.4)
    for column, case in enumerate(result["toy"]):
        grid, exact = np.array(case["grid"]), case["curves"]["exact"]
        for row, name in enumerate(names):
            ax = axes[row, column]
            band(ax, grid, exact, plots.EXACT, "exact", filled=True)
            band(ax, grid, case["curves"][name], plots.COLORS[row], name)
            ax.plot(case["x"], case["y"], ".", color="0.6", markersize=2, zorder=0)
            spread = np.abs(np.array(exact[0])).max() + 2.2 * max(exact[1])
            ax.set_ylim(-spread, spread)
            ax.set_title(
                f"{name.partition(',')[0]}, l = {case['lengthscale']:.2f}, KL = {case['kl'][name]:.2g}",
                fontsize="small",
            )
    save_figure(figure, out.with_name("thesis_5_08.json"))
    figure, axes = plots.figure(2, len(result["data"]))
    for column, (name, data) in enumerate(result["data"].items()):
        clusters = grouped(data["runs"], ("method", "width"))["localized", max(r["width"] for r in data["runs"])]
        by_center = sorted(grouped(clusters, ("centers",)).items())
        points = [mean_and_error([run["kl"] for run in runs]) for _, runs in by_center]
        curve = plots.Curve([key[0] for key, _ in by_center], *map(list, zip(*points, strict=True)))
        plots.comparison(
            {"localized": curve}, xlabel="centers", ylabel="KL to the exact model", log_x=2, ax=axes[0, column]
        )
        axes[0, column].set_title(
            f"{name}\nl = {data['lengthscale']:.2f}, noise {data['noise']:.1e}", fontsize="medium"
        )
        curves = {}
        last = max((r["threshold"] or 0.0) for r in data["runs"] if r["width"] != max(q["width"] for q in data["runs"]))
        chosen = [r for r in data["runs"] if r["threshold"] in (None, last)]
        for method in ("localized", *METHODS):
            groups = sorted(grouped([r for r in chosen if r["method"] == method], ("width",)).items())
            points = [mean_and_error([run["rmse"] for run in runs]) for _, runs in groups]
            curves[method] = plots.Curve([key[0] for key, _ in groups], *map(list, zip(*points, strict=True)))
        plots.comparison(curves, xlabel="features D", ylabel="RMSE", log_x=2, ax=axes[1, column])
        axes[1, column].axhline(data["exact_rmse"], color=plots.EXACT, linewidth=0.8)
    plots.legend(figure, list(axes[1]), columns=4)
    save_figure(figure, out)


def band(ax, grid, curve, color, label, filled=False):
    """Mean and two standard deviations."""
    mean, deviation = np.array(curve[0]), 2.0 * np.array(curve[1])
    ax.plot(grid, mean, color=color, linewidth=1.2, linestyle="-" if filled else "--", label=label)
    if filled:
        ax.fill_between(grid, mean - deviation, mean + deviation, color=color, alpha=0.15, linewidth=0)
    else:
        ax.plot(grid, mean - deviation, color=color, linewidth=0.8)
        ax.plot(grid, mean + deviation, color=color, linewidth=0.8)


def measure(options: Options) -> dict[str, Any]:
    if options.quick:
        data = {"yacht": real_data("diabetes", None, (0.5, 0.5), (8.0, 4.0), (8, 16), 1, 80)}
        return {"features": TOY_FEATURES, "toy": toy((5.0,)), "data": data | {"kin8nm": data["yacht"]}}
    result = {"environment": environment(), "features": TOY_FEATURES, "toy": toy(), "data": {}}
    cases = {
        "yacht": ("yacht", None, (8.0, 4.0, 2.0, 1.0), (16, 32, 64, 128), 5, 308),
        "yacht, as in the thesis": ("yacht", (0.32, 0.01), (16.0, 8.0, 4.0, 2.0), (16, 32, 64, 128), 5, 308),
        "kin8nm": ("kin8nm", None, (8.0, 2.5, 2.0), (32, 64, 128, 256), 5, 3000),
    }
    for label, (name, fixed, *sizes) in cases.items():
        result["data"][label] = real_data(name, options.data_dir, fixed, *sizes)
    return result


def reach(case, name):
    """How far from 0 the mean of a method stays within a tenth of the largest exact one."""
    grid, exact = np.array(case["grid"]), np.array(case["curves"]["exact"][0])
    far = np.abs(np.array(case["curves"][name][0]) - exact) > 0.1 * np.abs(exact).max()
    return float(np.abs(grid[far]).min()) if far.any() else float(np.abs(grid).max())


def toy_claims(result: dict[str, Any]) -> list[Claim]:
    """T Fig. 5.2: accuracy around 0 and the collapse away from it."""
    cases = result["toy"]
    maclaurin = [reach(case, "Maclaurin") for case in cases]
    fourier = [reach(case, "fourier") for case in cases]
    case = cases[0]
    last = np.abs(case["curves"]["Maclaurin"][1][-1]) / case["outputscale"] ** 0.5
    frequencies = ", ".join(f"{case['frequency']:g}" for case in cases)
    return [
        Claim(
            "Maclaurin features approximate the mean around 0 more accurately than Fourier features",
            f"within 10 % up to |x| = {_list(maclaurin)}; Fourier {_list(fourier)} (frequencies {frequencies})",
            all(m >= f for m, f in zip(maclaurin, fourier, strict=True)),
        ),
        Claim(
            "the range becomes wider for a lower frequency",
            f"lengthscales {_list([case['lengthscale'] for case in cases])}, ranges {_list(maclaurin)}",
            maclaurin == sorted(maclaurin),
        ),
        Claim(
            "the posterior collapses far from 0",
            f"deviation at x = 6: {last:.2g} of that of the prior",
            bool(last < 0.1),
        ),
    ]


def localized_toy_claims(result: dict[str, Any]) -> list[Claim]:
    """T Fig. 5.8, at the largest frequency."""
    case, name = result["toy"][0], "localized, a center per input"
    best = min(case["kl"], key=case["kl"].get)
    deviation = case["curves"][name][1][-1] / case["outputscale"] ** 0.5
    shown = ", ".join(f"{key} {value:.3g}" for key, value in case["kl"].items() if "threshold" not in key)
    return [
        Claim("a center per test input gives the best approximations", f"KL {shown}", best.startswith("localized")),
        Claim(
            "it recovers the prior far from the data",
            f"deviation at x = 6: {deviation:.2g} of the prior's",
            deviation > 0.9,
        ),
    ]


def cluster_claims(result: dict[str, Any]) -> list[Claim]:
    """T Fig. 5.10: KL and RMSE."""
    found = []
    for label, data in result["data"].items():
        runs, largest = data["runs"], max(run["width"] for run in data["runs"])
        by_centers = {
            statistics.fmean(run["centers"] for run in own): statistics.fmean(run["kl"] for run in own)
            for own in grouped(
                [r for r in runs if r["method"] == "localized" and r["width"] == largest], ("threshold",)
            ).values()
        }
        few, many = by_centers[min(by_centers)], by_centers[max(by_centers)]
        is_short = label.startswith("yacht")
        printed = "adding clusters gives large gains" if is_short else "adding clusters increases the KL"
        shown = f"KL {few:.3g} with {min(by_centers):.0f} centers, {many:.3g} with {max(by_centers):.0f}"
        lengthscale = f"lengthscale {data['lengthscale']:.2f}, median distance {data['median_distance']:.2f}"
        found.append(Claim(f"{label}: {printed}", f"{shown}; {lengthscale}", many < few if is_short else many > few))
        errors = {
            method: statistics.fmean(run["rmse"] for run in own)
            for (method, width), own in grouped(runs, ("method", "width")).items()
            if width == min(run["width"] for run in runs)
        }
        own = errors["localized" if is_short else "optimized_maclaurin"]
        shown = f"{own:.3g} against {errors['fourier']:.3g} with {min(run['width'] for run in runs)} features"
        found.append(Claim(f"{label}: RMSE below Fourier features for small D", shown, own < errors["fourier"]))
    return found


def _list(numbers: list[float]) -> str:
    return ", ".join(f"{number:.2g}" for number in numbers)


CLAIMS = {"T Fig. 5.2": toy_claims, "T Fig. 5.8": localized_toy_claims, "T Fig. 5.10": cluster_claims}
