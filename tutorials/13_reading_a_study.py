# %% [markdown]
# # Reading a study
#
# You have a table, and somebody tells you to use a Gaussian process because it knows how sure it is. Exact or
# approximate? With how many features? And is it worth the trouble, or would a straight line do? **A study answers
# these questions with measurements. How do you read it, and when should you not believe it?**
#
# In a terminal a study is one line, `rfgp study table.csv --target y --kernel auto`. Here it is run from Python, on a
# data frame, so that we can look at its parts.

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas

from rfgp import study
from rfgp.study import plots

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs

# %% [markdown]
# ## A table of which we know the truth
#
# A pump is tested at different speeds, temperatures and with two kinds of oil. Its efficiency depends on the speed in
# a curve with a bump, on the oil, and hardly on the temperature; the instrument has an error of half a point. As we
# made the table ourselves, we know what a good study has to find out.

# %%
rows = 40 if SHORT else 600
rng = np.random.default_rng(0)
frame = pandas.DataFrame(
    {
        "speed": rng.uniform(500, 3000, rows),
        "temperature": rng.normal(60, 8, rows),
        "oil": rng.choice(["mineral", "synthetic"], rows),
    }
)
curve = 70 + 12 * np.sin(frame["speed"] / 350) + 3 * (frame["oil"] == "synthetic")
frame["efficiency"] = curve + 0.5 * rng.normal(size=rows)
frame.head()

# %% [markdown]
# ## Running it
#
# `kernel="auto"` learns the parameters of eight exact models and takes the kernel that predicts rows best that were
# left out. Then every method and number of features is fitted with several seeds, for random features are random:
# one seed may be lucky.
#
# With `out`, every run is on the disk as soon as it is measured. Pull the plug, start again with `resume=True`, and it
# goes on where it was. A directory with results is not overwritten unless you say `force=True`.

# %%
folder = Path(tempfile.mkdtemp()) / "pump"
result = study.run(
    frame,
    target="efficiency",
    kernel="auto",
    methods=["auto", "landmarks"],
    num_features=(8, 16) if SHORT else (32, 64, 128, 256),
    num_seeds=2 if SHORT else 5,
    out=folder,
)
print(sorted(path.name for path in folder.iterdir()))

# %% [markdown]
# ## The verdict
#
# It comes first in `report.html`, which is one file that you can send to anybody, and last in the terminal.

# %%
print(result.verdict())

# %% [markdown]
# Read it from the bottom.
#
# *Against no model at all.* A model that predicts the mean of the training targets for every row. What is not clearly
# better than this has learned nothing, whatever its error bars look like.
#
# *Against a linear model.* Ridge regression on the same columns. Many tables in this world are linear up to noise, and
# a study that does not say so wastes your time. The bump in the speed is not linear, so here the difference is large.
#
# *Intervals.* Of intervals of 95 %, 95 % should have the test target. Fewer: overconfident. More: too cautious, which
# is safe but tells less. The exact model stands beside it: where both are overconfident, the kernel or the noise model
# is wrong, and more features will not help.
#
# *MNLL and RMSE.* RMSE judges means alone. MNLL, the mean negative log likelihood, judges means and error bars
# together: an error of three standard deviations costs 4.5 nats, so that a model which is wrong and sure of it has no
# place to hide. The difference from the exact model is taken row by row, which makes its standard error much smaller
# than those of the two numbers.
#
# *KL per point* is the distance from the exact posterior, and the one number that knows about the error bars of the
# function at every single point. Up to 0.01 nobody can tell the two apart, up to 0.1 they are close, and from 0.5 on
# the error bars are decoration.
#
# A difference counts where it exceeds two standard errors. With twenty comparisons in a report, expect one that does so
# by chance.
#
# ## The table
#
# Every line is a method with a number of features: means over seeds, with standard errors. Beside `auto` stands the
# method that it took.

# %%
print(result.table())

# %% [markdown]
# ## The kernels
#
# Left-out rows decide, not the evidence, and differences come with standard errors again. Kernels within two of them
# of the first one are as good as that: take the one that you can explain.

# %%
for candidate in result.kernels:
    print(f"{candidate.kernel:14} {candidate.nlpd:7.3f} {candidate.behind:7.3f} ± {candidate.behind_error:.3f}")

# %% [markdown]
# ## A picture
#
# The report has nine of them. This one says most: what do you gain by a Gaussian process, and what do you lose by
# approximating it?

# %%
facts, verdict = result.facts(), result.verdict()
(best,) = (m for m in facts.approximations if (m.name, m.num_features) == (verdict.method, verdict.num_features))
models = {str(best): best, result.exact_name: facts.exact, **facts.baselines}
figure, axes = plt.subplots(1, 2, figsize=(10, 2.8), layout="constrained")
for ax, measure, label in zip(
    axes, ("error", "mnll"), ("test RMSE, points of efficiency", "test MNLL, nats"), strict=True
):
    values = {name: getattr(model, measure) for name, model in models.items()}
    plots.estimates(
        {name: value.mean for name, value in values.items()},
        {name: value.error for name, value in values.items()},
        xlabel=label,
        ax=ax,
    )
figure.savefig("pump.png")

# %% [markdown]
# ## Two studies
#
# What would a rougher kernel have cost? A second study, and a comparison: what is different, whether it counts.

# %%
rough = study.run(
    frame,
    target="efficiency",
    kernel="matern:0.5",
    methods=["landmarks"],
    num_features=(8, 16) if SHORT else (32, 64, 128, 256),
    num_seeds=2 if SHORT else 5,
)
print(study.compare(result, rough, ("auto", "rough")))

# %% [markdown]
# ## When not to believe it
#
# - **The rows are not independent.** Test rows are a random fifth. Of a time series, every test row lies between two
#   training rows, and everything looks easy. Split by time or by group yourself, and pass a
#   `rfgp.study.datasets.Dataset` with the parts that you want.
# - **The future is different.** Coverage holds for rows like those of the table, and a pump at 5,000
#   revolutions is not one.
# - **The exact model is small.** Where the table has more rows than `exact_limit`, divergences are those of fits to a
#   part of the rows. With all rows posteriors are narrower, and the same features are further from exact: the coverage
#   of test targets, which is of the full fits, is the number to look at.
# - **Few test rows.** With 30 of them a coverage of 90 % and one of 99 % are the same. The standard errors say so:
#   look at them before you look at the numbers.
# - **Many tries.** Who runs twenty studies and reports the best has fitted the test rows. Keep some rows for the end.
