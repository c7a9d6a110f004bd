# %% [markdown]
# # More rows than memory
#
# Buoys drift through a sea and report its temperature, every few minutes, for years. The table has long stopped to fit
# into the memory of your machine, and the fit takes long enough for the power to fail in between. **How do you learn
# from all rows when you can never hold them, and what do you have when a run is stopped half way?**
#
# A Gaussian process with D features knows its data by sums over rows: a D x D matrix and a vector. So one pass over
# the table is enough, batch by batch; memory is that of a batch; and sums that were saved are a fit half way. Sums of
# parts add up to those of all, which is how many processes share the work.

# %%
import copy
import os
import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gpytorch
import matplotlib.pyplot as plt
import numpy as np
import pyarrow
import pyarrow.parquet
import torch

import rfgp
from rfgp.data import MappedSource, ParquetSource, Standardize, sample
from rfgp.study import plots

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
torch.set_default_dtype(torch.float64)
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})

# %% [markdown]
# ## The table
#
# The rows are simulated: a place in a sea of 2000 x 1000 km, a day of the year, and a temperature in °C whose
# instruments have an error of 0.3 K. They are written to files month by month, as they would come; nothing below holds
# all of them. Twelve thousand rows a month make no big table. It is enough to see that nothing depends on it.


# %%
def temperature(east, north, day):
    """The true temperature in °C, at kilometers from the south-west and the day of the year."""
    season = 14.0 - 0.005 * north + 5.0 * np.sin(2.0 * np.pi * (day - 120.0) / 365.0)
    return season + 1.5 * np.sin(east / 300.0 + day / 60.0) * np.cos(north / 250.0)


folder = Path(tempfile.mkdtemp())
generator = np.random.default_rng(0)
MONTHS, ROWS = (3, 900) if SHORT else (12, 12_000)
for month in range(MONTHS):
    east, north = 2000.0 * generator.random(ROWS), 1000.0 * generator.random(ROWS)
    day = 365.0 * generator.random(ROWS)
    measured = temperature(east, north, day) + 0.3 * generator.standard_normal(ROWS)
    table = pyarrow.table({"east": east, "north": north, "day": day, "temperature": measured})
    pyarrow.parquet.write_table(table, folder / f"part-{month:02d}.parquet", row_group_size=ROWS // 3)

INPUTS = ["east", "north", "day"]
source = ParquetSource(folder, inputs=INPUTS, target="temperature", batch_size=ROWS // 3)
print(source)
print(f"{source.num_rows:,} rows in batches of {len(next(iter(source))[0]):,}")

# %% [markdown]
# A source is a recipe and holds no rows. It knows files and columns, reads batches in the same order at every pass,
# begins at any of them, and opens its files anew in another process. For CSV, Arrow, Zarr and memory maps there are
# others; a `DataLoader` will do too.
#
# ## A look at it
#
# One pass draws random rows, of all files alike, and finds means and standard deviations of the columns. Rows are
# then standardized on the fly, by a function that is called with every batch.

# %%
known = sample(source, 300 if SHORT else 1000, seed=0)
for name, mean, std in zip(INPUTS, known.inputs.mean, known.inputs.std, strict=True):
    print(f"{name:>6}: mean {mean:7.1f}, standard deviation {std:6.1f}")
scaling = Standardize(known.inputs.mean, known.inputs.std, known.targets.mean, known.targets.std)
center, unit = float(known.targets.mean), float(known.targets.std)

power_fails_in = -1  # batches; negative for never


def scaled(x, y):
    """A batch in standard deviations, unless the power fails."""
    global power_fails_in
    power_fails_in -= 1
    if power_fails_in == 0:
        raise RuntimeError("the power failed")
    return scaling(x, y)


rows = MappedSource(source, scaled)

# %% [markdown]
# ## Parameters from the sample, sums from all
#
# A lengthscale does not need a million rows: a thousand random ones know it well enough. They are learned from
# the sample, by the exact evidence. The features are kernels at 256 of the same rows, the *landmarks*. Their weights do
# profit from every row, and take them in one pass.

# %%
exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=3))
kernel = rfgp.approximate(exact, 64 if SHORT else 256, method="landmarks", train_inputs=scaling(known.x)[0], seed=0)
model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood(), gpytorch.means.ConstantMean())
settings = {"strategy": "subset", "max_evaluations": 4 if SHORT else 30, "progress": False}
print(rfgp.fit(model, *scaling(known.x, known.y), **settings))

# %% [markdown]
# Is that any good? While the model is one of the sample alone, every row of it can be predicted by the others, without
# refits. What is predicted are measurements, with their error.

# %%
x, y = scaling(known.x, known.y)
with torch.no_grad():
    left_out = model.condition(x, y).leave_one_out(x, y)
inside = ((y - left_out.mean).abs() <= 1.96 * left_out.variance.sqrt()).double().mean()
error = unit * (y - left_out.mean).square().mean().sqrt()
print(f"left out: RMSE {error:.2f} K, {inside:.1%} of the rows in their 95 % interval")

# %% [markdown]
# ## One pass, and the power fails
#
# With `checkpoint=` the sums are written to a file on the way, under a temporary name first, so that the file is there
# whole or not at all. We let the power fail after two thirds of the batches, and call the same line again. It goes on
# from the last checkpoint, and ends with the same bits as a fit that was never stopped.


# %%
def peak():
    """The largest memory of the process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


checkpoint = {"checkpoint": folder / "sums.checkpoint", "checkpoint_every": source.num_rows // 6, "progress": False}
power_fails_in = 2 * MONTHS
with torch.no_grad():
    try:
        model.condition(rows, **checkpoint)
    except RuntimeError as error:
        print(error)
    power_fails_in, before, began = -1, peak(), time.process_time()
    model.condition(rows, **checkpoint)
    resumed = model.statistics.gram.clone()
    print(f"went on and ended after {time.process_time() - began:.1f} s of the processor")
    began = time.process_time()
    model.condition(rows, progress=False)
assert torch.equal(model.statistics.gram, resumed)
print(f"all rows at once: {time.process_time() - began:.1f} s, and the same bits")
features = source.num_rows * resumed.shape[-1] * 8 / 2**20
print(f"the peak of memory grew by {peak() - before:.0f} MiB; the features of all rows would take {features:.0f} MiB")

# %% [markdown]
# The file also knows the model, its parameters, the source and the last batch. It refuses to go on with another one of
# these: that would be the silent kind of wrong.
#
# ## Many workers, the same bits
#
# Floating-point sums depend on their order, and a result that changes with the number of workers cannot be compared
# with yesterday's. So the parts are added up in a tree that depends on the number of parts alone. Two threads here;
# `ProcessPoolExecutor`, Dask and MPI go in the same place.

# %%
parts = rows.partitions(4)
grams = []
for workers in (1, 2):
    with ThreadPoolExecutor(workers) as executor, torch.no_grad():
        model.condition(parts, executor=executor)
    grams.append(model.statistics.gram.clone())
assert torch.equal(*grams)
difference = float((grams[0] - resumed).abs().max() / resumed.abs().max())
print(f"one worker or two: the same bits; without an executor rounding differs by {difference:.0e}")

# %% [markdown]
# ## What do more rows buy?
#
# We fit to the sample, to a sixteenth and a quarter of the rows, and to all, and compare with the true temperature at
# places and days that nobody measured. What is measured in the left figure: the root mean squared error of the
# predicted function. What is predicted: the standard deviation that the model itself states. Where the model is right,
# the two agree.

# %%
fresh = np.random.default_rng(1).random((500 if SHORT else 2000, 3)) * [2000.0, 1000.0, 365.0]
truth = torch.from_numpy(temperature(*fresh.T))
points = scaling(torch.from_numpy(fresh))[0]


def errors(fitted):
    """The error of the means, and what the model says of it, in kelvin."""
    posterior = fitted.posterior(points)
    error = (center + unit * posterior.mean - truth).square().mean().sqrt()
    return float(error), unit * float(posterior.variance.mean().sqrt())


counts, found = [], []
with torch.no_grad():
    model.condition(x, y)
    for share in (16, 4, 1):
        counts.append(round(float(model.statistics.num_rows)))
        found.append(errors(model))
        model.condition(rows.partitions(share)[0], progress=False)
    counts.append(source.num_rows)
    found.append(errors(model))
for count, (error, stated) in zip(counts, found, strict=True):
    print(f"{count:>9,} rows: error {error:.3f} K, stated {stated:.3f} K")

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(9.8, 3.8), layout="constrained")
error, stated = np.array(found).T
left.plot(counts, error, color=plots.COLORS[0], marker=plots.MARKERS[0], label="measured: RMSE of the mean")
left.plot(counts, stated, "--", color=plots.COLORS[1], marker=plots.MARKERS[1], label="predicted: standard deviation")
left.set(xscale="log", yscale="log", xlabel="rows of the fit", ylabel="error of the temperature, K")
left.set_title("what rows buy")
left.legend(frameon=False)

across = np.stack(np.meshgrid(np.linspace(0.0, 2000.0, 80), np.linspace(0.0, 1000.0, 40), [200.0]), -1).reshape(-1, 3)
with torch.no_grad():
    mean = center + unit * model.posterior(scaling(torch.from_numpy(across))[0]).mean
image = right.imshow(mean.reshape(40, 80), origin="lower", extent=(0.0, 2000.0, 0.0, 1000.0), cmap="viridis")
levels = right.contour(
    across[:80, 0], across[::80, 1], temperature(*across.T).reshape(40, 80), colors="white", linewidths=0.8
)
right.clabel(levels, fontsize=7)
fig.colorbar(image, ax=right, shrink=0.75, label="predicted temperature, °C")
right.set(xlabel="km from the west", ylabel="km from the south", title="day 200: predicted (colors), true (lines, °C)")
fig.savefig("more_rows.png")

# %% [markdown]
# Eighteen times as many rows, 144,000 in place of 8,000, leave less than a third of the error, nearly as averaging
# does. The stated one falls more slowly, since it has what the landmarks leave open of the kernel, which no row tells:
# here it is too modest, and not too bold. For the same reason more rows will not help for ever. More features do, at
# D² for each row.
#
# ## Parameters from all rows
#
# Where a sample does not know the parameters well enough, `rfgp.fit` takes the source itself: the objective is the
# evidence of all rows, at one pass for every value and one more for its gradient, and at the memory of a batch. Here
# is that with few features and few evaluations, from where the sample has led.

# %%
small = rfgp.approximate(kernel.exact_kernel, 64, method="landmarks", train_inputs=x, seed=1)
other = rfgp.WeightSpaceGP(small, copy.deepcopy(model.likelihood), copy.deepcopy(model.mean_module))
few = rows if SHORT else rows.partitions(4)[0]  # a quarter of the rows, for this page
print(
    rfgp.fit(
        other,
        few,
        strategy=rfgp.training.Evidence(initialize=False),
        max_evaluations=3 if SHORT else 10,
        progress=False,
    )
)

# %% [markdown]
# With 64 features in place of 256 the best parameters are others, since the features have to make do with them:
# parameters belong to the model that they were learned with.
#
# ## Limits
#
# - The pass costs N D² operations. It is shared by workers, and not avoided.
# - A random sample misses what is rare. A storm of three days in one corner is in all rows, and maybe in none of the
#   sample, whose lengthscales then smooth it away.
# - Stated errors are those of independent errors of measurement. If buoys have offsets of their own, a million rows
#   of ten buoys are no million: the stated error will be far too small. Put such groups into the kernel, or leave
#   them out together, as in *Honest error bars*.
# - `block_size`, which adds what near rows know, keeps all rows in memory. So do exact models. A certificate of how far
#   features are from exact needs the rows too (`rfgp.diagnostics.certificates`), or a sample of them
#   (`rfgp.diagnostics.compare_to_exact`).
