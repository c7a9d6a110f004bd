# %% [markdown]
# # Honest error bars
#
# A model of 442 patients says: this one's disease will have progressed by 150 a year from now, give or take 90,
# nine times out of ten. **Is that "give or take" true?** It is if the kernel is right, the noise is normal, and as
# strong for all patients. Nobody has promised any of it. A table holds the answer all the same: leave rows out,
# predict them from the others, and count.
#
# With random features or landmarks that costs no refit. A fit keeps sums over the rows, and what a fit to all
# others would have said of a row follows from these and the row itself.

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
# Ten measurements of each patient (age, sex, body mass, blood pressure and six of the serum), and how far the
# disease had progressed a year later, from 25 to 346. The data come with scikit-learn, in random order. A third of
# the patients is put aside, to see at the end who was right. Inputs have unit variance, and targets too; results
# are told in the units of the score.

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
# `leave_one_out` gives for each row the mean and the variance that a fit to the other 299 would have predicted,
# with the same parameters. An interval of 90 % is then 1.64 standard deviations to each side. How many patients are
# inside?

# %%
LEVEL = 0.9
found = model.leave_one_out(x, y)
half = math.sqrt(2.0) * float(torch.erfinv(torch.tensor(LEVEL))) * found.variance.sqrt()
mean, half = center + unit * found.mean, unit * half
inside = ((score[own] - mean).abs() <= half).double().mean()
print(f"left out: RMSE {(score[own] - mean).square().mean().sqrt():.1f}, {inside:.1%} inside of {LEVEL:.0%} intervals")

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
plots.predictions(score[own], mean, mean - half, mean + half, name="progression", unit="score", ax=left)
left.set_title("each patient, predicted by the others")

# %% [markdown]
# The cloud is wide: ten measurements tell some of the future of a patient, not much. An interval that says so is
# honest. High scores are predicted too low and low ones too high, as they have to be where little is known.
#
# ## Folds in place of rows
#
# Are single rows too easy, since similar patients stay in? Leave tenths of them out together. The joint density of
# a fold also asks whether errors go together, and no refit is made here either. Where rows come from clinics, give
# the number of the clinic of each row in place of a number of folds.

# %%
folds = model.leave_group_out(x, y, 10, seed=0)
print(f"mean log density: alone {found.log_prob.mean():.3f}, in folds {folds.log_prob.mean():.3f}")
print(
    f"joint log density of a fold: {folds.group_log_prob.mean():.1f}, with rows alone {folds.log_prob.sum() / 10:.1f}"
)

# %% [markdown]
# ## A model that is wrong, and knows nothing of it
#
# Let somebody set the noise by hand, and ten times too small. The means hardly get worse. The error bars do, and
# the model does not notice: of new patients, less than half and not nine tenths are inside of its intervals.
#
# **Conformal** intervals take the model's means as they are, and their width from errors at rows that it has not
# seen. *Jackknife+* uses the leave-out errors of the same rows: a new patient goes next to 300 predictions, each
# without one row and give or take the error at that row. *Split* conformal spends some rows for calibration alone.
# What they ask for is that new rows are like the old ones; what they do not ask for is a right model.

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
plots.coverage_by_level(levels, shares, errors=errors, ax=right)
right.set_title("142 new patients, noise set too small")
plt.show()

# %% [markdown]
# ## What one learns
#
# - A fit answers for all rows, groups and folds left out; ask it before you believe an error bar.
# - Error bars of a model are as good as its noise. Conformal intervals cover without: they are wider
#   because they have to be.
# - 142 new patients show a share to about 3 %: a bar of one standard error is drawn. Much finer differences
#   between the methods are luck of the draw.
#
# ## Limits
#
# The share is right over all new patients, and not for each kind of patient: old and young may be covered
# differently. Parameters and landmarks were found with the same rows, which makes what is left out look a little
# too good; with hundreds of rows and a dozen of parameters that is little. And patients of another hospital are not
# exchangeable with these: no method knows their errors before it has seen some.
