# %% [markdown]
# # Two hundred rows, thirty inputs
#
# Perch were caught in two hundred lakes, and their mercury was measured. For each lake thirty other quantities are
# known: its acidity, depth, sediment and so on. A measurement takes a day in a boat, so there will be no more of
# them. **How much mercury is in the perch of the next lake, and how uncertain is the prediction?**
#
# Two hundred rows are few for thirty inputs. They do not determine which inputs matter, or how quickly the mercury
# changes with each of them. Many kernels fit the rows, and a model that treats one of them as the truth is
# overconfident. This tutorial measures by how much, and shows what to do: average over everything that the rows do
# not determine.

# %%
import os
import warnings

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.inspection import permutation_importance
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rfgp.diagnostics import coverage, interval_score
from rfgp.sklearn import RandomFeatureGPRegressor
from rfgp.study import plots

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
warnings.filterwarnings("ignore", message=".*constant or a linear model.*")  # of one set of parameters
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})
INK, BLUE, ORANGE = "#222222", "#0072B2", "#D55E00"
ONE, MANY = "one set of parameters", "average"

# %% [markdown]
# ## The lakes
#
# The data are simulated, so the truth is known. All inputs are positive and skewed: most lakes are small, and a few
# are very large. Three of the thirty inputs matter for perch. Mercury increases with acidity, up to a point, and with
# carbon (brown water), and is highest at medium depth. The twenty-four elements in the sediment have no effect. The
# model does not know this.
#
# All fish of a lake share unmeasured influences, such as their age, and some lakes are outliers: the noise has heavy
# tails. We first use only the perch.

# %%
ELEMENTS = ["Cr", "Al", "As", "Ba", "Ca", "Cd", "Co", "Cu", "Fe", "K", "Li", "Mg"]
ELEMENTS += ["Mn", "Mo", "Na", "Ni", "P", "Pb", "S", "Sb", "Si", "Sr", "V", "Zn"]
ELEMENTS = ELEMENTS[: 2 if SHORT else None]
INPUTS = ["acidity", "carbon", "depth", "area", "basin", "wetland", *ELEMENTS]
FISH = ["perch", "pike", "roach"]


def expected(x):
    """The logarithm of the mercury in the fish of lakes (N, 30), without what was not measured, (N, 3)."""
    acidity, carbon, depth, area = np.log(x.T[:4]) / 0.9
    perch = 0.9 * np.tanh(1.2 * acidity) + 0.5 * carbon + 0.4 * np.cos(1.2 * depth) - 1.2
    pike = perch + 0.2 * carbon - 0.2 * area + 0.5  # which eat perch
    roach = 0.6 * perch + 0.4 * np.tanh(area) - 1.0
    return np.stack([perch, pike, roach], axis=1)


def lakes(count, random):
    """Inputs (N, 30), and mg of mercury in a kg of three kinds of fish, (N, 3)."""
    z = random.normal(size=(count, len(INPUTS)))
    z[:, 2:6] += 0.8 * random.normal(size=(count, 1))  # large lakes are deep,
    z[:, 6:] += 0.8 * random.normal(size=(count, 1))  # and rich sediments are rich in everything
    x = np.exp(0.9 * z)
    noise = 0.2 * random.standard_t(4, size=(count, 1)) + 0.1 * random.normal(size=(count, 3))
    return x, np.exp(expected(x) + noise)


NUM_ROWS, NUM_NEW = (40, 40) if SHORT else (200, 500)
random = np.random.default_rng(0)
x, fish = lakes(NUM_ROWS, random)
new_x, new_fish = lakes(NUM_NEW, random)
y, new_y = fish[:, 0], new_fish[:, 0]

figure, axes = plt.subplots(1, 3, figsize=(9.0, 2.7), layout="constrained")
axes[0].hist(y, bins=30, color=BLUE)
axes[0].set(xlabel="mercury in perch, mg/kg", ylabel="lakes", title="the target")
for ax, name, title in ((axes[1], "acidity", "an input that matters"), (axes[2], "Cr", "one that does not")):
    ax.plot(x[:, INPUTS.index(name)], y, ".", color=INK, markersize=4, alpha=0.6)
    ax.set(xlabel=name, ylabel="mercury in perch, mg/kg", title=title)
figure.savefig("lakes.png")

# %% [markdown]
# ## One set of parameters
#
# A standard Gaussian process uses the parameters that maximize the evidence: thirty lengthscales, a scale and a noise
# variance. `average=False` does that. How many of 500 new lakes are in their 95 % interval?
#
# Coverage alone is not enough: very wide intervals also cover. The *interval score* is the width, plus forty times
# the distance of a target that is outside; lower is better. Lakes with much mercury matter most, so the coverage of
# the quarter with the highest predictions is also reported.


# %%
def report(name, interval, mean):
    """The shares of all new lakes and of those of high predictions that are covered, the score, and the error."""
    low, high, truth = (torch.as_tensor(part) for part in (*interval.T, new_y))
    is_high = mean > np.quantile(mean, 0.75)
    share, share_high = coverage(low, high, truth), coverage(low[is_high], high[is_high], truth[is_high])
    score, rmse = interval_score(low, high, truth).mean(), np.sqrt(np.mean((mean - new_y) ** 2))
    words = f"covers {100 * share:.1f} %, of the high quarter {100 * share_high:.1f} %"
    print(f"{name:22s} {words}; width {(high - low).mean():.2f}, interval score {score:.2f}, RMSE {rmse:.2f}")


single = RandomFeatureGPRegressor(average=False, random_state=0).fit(x, y)
single_mean, single_interval = single.predict(new_x), single.predict_interval(new_x)
report(ONE, single_interval, single_mean)

# %% [markdown]
# The intervals cover 83 % of the lakes instead of 95 %, and 56 % of those with the highest predictions. The rows were
# used twice: they determined the parameters, and the model then treated these as known. It also assumed normal noise
# with the same variance in all lakes.
#
# ## All that the rows leave open
#
# Now omit `average`. Up to 1,500 rows the default is an average, `rfgp.averaging.AveragedGP`:

# %%
model = RandomFeatureGPRegressor(random_state=0).fit(x, y)
mean, interval = model.predict(new_x), model.predict_interval(new_x)
report(MANY, interval, mean)

# %% [markdown]
# The intervals cover 95 %, and their mean width is .74 instead of .66: they are wide for other lakes. The interval
# score falls from 2.40 to .91. Of the lakes with the highest predictions 89 % are covered, which is better but still
# too few. The average consists of:
#
# - **Parameters** are drawn from their posterior. Each draw makes a prediction, and the predictions are mixed: the
#   mixture is wide where they differ.
# - **Scales**: four members of the average combine two scales of the inputs (untransformed, or *half ranks*, halfway
#   to their normal scores, which reduce the distance of very large lakes) with two scales of the target
#   (untransformed, or with the Yeo-Johnson transform, which turns multiplicative noise into additive noise).
# - **A forest** is in the fifth member: some tables have thresholds and rules, which Gaussian processes do not
#   represent well. Gaussian processes model its residuals, computed from the out-of-bag predictions of its trees.
# - **Tails**: every member has Student's t or normal tails.
# - **Stacking**: the weight and the tails of each member are chosen by the data. Each lake is left out, which has a
#   closed form and needs no refitting, and the mixture with the highest density of the left-out lakes is used.

# %%
averaged = model.model_


def name_of(member):
    if hasattr(member, "baseline"):
        return "what a forest leaves over"
    target = "as it is" if member.target.is_linear else "transformed"
    return f"{member.rows.scale.kind}, target {target}\n{member.num_draws} draws"


names = [name_of(member) for member in averaged.members]
weights = averaged.weights[:, 0]
figure, ax = plt.subplots(figsize=(8.0, 3.2), layout="constrained")
bars = ax.barh(names[::-1], weights.flip(0), color=BLUE)
tails = [f"{tail.degrees.item():g} degrees of freedom" for tail in averaged.tails]
ax.bar_label(bars, [f"{w:.2f}, {tail}" for w, tail in zip(weights, tails, strict=True)][::-1], padding=4)
ax.set(xlabel="weight", xlim=(0.0, 1.4), xticks=[0.0, 0.25, 0.5, 0.75, 1.0])
ax.spines["bottom"].set_bounds(0.0, 1.0)
figure.savefig("lakes_weights.png")

# %% [markdown]
# The data prefer a transformed target, with tails heavier than normal, so nobody had to look at a histogram. Members
# with the target as it is have no weight. Two hundred rows do not tell whether the inputs should be ranks, so both
# scales are kept. The forest has little weight, because mercury has no thresholds.
#
# ## Before and after
#
# The figure shows every tenth of the new lakes, ordered by the median that the average predicts. The axis is linear
# around zero, and logarithmic far from it.

# %%
order = np.argsort(model.predict_quantiles(new_x, [0.5])[:, 0])[:: 2 if SHORT else 10]
figure, axes = plt.subplots(2, 1, figsize=(9.0, 6.0), sharex=True, sharey=True, layout="constrained")
for ax, ends, title in zip(axes, (single_interval, interval), (ONE, MANY), strict=True):
    low, high = ends[order].T
    is_in = (low <= new_y[order]) & (new_y[order] <= high)
    places = np.arange(len(order))
    ax.vlines(places, low, high, color=BLUE, alpha=0.35, linewidth=5)
    ax.plot(places[is_in], new_y[order][is_in], "o", color=INK, markersize=4, label="measured, inside")
    ax.plot(places[~is_in], new_y[order][~is_in], "s", color=ORANGE, markersize=5.5, label="outside")
    ax.axhline(0.0, color=INK, linewidth=0.6)
    ax.set_yscale("asinh", linear_width=0.1)
    ax.set_yticks([-1.0, -0.1, 0.0, 0.1, 1.0, 10.0], ["-1", "-.1", "0", ".1", "1", "10"])
    ax.minorticks_off()
    ax.set(title=f"{title}: {np.sum(is_in)} of {len(order)} inside", ylabel="mercury, mg/kg")
axes[0].legend(frameon=False, loc="upper left", ncols=2)
axes[1].set_xlabel("new lakes, by the median that the average predicts")
figure.savefig("lakes_intervals.png")

# %% [markdown]
# With one set of parameters, an interval is wide if the lake is unlike the others, whatever its prediction: some
# clean lakes have intervals that begin far below zero, and some dirty ones have short intervals. Those of the average
# grow with the prediction. They also begin below zero for the cleanest lakes: for a positive target you can cut the
# lower end at zero.
#
# ## The same lake by other parameters
#
# Which input matters most? We permute one input among the new lakes, and measure how much worse the predictions are.

# %%
few = slice(0, 10 if SHORT else 150)
importance = permutation_importance(model, new_x[few], new_y[few], n_repeats=1, random_state=0).importances_mean
ranks = np.argsort(-importance)
print("most important:", ", ".join(f"{INPUTS[k]} {importance[k]:.2f}" for k in ranks[:5]))

# %% [markdown]
# We plot the functions without noise along this input, for a lake at the median of all other inputs. `draw_functions`
# draws from the posterior in eight groups, each with its own parameters. A thick line is the most probable function
# of one draw of parameters; the thin line of the same color is a function drawn given these parameters.

# %%
column = ranks[0]
steps = np.linspace(*np.quantile(x[:, column], [0.02, 0.98]), 80)
path = np.tile(np.median(x, axis=0), (len(steps), 1))
path[:, column] = steps
scaled = torch.from_numpy(model.x_scaler_.transform(path))
unit, center = model.y_scaler_.scale_[0], model.y_scaler_.mean_[0]

figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.8), sharey=True, layout="constrained")
with torch.no_grad():
    latent = single.model_.posterior(torch.from_numpy(single.x_scaler_.transform(path)))
    line, reach = center + unit * latent.mean, 1.96 * unit * latent.stddev
left.fill_between(steps, line - reach, line + reach, color=BLUE, alpha=0.2, linewidth=0, label="95 % interval")
left.plot(steps, line, color=BLUE, linewidth=1.8, label="mean")
for functions, color in zip(averaged.draw_functions(8, torch.Generator().manual_seed(0)), plots.COLORS, strict=True):
    values = center + unit * functions(scaled)[..., 0]
    right.plot(steps, values[:, 0], color=color, linewidth=2.0)
    right.plot(steps, values[:, 1], color=color, linewidth=0.9, alpha=0.7)
for ax, title in ((left, ONE), (right, "eight draws of parameters")):
    ax.plot(steps, np.exp(expected(path)[:, 0]), "--", color=INK, linewidth=1.2, label="truth")
    ax.set(xlabel=f"{INPUTS[column]}, all else at its median", title=title)
left.set_ylabel("mercury without noise, mg/kg")
left.legend(frameon=False, loc="upper left")
figure.savefig("lakes_functions.png")

# %% [markdown]
# On the left, the mean has waves that do not exist, and at the highest of them the truth leaves the band. On the right,
# the thick lines nearly agree along this input, and the thin lines lie around the truth. The mixture is wide where
# the lines differ, which one set of parameters cannot express.
#
# ## A forest and a line beside it
#
# Forests and ridge regression have no intervals by themselves. For a fair comparison, we use the distribution of
# their left-out errors: the prediction, plus the quantiles of the errors at training lakes that were left out.


# %%
def around(predicted, errors):
    return predicted[:, None] + np.quantile(errors, [0.025, 0.975])


forest = RandomForestRegressor(50 if SHORT else 300, max_features=1 / 3, oob_score=True, random_state=0).fit(x, y)
ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 13)))
ridge_errors = y - cross_val_predict(ridge, x, y, cv=10)
others = {
    "forest": (forest.predict(new_x), y - forest.oob_prediction_),
    "ridge": (ridge.fit(x, y).predict(new_x), ridge_errors),
}


for name, (predicted, errors) in others.items():
    report(name, around(predicted, errors), predicted)

# %% [markdown]
# Their intervals cover 95 and 94 % of all lakes, by construction, with the same width for all of them. That is too
# wide for clean lakes and too narrow for dirty ones, so their score is more than twice that of the average.
#
# ## Is it so at every level?
#
# An interval of 50 % should cover half of the lakes. `predict_quantiles` accepts any levels, so we compute all of
# them at once.

# %%
levels = np.array([0.5, 0.95]) if SHORT else np.array([0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95])
ends = np.concatenate([0.5 - 0.5 * levels, 0.5 + 0.5 * levels])


def shares(quantiles):
    low, high = np.split(quantiles, 2, axis=1)
    return ((low <= new_y[:, None]) & (new_y[:, None] <= high)).mean(0)


found = {name: shares(fitted.predict_quantiles(new_x, ends)) for name, fitted in ((MANY, model), (ONE, single))}
for name, values in found.items():
    print(f"{name:22s}", "  ".join(f"{level:.0%}: {share:.1%}" for level, share in zip(levels, values, strict=True)))
errors = {name: np.sqrt(values * (1.0 - values) / NUM_NEW) for name, values in found.items()}
figure, ax = plt.subplots(figsize=(4.2, 4.0), layout="constrained")
plots.coverage_by_level(levels, found, errors=errors, ax=ax)
ax.set(xlabel="level asked for", ylabel="share of new lakes covered")
figure.savefig("lakes_levels.png")

# %% [markdown]
# The average is within two standard errors of the nominal coverage at every level; the error bars show one standard
# error.
#
# ## Was that luck?
#
# One table is a single random draw. Here are ten other tables of two hundred lakes, with 250 new lakes each:


# %%
def covered_of(table):
    random = np.random.default_rng(table)
    (x, fish), (new_x, new_fish) = lakes(NUM_ROWS, random), lakes(20 if SHORT else 250, random)
    each = []
    for average in (False, "auto"):
        ends = RandomFeatureGPRegressor(average=average, random_state=0).fit(x, fish[:, 0]).predict_interval(new_x)
        each.append(np.mean((ends[:, 0] <= new_fish[:, 0]) & (new_fish[:, 0] <= ends[:, 1])))
    return each


tables = np.arange(1, 2 if SHORT else 11)
by_table = np.array([covered_of(table) for table in tables])
for name, values in zip((ONE, MANY), by_table.T, strict=True):
    print(f"{name:22s} covers {values.mean():.1%} on average, {values.min():.1%} to {values.max():.1%}")

figure, ax = plt.subplots(figsize=(6.5, 3.0), layout="constrained")
ax.axhline(0.95, color=INK, linestyle="--", linewidth=1.0)
ax.vlines(tables, *by_table.T, color="#BBBBBB", linewidth=1.5)
for name, values, color, marker in zip((ONE, MANY), by_table.T, (ORANGE, BLUE), "so", strict=True):
    ax.plot(tables, values, marker, color=color, label=name, markersize=6)
ax.set(xlabel="table", ylabel="share of new lakes covered", xticks=tables, ylim=(0.6, 1.01))
ax.legend(frameon=False, ncols=2, loc="lower right")
figure.savefig("lakes_tables.png")

# %% [markdown]
# Our table was hard for one set of parameters: in the ten others its intervals cover 85 % on average. Those of the
# average cover 95 %, and 90 to 99 % in single tables. Two hundred rows do not determine the noise exactly, so in one
# table the coverage may be off by a few percent.
#
# ## A whole distribution
#
# `predict_quantiles` and `sample_y` describe the whole distribution. The figure shows three new lakes, clean, typical
# and dirty, with 4,000 draws of a new measurement in each. The limit for sale is .5 mg/kg: the share of draws above
# it is the probability of exceeding it.

# %%
three = order[[len(order) // 10, len(order) // 2, -len(order) // 10]]
draws = model.sample_y(new_x[three], 4000, random_state=0)
quantiles = model.predict_quantiles(new_x[three], [0.025, 0.5, 0.975])
figure, axes = plt.subplots(1, 3, figsize=(9.0, 2.7), layout="constrained")
for ax, lake, values, marks in zip(axes, three, draws, quantiles, strict=True):
    ax.hist(values, bins=60, range=tuple(np.quantile(values, [0.002, 0.995])), color=BLUE, alpha=0.5)
    for mark, style in zip(marks, (":", "-", ":"), strict=True):
        ax.axvline(mark, color=BLUE, linestyle=style, linewidth=1.4)
    ax.axvline(new_y[lake], color=ORANGE, linewidth=2.0)
    ax.set(xlabel="mercury in perch, mg/kg", yticks=[], title=f"above .5 mg/kg: {np.mean(values > 0.5):.0%}")
figure.savefig("lakes_draws.png")

# %% [markdown]
# Blue lines are the quantiles (outer ones dotted), and the orange line is the measured value.
#
# ## Three fish at once
#
# Pike and roach were caught too. Pass all three columns to `fit`: nothing else changes. Several targets share a bank
# of kernels that is decomposed once, and a forest that learns all of them; see `docs/several_outputs_few_rows.rst`.
# Each target has its own interval. If a fish was not caught, its value is NaN.

# %%
single_of_all = RandomFeatureGPRegressor(average=False, random_state=0).fit(x, fish)
together = RandomFeatureGPRegressor(random_state=0).fit(x, fish)
for title, fitted in ((ONE, single_of_all), (MANY, together)):
    ends = fitted.predict_interval(new_x)
    for k, name in enumerate(FISH):
        low, high, truth = (torch.as_tensor(part) for part in (ends[:, 0, k], ends[:, 1, k], new_fish[:, k]))
        share, width = 100 * coverage(low, high, truth), (high - low).mean()
        score = interval_score(low, high, truth).mean()
        print(f"{title:22s} {name:6s} covers {share:.1f} %; width {width:.2f}, interval score {score:.2f}")
shares_of_members = together.model_.weights.mean(1)
print(f"{len(shares_of_members)} members have weight, and the largest has {shares_of_members.max():.2f}")

# %% [markdown]
# One set of parameters for all fish is not overconfident, but its intervals are 1.2 to 1.7 times as wide as those of
# the average, and its score is 1.7 to 2.6 times as large. The average is as good for perch as it was for perch alone,
# and no better: if all fish are measured in all lakes, the other fish add little information. Joint predictions matter
# for the next question.
#
# Unmeasured influences of a lake affect all of its fish. `sample_y` draws the three together, so it can answer any
# question about several of them. How many times as much mercury has the pike as the perch? We compute 80 % intervals
# of the ratio: from the joint draws, and from the same draws after shuffling those of each fish, as if there were
# three separate models.

# %%
count, num_draws = (5, 100) if SHORT else (100, 1000)
draws = together.sample_y(new_x[:count], num_draws, random_state=0)
apart = np.random.default_rng(0).permuted(draws, axis=-1)
ratio = new_fish[:count, 1] / new_fish[:count, 0]
for name, values in (("together", draws), ("apart", apart)):
    low, high = np.quantile(values[:, 1] / values[:, 0], [0.1, 0.9], axis=-1)
    inside = np.mean((low <= ratio) & (ratio <= high))
    print(f"pike over perch, {name:8s}: 80 % intervals cover {inside:.0%}, median width {np.median(high - low):.2f}")

lake = int(np.argsort(new_y[:count])[count // 2])
figure, axes = plt.subplots(1, 2, figsize=(8.0, 3.6), sharex=True, sharey=True, layout="constrained")
for ax, values, title in zip(axes, (draws, apart), ("drawn together", "drawn apart"), strict=True):
    ax.plot(values[lake, 0], values[lake, 1], ".", color=BLUE, markersize=3, alpha=0.4)
    ax.plot(*new_fish[lake, :2], "s", color=ORANGE, markersize=7, label="measured")
    ax.set(xlabel="mercury in perch, mg/kg", title=title)
ax.set(xlim=np.quantile(draws[lake, 0], [0.002, 0.998]), ylim=np.quantile(draws[lake, 1], [0.002, 0.998]))
axes[0].set_ylabel("mercury in pike, mg/kg")
axes[0].legend(frameon=False, loc="upper left")
figure.savefig("lakes_together.png")

# %% [markdown]
# Intervals of the ratio from joint draws cover 86 of 100 ratios, where 80 are expected, with a standard error of 4.
# With separate draws, a lake may have the cleanest perch and the dirtiest pike at once: the intervals are twice as
# wide, and cover all 100.
#
# ## What one learns
#
# - With few rows, check the coverage of a model *before* you use its intervals. One set of parameters covered 74 to
#   95 % of new lakes in eleven tables.
# - Averaging over parameters, scales and tails covers 90 to 99 %, at the same mean width here, in about a second and
#   a half on one core.
# - Draw several targets jointly.
#
# ## Limits
#
# - Of the lakes with the highest predictions, 89 % were covered instead of 95: intervals that are right over all
#   lakes need not be right in each part.
# - With more than 1,500 rows, weights, or a given kernel, there is one set of parameters. To average over those of
#   your own kernel, use `rfgp.fit(model, strategy="average")`.
# - Predictions cost more, because each draw of each member makes one: intervals of 500 lakes take half a second.
# - New lakes must be like the old ones. A lake in another country is not.
