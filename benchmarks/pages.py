"""Which numbers of pages come from which results: ``python -m benchmarks check`` compares or writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from .cells import Cell
from .common import mean_and_error

Values = Callable[[Any], list[float]]
NUMBER = r"(-?[\d,]*\.?\d+)"
GUIDE, MEASURED = "docs/choosing_features.rst", "docs/measured.md"


def row(label: str, count: int) -> str:
    """A row of a table of reStructuredText, whose numbers are parted by blanks or commas."""
    return rf"\n{re.escape(label)} +" + r",? +".join([NUMBER] * count)


def mean(values: Iterable[float]) -> float:
    """The mean."""
    return float(np.mean(list(values)))


def _split_means(content: Any, name: str, method: str, measure: str) -> float:
    cells = [cell for key, cell in content["cells"].items() if key.rpartition("|")[0] == f"{name}|{method}"]
    return mean(point[measure] for cell in cells for point in cell.values())


def _accuracy(method: str, *cells: tuple[str, str]) -> Values:
    """Means over splits of a measure on a set."""
    return lambda content: [_split_means(content, name, method, measure) for name, measure in cells]


def _label_noise(name: str, *methods: str) -> Values:
    """Means over sets of the log loss of methods."""

    def values(content: Any) -> list[float]:
        cells = [cell for key, cell in content["cells"].items() if key.startswith(f"{name}|")]
        return [mean(cell[method]["log loss"] for cell in cells) for method in methods]

    return values


def _messy(content: Any) -> list[float]:
    ratios = [found["error"] / found["boosting"] for found in content["rows"]]
    return [min(ratios), max(ratios)]


def _effects(content: Any) -> list[float]:
    """The least and the most error of tables with shops or postal codes, in errors of boosting."""
    own = [found for found in content["rows"] if found["table"] in ("sales", "houses")]
    return _messy({"rows": own})


def _divergences(content: Any) -> list[float]:
    """Rank correlations of the error of the kernel, and of KL, with the coverage of Fourier features."""
    cells = [cell for key, cell in content["cells"].items() if "fourier" in key]
    covered = [cell["coverage"] for cell in cells]
    measures = ("kernel_error", "exact_from_approximate")
    return [float(spearmanr([cell[name] for cell in cells], covered)[0]) for name in measures]


def _quasi(content: Any) -> list[float]:
    """How many times smaller the error of a Matern-3/2 kernel is for Sobol points, of 1, 2, 4 and 8 inputs."""
    return [content["cells"][f"Matern 3/2/{count}/256"]["ratio"][0] for count in (1, 2, 4, 8)]


def _sketches(content: Any) -> list[float]:
    """Milliseconds of the structured sketch, and seconds of the dense one."""
    seconds = [content["cells"][f"{name}/10240"]["seconds"] for name in ("tensor_srht:ctr", "rademacher:ctr")]
    return [1000.0 * seconds[0], seconds[1]]


def _learned_grids(content: Any) -> list[float]:
    """The least and the most seconds of parameters of a million rows, and those of a map."""
    fits = [case["fit_seconds"] for case in content["cases"] if case["method"].startswith("fourier_grid")]
    return [min(fits), max(fits), _grid(content)[1]]


def _iteration(content: Any) -> list[float]:
    """Processor seconds of an iteration with the learned noise."""
    cell = content["cells"]["protein, noise times 1"]
    return [cell["seconds"]["processor"] / cell["iterations"]]


def _grid(content: Any) -> list[float]:
    """Seconds of a fit with an open number of features, and of a map, with its memory in GB, for a Gaussian kernel."""
    cases = {case["method"]: case for case in content["cases"] if (case["kernel"], case["inputs"]) == ("Gaussian", 2)}
    whole, fit = cases["fourier_grid"], cases["fourier_grid, open"]
    return [fit["fit_seconds"], whole["map_seconds"], whole["peak_mb"] / 1000.0]


def _study(name: str) -> Values:
    def values(content: Any) -> list[float]:
        cells = content["cells"][name]
        columns = {key: mean_and_error([float(np.mean(cell[key])) for cell in cells]) for key in STUDY}
        inside = [value for key in ("indices_inside", "quantiles_inside") for value in columns[key]]
        seconds = float(np.median([cell["seconds"] for cell in cells]))
        return [seconds, columns["relative_error"][0], *columns["coverage"], columns["index_error"][0], *inside]

    return values


STUDY = ("relative_error", "coverage", "index_error", "indices_inside", "quantiles_inside")


def _study_row(name: str) -> str:
    pair = rf"{NUMBER} ± {NUMBER}"
    return rf"(?m)^{name} +" + " +".join([NUMBER, NUMBER, pair, NUMBER, pair, pair])


def _shares(content: Any, parameters: str, method: str, place: str) -> list[float]:
    """Shares of functions in 95 % intervals, one of each problem."""
    cells = [c for k, c in content["cells"].items() if k.startswith(f"{parameters}|") and k.endswith(f"|{method}")]
    return [mean(one[place]["coverage"][2] for one in cell) for cell in cells]


def _coverage(parameters: str, method: str) -> Values:
    """The row of a method: shares inside and outside with the least and the most, densities, and seconds."""

    def values(content: Any) -> list[float]:
        shares = [_shares(content, parameters, method, place) for place in ("inside", "outside")]
        cells = [c for k, c in content["cells"].items() if k.startswith(f"{parameters}|") and k.endswith(f"|{method}")]
        densities = [
            float(np.median([one[place]["nlpd"] for cell in cells for one in cell])) for place in ("inside", "outside")
        ]
        seconds = float(np.median([one["seconds"] for cell in cells for one in cell]))
        return [*(v for own in shares for v in (mean(own), min(own), max(own))), *densities, seconds]

    return values


COVERAGE = {
    "Fourier, 256": "Fourier, 256",
    "Fourier, 1,024": "Fourier, 1,024",
    "8 x Fourier, 256": "8 draws of Fourier, 256",
    "landmarks, 128": "landmarks, 128",
    "landmarks, 512": "landmarks, 512",
    "128, blocks of 128": "landmarks, 128, blocks of 128",
    "512, blocks of 256": "landmarks, 512, blocks of 256",
    "128, 128, own block": "the same, 128, own block only",
    "512, 256, own block": "the same, 512, own block only",
    "exact": "exact",
}
"""Rows of the guide, and methods of the script."""
LEARNED = ("Fourier, 256", "8 x Fourier, 256", "landmarks, 128", "128, blocks of 128", "512, blocks of 256")


def _blocks(content: Any) -> list[float]:
    """The least and the most that landmarks with blocks cover inside and outside."""
    methods = ("landmarks, 128, blocks of 128", "landmarks, 512, blocks of 256")
    shares = [
        s for method in methods for place in ("inside", "outside") for s in _shares(content, "true", method, place)
    ]
    return [min(shares), max(shares)]


def _wide_grid(content: Any) -> list[float]:
    """Error, seconds of fit and predictions of landmarks, then of the two grids."""
    cases = {case["features"]: case for case in content["cases"]}
    found = [(cases[count]["rmse"], cases[count]["fit_seconds"] + cases[count]["predict_seconds"]) for count in GRIDS]
    return [value for pair in found for value in pair]


GRIDS = (512, 1801, 20_001)
WIDE = ("seconds of the mean", "mb", "num_iterations", "residual", "rmse")


def _calibration(content: Any) -> list[float]:
    return [content["cells"][name][score] for name in ("mnist", "letter") for score in ("error", "nlpd")]


def _latent(content: Any) -> list[float]:
    shares = [mean(cell) for cell in content["cells"].values()]
    return [min(shares), max(shares)]


def _drawn(content: Any) -> list[float]:
    """What landmarks with blocks cover, one draw, and a mixture of draws."""
    draws = ("Fourier, 1,024", "8 draws of Fourier, 256")
    return [*_blocks(content), *(mean(_shares(content, "true", method, "inside")) for method in draws)]


def _conformal(content: Any) -> list[float]:
    """The least and the most of all conformal methods, and of the model's own intervals."""
    own = [kind["model"]["coverage"] for kind in content["cells"].values()]
    others = [c["coverage"] for kind in content["cells"].values() for name, c in kind.items() if name != "model"]
    return [min(others), max(others), min(own), max(own)]


def _studies(content: Any) -> list[float]:
    """Seconds and coverage of the beam, and coverage of the g-function, 150 runs."""
    beam, kinks = (content["cells"][f"{name}, 150 runs"] for name in ("beam", "g-function"))
    seconds = float(np.median([cell["seconds"] for cell in beam]))
    return [seconds, *(mean(float(np.mean(cell["coverage"])) for cell in cells) for cells in (beam, kinks))]


def at(*paths: tuple[str, ...]) -> Values:
    """The numbers at paths of keys."""

    def values(content: Any) -> list[float]:
        found = []
        for path in paths:
            value = content
            for key in path:
                value = value[key]
            found.append(float(value))
        return found

    return values


def lines(label: str, *patterns: str) -> str:
    """A row of a list table, a line for each cell."""
    return rf"\* - {re.escape(label)}\n" + "".join(rf"\s+- {pattern}\n" for pattern in patterns)


def _files(name: str) -> Values:
    """Errors and densities of models with rows, without, and of landmarks alone."""
    kinds = ("with rows", "without rows", "landmarks alone")
    return lambda content: [
        mean(cell[kind][score] for key, cell in content["cells"].items() if key.startswith(f"{name}|"))
        for score in ("rmse", "nlpd")
        for kind in kinds
    ]


def _noise(label: str) -> Values:
    """Median, quartiles and range of the noise that is found over the true one, and median seconds."""

    def values(content: Any) -> list[float]:
        own = [cell for key, cell in content["cells"].items() if key.startswith(f"{label}|")]
        ratios = [cell["ratio"] for cell in own]
        shares = (0.5, 0.25, 0.75, 0.0, 1.0)
        return [*np.quantile(ratios, shares).tolist(), float(np.median([cell["seconds"] for cell in own]))]

    return values


NOISE = (
    "evidence, D = 64",
    "evidence, D = 256",
    "evidence, D = 1,024",
    "subset",
    "blocks",
    "subset, landmarks with blocks",
    "blocks, landmarks with blocks",
)
BOUNDS = {
    "learned landmarks": ("weights, learned landmarks, all rows", "weights, learned landmarks"),
    "landmarks_kmeans": ("weights, landmarks_kmeans",) * 2,
    "landmarks": ("weights, landmarks",) * 2,
    "fourier_orthogonal": ("weights, orthogonal Fourier",) * 2,
    "SVGP, natural gradients": ("SVGP, natural gradients and Adam",) * 2,
}
"""Rows of the page, and methods of the script on two classes and on letters."""
LONGER = ("weights, learned landmarks, all rows", "SVGP, natural gradients and Adam")


def _bounds(methods: tuple[str, str]) -> Values:
    sets = ("drawn, 1,372 x 4", "letters")
    cells = [f"{name}; 128; {method}" for name, method in zip(sets, methods, strict=True)]
    return at(*(("cells", cell, key) for cell in cells for key in ("bound", "seconds")))


FUNCTIONS = at(*(("seconds", way) for way in ("as one callable", "one by one")))
PARQUET = ("cells", "rfgp, Parquet", "1000000")
CELLS = [
    Cell(MEASURED, r"errors are (\.\d+) to (\.\d+) times those of boosting", "messy_tables", _messy),
    Cell(
        MEASURED,
        rf"a log loss of {NUMBER} where the rate of random labels is\s+learned, {NUMBER} by a softmax and {NUMBER} by",
        "label_noise",
        _label_noise("border in six inputs", "heteroscedastic", "Softmax", "boosting"),
    ),
    Cell(
        MEASURED,
        rf"of rings in two inputs no gain, {NUMBER} and {NUMBER}\. `label_noise`",
        "label_noise",
        _label_noise("rings", "heteroscedastic", "Softmax"),
    ),
    Cell(
        MEASURED,
        rf"error of {NUMBER} and a log loss of {NUMBER}; letters {NUMBER} and {NUMBER}\.",
        "class_calibration",
        _calibration,
    ),
    Cell(
        MEASURED,
        rf"blocks hold {NUMBER} to {NUMBER}, inside"
        rf"[^`]*features hold {NUMBER} inside, and those of eight draws of 256 {NUMBER}\.",
        "coverage",
        _drawn,
    ),
    Cell(MEASURED, rf"intervals hold {NUMBER} to {NUMBER} in 24 drawn problems", "latent_coverage", _latent),
    Cell(
        MEASURED,
        rf"of 90 % hold {NUMBER} to {NUMBER} of new(?s:.*)own hold {NUMBER} to {NUMBER}\. `conf",
        "conformal_coverage",
        _conformal,
    ),
    Cell(
        MEASURED,
        rf"150 runs: {NUMBER} s, and intervals hold {NUMBER} of the outputs;"
        rf" of the\s+g-function, which has kinks, {NUMBER}\.",
        "uncertainty_study",
        _studies,
    ),
    Cell(
        MEASURED,
        rf"gradient take {NUMBER} times their products, and {NUMBER} MB",
        "gradient_memory",
        at(*(("summary", "1000000", key) for key in ("to floor", "mb"))),
    ),
    Cell(MEASURED, rf"parameters in {NUMBER} s with(?s:.*)points in {NUMBER} s and {NUMBER} GB", "fourier_grid", _grid),
    Cell(
        MEASURED,
        rf"features: {NUMBER} s, {NUMBER} times the products alone, and {NUMBER} MB",
        "scale_rows",
        at(*((*PARQUET, key) for key in ("seconds", "to products", "mb"))),
    ),
    Cell(
        "docs/what_there_is.md",
        rf"features take {NUMBER} processor seconds, {NUMBER}\s+times the products alone, and {NUMBER} MB",
        "scale_rows",
        at(*((*PARQUET, key) for key in ("seconds", "to products", "mb"))),
    ),
    Cell(
        "docs/chooser.rst",
        rf"1,024 features in {NUMBER} s and {NUMBER} MB",
        "scale_rows",
        at(*((*PARQUET, key) for key in ("seconds", "mb"))),
    ),
    Cell(
        MEASURED,
        rf"takes {NUMBER} times the fit in float64, and {NUMBER} times in float32",
        "leave_out_scale",
        at(*(("cells", dtype, "ratio") for dtype in ("float64", "float32"))),
    ),
    *(
        Cell(page, rf"take {NUMBER} s at 512 features, and\s+{NUMBER} s one by one", "function_samples", FUNCTIONS)
        for page in (MEASURED, "docs/getting_started.rst")
    ),
    Cell(
        MEASURED, rf"1,024 features takes {NUMBER} s", "scale_checkpoints", at(("cost", "processor seconds of a save"))
    ),
    Cell(
        MEASURED,
        rf"rfgp takes {NUMBER} s, and PyTorch and GPyTorch alone {NUMBER} s",
        "import_time",
        at(("medians", "rfgp"), ("medians", "torch and gpytorch")),
    ),
    *(
        Cell("docs/saving.rst", lines(label, *[NUMBER] * 6), "saving", _files(name))
        for name, label in (("kin8nm", "kin8nm, 6,554"), ("protein", "protein, 36,584"))
    ),
    *(
        Cell(GUIDE, lines(label, NUMBER, *[f"{NUMBER} to {NUMBER}"] * 2, NUMBER), "learned_noise", _noise(label))
        for label in NOISE
    ),
    *(Cell("docs/variational.rst", row(label, 4), "variational", _bounds(own)) for label, own in BOUNDS.items()),
    Cell(
        GUIDE,
        rf"square error of {NUMBER} and(?s:.*)256 rows, in {NUMBER} processor seconds\."
        rf" A grid has {NUMBER} and 99 % with 1,801\s+features in {NUMBER} s,"
        rf" and {NUMBER} and 97 % with 20,001 in {NUMBER} s",
        "wide_grid",
        _wide_grid,
    ),
    Cell("README.md", r"errors at (\.\d+) to (\.\d+) of boosting's", "messy_tables", _messy),
    Cell(
        "README.md",
        r"RMSE ([\d.]+) in ([\d.]+) s, .*; rf1.* lost: ([\d.]+) against",
        "accuracy_per_second",
        _accuracy("rfgp", ("kin40k", "error"), ("kin40k", "seconds"), ("rf1", "error")),
    ),
    Cell(
        "README.md",
        r"RMSE .* s, boosting ([\d.]+); rf1.* lost: .+ against ([\d.]+)\.",
        "accuracy_peers",
        _accuracy("boosting, up to 1,000 trees", ("kin40k", "error"), ("rf1", "error")),
    ),
    Cell("README.md", r"parameters in ([\d.]+) s, a map .* in ([\d.]+) s and ([\d.]+) GB", "fourier_grid", _grid),
    Cell("README.md", r"functions drawn from the model hold (\.\d+) to (\.\d+)", "coverage", _blocks),
    *(
        Cell("docs/uncertainty_studies.rst", _study_row(name), "uncertainty_study", _study(name))
        for name in (
            *(f"{simulator}, {runs} runs" for simulator in ("beam", "Ishigami", "g-function") for runs in (60, 150)),
            *(f"{simulator}, 200 runs" for simulator in ("piston", "wing weight")),
            *(f"tails to {share} %, 60 runs" for share in (90, 95, 99)),
        )
    ),
    Cell(GUIDE, rf"Fourier features is {NUMBER}, that of KL {NUMBER}\.\n", "kl_and_coverage", _divergences),
    Cell(
        GUIDE,
        rf"by factors of {NUMBER} for d = 1, {NUMBER} for 2, {NUMBER} for 4 and {NUMBER} for 8",
        "quasi_monte_carlo",
        _quasi,
    ),
    Cell(
        "docs/chooser.rst",
        rf"1/{NUMBER} of that of orthogonal frequencies for 1 input,\s+"
        rf"1/{NUMBER} for 2, 1/{NUMBER} for 4, 1/{NUMBER} for 8",
        "quasi_monte_carlo",
        _quasi,
    ),
    Cell(
        "docs/chooser.rst", rf"{NUMBER} ms for 1,000 rows; dense weights {NUMBER} s", "feature_construction", _sketches
    ),
    Cell(
        "docs/chooser.rst",
        rf"a million rows in {NUMBER} to {NUMBER} s, a map of 10\^8 points in {NUMBER} s",
        "fourier_grid",
        _learned_grids,
    ),
    Cell(
        "docs/certificates.rst", rf"about {NUMBER} processor seconds for the\s+41,157 rows", "certificate", _iteration
    ),
    Cell(
        "docs/big_tables.rst",
        rf"a save takes 8 MB and {NUMBER} s of the",
        "scale_checkpoints",
        at(("cost", "processor seconds of a save")),
    ),
    Cell(
        "docs/tables.rst", rf"postal codes are {NUMBER} to {NUMBER} times those of boosting", "messy_tables", _effects
    ),
    Cell(
        "docs/variational.rst",
        rf"learned landmarks come to {NUMBER} on\s+two classes, and SVGP to {NUMBER}\.",
        "variational",
        at(*(("cells", f"drawn, 1,372 x 4; 128; {method}, for longer", "bound") for method in LONGER)),
    ),
    *(Cell(GUIDE, row(label, 9), "coverage", _coverage("true", method)) for label, method in COVERAGE.items()),
    *(
        Cell(
            GUIDE, rf"(?s)With learned parameters.*?{row(label, 9)}", "coverage", _coverage("learned", COVERAGE[label])
        )
        for label in LEARNED
    ),
]
"""The numbers that are checked."""
