# %% [markdown]
# # Honest error bars
#
# A model of 442 patients predicts that one patient's disease will have progressed by 150 a year from now, give or
# take 90, with a probability of nine in ten. **Is that interval correct?** It is if the kernel is right and the noise
# is normal, with the same variance for all patients. None of this is guaranteed, but the table itself can answer the
# question: leave rows out, predict them from the others, and count.
#
# With random features or landmarks this needs no refitting. A fit stores sums over the rows, and the prediction of a
# row by a fit to all other rows follows from these sums and the row itself.

# %%
import math
import os

import gpytorch
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_diabetes

import rfgp
from rfgp.diagnostics.conformal import jackknife_plus, split_conformal
from rfgp.study import plots

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
torch.set_default_dtype(torch.float64)
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})

# %% [markdown]
# ## The patients, and a model of them
#
# The inputs are ten measurements of each patient (age, sex, body mass, blood pressure and six of the serum); the
# target is the progression of the disease a year later, from 25 to 346. The data come with scikit-learn, in random
# order. A third of the patients is held out for testing. Inputs and targets are scaled to unit variance; results are
# reported in the units of the score.

# %%
table = load_diabetes()
inputs, score = torch.tensor(table.data), torch.tensor(table.target)
order = torch.randperm(len(score), generator=torch.Generator().manual_seed(0))
own, aside = order[:300], order[300:]
center, unit = score[own].mean(), score[own].std()
scale = inputs[own].std(0)
x, y = inputs[own] / scale, (score[own] - center) / unit
new_x, new_score = inputs[aside] / scale, score[aside]

exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
kernel = rfgp.approximate(exact, 64, method="landmarks", train_inputs=x, seed=0)
model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
print(rfgp.fit(model, x, y, max_evaluations=5 if SHORT else 60, progress=False))

# %% [markdown]
# ## Every patient predicted by the others
#
# `leave_one_out` computes for each row the mean and the variance that a fit to the other 299 rows would have
# predicted, with the same parameters. A 90 % interval is then 1.64 standard deviations to each side. How many
# patients does it cover?

# %%
LEVEL = 0.9
found = model.leave_one_out(x, y)
half = math.sqrt(2.0) * float(torch.erfinv(torch.tensor(LEVEL))) * found.variance.sqrt()
mean, half = center + unit * found.mean, unit * half
inside = ((score[own] - mean).abs() <= half).double().mean()
print(f"left out: RMSE {(score[own] - mean).square().mean().sqrt():.1f}, {inside:.1%} inside of {LEVEL:.0%} intervals")

figure, ax = plt.subplots(figsize=(5.6, 4.2), layout="constrained")
plots.predictions(score[own], mean, mean - half, mean + half, name="progression", unit="score", ax=ax)
ax.set_title("each patient, predicted by the others")
plt.show()

# %% [markdown]
# The scatter is wide: ten measurements determine only part of the progression. The intervals show this. High scores
# are predicted too low and low ones too high, as expected if the inputs carry little information.
#
# ## Folds in place of rows
#
# Leaving out single rows may be too easy, because similar patients remain. We therefore also leave out tenths of the
# rows together. The joint density of a fold also checks whether errors are correlated, again without refitting. If
# rows come from clinics, pass the number of the clinic of each row in place of a number of folds.

# %%
folds = model.leave_group_out(x, y, 10, seed=0)
print(f"mean log density: alone {found.log_prob.mean():.3f}, in folds {folds.log_prob.mean():.3f}")
print(
    f"joint log density of a fold: {folds.group_log_prob.mean():.1f}, with rows alone {folds.log_prob.sum() / 10:.1f}"
)

# %% [markdown]
# ## A model that is wrong, and knows nothing of it
#
# Suppose the noise variance is set by hand, ten times too small. The means hardly get worse. The error bars do, and
# the model does not show it: its intervals cover less than half of the new patients instead of nine tenths.
#
# **Conformal** intervals use the means of the model, and set their width by errors at rows that the model has not
# seen. *Jackknife+* uses the leave-one-out errors of the training rows: it combines 300 predictions of a new patient,
# each without one row, plus or minus the error at that row. *Split* conformal holds out some rows for calibration.
# Both assume that new rows are exchangeable with the old ones; neither assumes that the model is right.

# %%
wrong = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood())
wrong.likelihood.noise = 0.1 * float(model.likelihood.noise.detach())
fitted, calibration = slice(0, 200), slice(200, None)
levels = [0.5, 0.9] if SHORT else [0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
shares: dict[str, list[float]] = {"the wrong model": [], "jackknife+": [], "split conformal": []}
widths: dict[str, float] = {}
for level in levels:
    with torch.no_grad():
        observed = wrong.condition(x, y).likelihood(wrong(new_x))
        reach = math.sqrt(2.0) * float(torch.erfinv(torch.tensor(level))) * observed.stddev
        intervals = {
            "the wrong model": (observed.mean - reach, observed.mean + reach),
            "jackknife+": jackknife_plus(wrong, x, y, new_x, level),
        }
        wrong.condition(x[fitted], y[fitted])
        calibrated = split_conformal(wrong, x[calibration], y[calibration], level)
        intervals["split conformal"] = calibrated.interval(new_x)
    for name, (lower, upper) in intervals.items():
        is_in = (center + unit * lower <= new_score) & (new_score <= center + unit * upper)
        shares[name].append(float(is_in.double().mean()))
        widths[name] = float(unit * (upper - lower).mean())
for name, values in shares.items():
    print(f"{name:16s} {values[-1]:.1%} inside at {levels[-1]:.0%}, mean width {widths[name]:.0f}")

errors = {name: [math.sqrt(s * (1 - s) / len(aside)) for s in values] for name, values in shares.items()}
figure, ax = plt.subplots(figsize=(5.6, 4.2), layout="constrained")
plots.coverage_by_level(levels, shares, errors=errors, ax=ax)
ax.set_title("142 new patients, noise set too small")
plt.show()

# %% [markdown]
# ## What one learns
#
# - One fit gives the predictions of all left-out rows, groups and folds; check them before you rely on an error bar.
# - Error bars of a model are as good as its noise. Conformal intervals cover even if the noise is wrong: they are
#   wider where necessary.
# - 142 new patients determine the coverage to about 3 %; the bars in the figure are one standard error. Smaller
#   differences between the methods are chance.
#
# ## Limits
#
# The coverage is right over all new patients, but not for each group of patients: old and young may be covered
# differently. Parameters and landmarks were learned from the same rows, which makes leave-one-out results slightly
# too good; with hundreds of rows and a dozen parameters the effect is small. Patients of another hospital are not
# exchangeable with these: no method knows their errors without data from there.
