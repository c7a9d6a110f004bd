# %% [markdown]
# # A table in, predictions out
#
# You have a table: rows are things you have measured, columns are what you know of them, and one column is what you
# would like to know of the next thing. **Can you get predictions with honest error bars from it, without knowing what a
# kernel is?**
#
# Yes. `rfgp.sklearn` has Gaussian processes that look like any other estimator of scikit-learn. This page uses them the
# way you would on a Tuesday afternoon: on a pandas table, in a pipeline, with a grid search, and for classes too.

# %%
import os

import joblib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_wine, make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from rfgp.diagnostics.sensitivity import Uniform, sobol_indices
from rfgp.sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor, RandomFeatures

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})
INK, BLUE, ORANGE = "#222222", "#0072B2", "#D55E00"

# %% [markdown]
# ## The table
#
# Friedman's function (1991) is an old test of regression: a product inside a sine, a parabola, two straight lines, and
# five columns that do nothing at all. We dress it up as a table with names and with units, some of them awkward: the
# altitude is in millimeters, and the target has a large offset. The noise has a standard deviation of 1.

# %%
names = ["angle", "radius", "altitude", "slope", "drift", "shift", "phase", "batch", "weekday", "operator"]
values, target = make_friedman1(n_samples=200 if SHORT else 900, noise=1.0, random_state=0)
table = pd.DataFrame(values, columns=names).assign(altitude=lambda t: 1e6 * t.altitude)
yields = pd.Series(1000.0 + target, name="yield")
x_train, x_test, y_train, y_test = train_test_split(table, yields, test_size=1 / 3, random_state=0)
print(x_train.head(3).round(2))

# %% [markdown]
# ## Two lines
#
# Nothing has to be scaled: inputs and targets are standardized inside. Nothing has to be chosen: up to 1,500 rows the
# defaults average over all numbers of a kernel that the rows leave open, and over scales of inputs and target.

# %%
effort = {"random_state": 0} | ({"max_evaluations": 5} if SHORT else {})
model = RandomFeatureGPRegressor(**effort).fit(x_train, y_train)
mean, std = model.predict(x_test, return_std=True)

for name, other in (("linear", LinearRegression()), ("boosting", HistGradientBoostingRegressor(random_state=0))):
    error = y_test - other.fit(x_train, y_train).predict(x_test)
    print(f"{name:>16}: RMSE {np.sqrt(np.mean(error**2)):.2f}")
error = y_test - mean
print(f"Gaussian process: RMSE {np.sqrt(np.mean(error**2)):.2f}")

# %% [markdown]
# Remember that the noise alone has an RMSE of 1: no model can do better than that on new measurements.
#
# ## What the error bars say
#
# `std` is the standard deviation of a *new measurement*, its noise included, so that `mean - 2 * std` to
# `mean + 2 * std` should cover about 95 of 100 measurements. We count. On the right we take away what the model leans
# on: one row stays as it is, but its slope moves out of the range from 0 to 1 in which it was seen in training.

# %%
inside = np.mean(np.abs(error) < 1.96 * std)
print(f"{100 * inside:.0f} % of the test rows lie in their 95 % interval")

figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained")
order = np.argsort(mean)
left.fill_between(mean[order], -1.96 * std[order], 1.96 * std[order], color=BLUE, alpha=0.2, linewidth=0)
is_out = np.abs(error) > 1.96 * std
left.plot(mean[~is_out], error[~is_out], ".", color=BLUE, markersize=4)
left.plot(mean[is_out], error[is_out], ".", color=ORANGE, markersize=6)
left.set(xlabel="prediction", ylabel="measured - predicted", title="test rows, and their 95 % intervals")
slopes = np.linspace(-1.0, 2.0, 121)
ways = pd.concat([x_test.iloc[[0]].assign(slope=slope) for slope in slopes])
way_mean, way_std = model.predict(ways, return_std=True)
right.axvspan(0.0, 1.0, color="#EEEEEE")
right.fill_between(slopes, way_mean - 1.96 * way_std, way_mean + 1.96 * way_std, color=BLUE, alpha=0.2, linewidth=0)
right.plot(slopes, way_mean, color=BLUE, linewidth=2)
right.set(xlabel="slope (seen in training: gray)", ylabel="yield", title="one row, with another slope")
figure.savefig("table_error_bars.png")

# %% [markdown]
# Inside the gray band the interval is little wider than the noise. Outside it opens: the model has not been there, and
# says so. A boosted tree would draw a flat line there, without a word.
#
# ## Which columns matter?
#
# Lengthscales do not tell: a long one may belong to a column with a strong linear effect. **Sobol' indices** do. The
# first is the share of the variance of the function that a column explains alone, the total one that with all its
# interactions. Here every column is uniform over the range that was seen.

# %%
inputs = {name: Uniform(x_train[name].min(), x_train[name].max()) for name in names}
indices = sobol_indices(model, inputs, second_order=False, num_functions=20 if SHORT else 200)
shares = {"first": indices.first.value, "total": indices.total.value, "deviation": indices.total.std}
print(pd.DataFrame({name: part.numpy() for name, part in shares.items()}, index=names).round(3).to_string())
print(f"log marginal likelihood {model.log_marginal_likelihood_value_:.1f}")

# %% [markdown]
# The last five do nothing, as promised, and the model has found that out without being told. `slope` and `angle`
# matter most, and the other columns less; where the total index is larger than the first, columns act together.
#
# ## A pipeline, and a grid
#
# An estimator is a step like any other. Here is a pipeline that takes logarithms of two columns first (a bad idea, for
# the sake of the example), and a grid search over that idea and over kernels, in two processes.


# %%
def with_logarithms(rows):
    return rows.assign(angle=np.log1p(rows.angle), radius=np.log1p(rows.radius))


pipeline = make_pipeline(FunctionTransformer(with_logarithms), RandomFeatureGPRegressor(**effort))
grid = {
    "functiontransformer": [FunctionTransformer(with_logarithms), "passthrough"],
    "randomfeaturegpregressor__kernel": ["linear", "rbf"] if SHORT else ["linear", "rbf", "matern32"],
}
search = GridSearchCV(pipeline, grid, cv=2 if SHORT else 3, n_jobs=1 if SHORT else 2).fit(x_train, y_train)
results = pd.DataFrame(search.cv_results_)
results["step"] = ["none" if step == "passthrough" else "logarithms" for step in results.param_functiontransformer]
print(results.pivot(index="param_randomfeaturegpregressor__kernel", columns="step", values="mean_test_score").round(3))

# %% [markdown]
# The kernel is the choice that matters; smooth kernels bend whatever a logarithm would have straightened. Parameters
# *inside* a kernel need no grid: they are learnt. A GPyTorch kernel of your own goes in the same place as a name, and
# it is copied, never changed.
#
# A fitted model is a file:

# %%
joblib.dump(search.best_estimator_, "model.joblib")
assert np.array_equal(joblib.load("model.joblib").predict(x_test), search.predict(x_test))

# %% [markdown]
# ## More rows, later
#
# New rows arrive every week. `partial_fit` adds them to what is known, with the scales and the parameters that were
# learnt at first; it takes a fraction of a second, and the old rows are not looked at again.

# %%
half = len(x_train) // 2
stream = RandomFeatureGPRegressor(num_features=64 if SHORT else 200, block_size=None, **effort)
for start in (0, half):
    stream.partial_fit(x_train[start : start + half], y_train[start : start + half])
    print(f"{start + half} rows: R2 {stream.score(x_test, y_test):.3f}")

# %% [markdown]
# ## Several targets, some of them missing
#
# Two laboratories measure the same samples, the second one with a scale of its own, and only every third sample. One
# model of both knows how they go together. A missing target is a NaN.

# %%
rng = np.random.default_rng(1)
both = pd.DataFrame({"here": y_train, "there": 30.0 - 0.2 * (y_train - 1000.0) + 0.1 * rng.normal(size=len(y_train))})
truth = both.there.copy()
both.loc[both.index[np.arange(len(both)) % 3 > 0], "there"] = np.nan
few = 60 if SHORT else 200
together = RandomFeatureGPRegressor(**effort).fit(x_train[:few], both[:few])
known = both.there[:few].notna().to_numpy()
alone = RandomFeatureGPRegressor(**effort).fit(x_train[:few][known], both.there[:few][known])
for name, predicted in (
    ("both together", together.predict(x_train[:few])[:, 1]),
    ("there alone", alone.predict(x_train[:few])),
):
    print(f"{name:>13}: RMSE of the missing ones {np.sqrt(np.mean((truth[:few] - predicted)[~known] ** 2)):.3f}")

# %% [markdown]
# ## Classes
#
# The classifier has the same parameters. Labels can be strings, and `predict_proba` tells how sure it is. Thirteen
# chemical measurements of 178 wines from three growers; a third of them are kept for testing.

# %%
wine = load_wine(as_frame=True)
growers = pd.Series(np.array(["Barolo", "Grignolino", "Barbera"])[wine.target], name="wine")
w_train, w_test, g_train, g_test = train_test_split(wine.data, growers, test_size=1 / 3, random_state=0)
classifier = RandomFeatureGPClassifier(**effort).fit(w_train, g_train)
probabilities = pd.DataFrame(classifier.predict_proba(w_test), columns=classifier.classes_, index=w_test.index)
print(f"accuracy {classifier.score(w_test, g_test):.3f}")
print(probabilities.loc[probabilities.max(axis=1).sort_values().index[:3]].assign(truth=g_test).round(2))

# %% [markdown]
# These three are the wines of which the model is least sure, with what they are.
#
# ## Features for another model
#
# The features themselves are a transformer, so that a linear model behind them becomes a kernel machine.

# %%
ridge = make_pipeline(RandomFeatures("rbf", num_features=64 if SHORT else 512, random_state=0), LinearRegression())
print(ridge.fit(x_train, y_train)[:-1].transform(x_test).shape)

# %% [markdown]
# Things to know:
#
# - **Many rows.** Up to 1,000 rows the model is the exact Gaussian process. Above, it has landmarks for the long range,
#   blocks of near rows for the short range, and predicts from the nearest rows. The time of `fit` grows with the number
#   of rows, not with its cube.
# - **Little time.** `time_limit=20` chooses the sizes so that `fit` ends after about 20 seconds on *this* machine. More
#   time gives a better model.
# - **Error bars are of measurements.** Where you want those of the function without noise, ask
#   `model_.posterior(...)`, which is a GPyTorch distribution of standardized targets.
# - **Extrapolation.** Far from all rows the prediction returns to the mean of the targets, with the variance that they
#   have. That is a statement about the model, and not about the world.
