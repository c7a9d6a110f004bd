# %% [markdown]
# # A table in, predictions out
#
# You have a table: its rows are measured items, its columns are what you know about each item, and one column is to
# be predicted for new items. **Can you get predictions with calibrated error bars, without knowing what a kernel
# is?**
#
# Yes. `rfgp.sklearn` has Gaussian processes with the interface of scikit-learn estimators. This tutorial uses them on
# a pandas table, in a pipeline, in a grid search, and for classification.

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
# Friedman's function (1991) is a standard test of regression: a product inside a sine, a parabola, two linear terms,
# and five columns without any effect. We turn it into a table with names and units, some of them awkward: the
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
# You do not need to scale anything: inputs and targets are standardized internally. You do not need to choose
# anything either: up to 1,500 rows, the default averages over the parameters of the kernel, and over scales of the
# inputs and the target.

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
# The noise alone has an RMSE of 1: no model can do better on new measurements.
#
# ## What the error bars say
#
# `std` is the standard deviation of a *new measurement*, including its noise, so `mean - 2 * std` to `mean + 2 * std`
# should cover about 95 of 100 measurements. We check this on the test rows. The right panel shows extrapolation: one
# row is kept, but its slope is moved out of the range from 0 to 1 of the training data.

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
# Inside the gray band the interval is little wider than the noise. Outside it widens, because there are no training
# data. A boosted tree would predict a constant there, without any indication of uncertainty.
#
# ## Which columns matter?
#
# Lengthscales do not answer this: a column with a long lengthscale may have a strong linear effect. **Sobol'
# indices** do. The first-order index is the share of the variance of the function that a column explains alone; the
# total index includes all its interactions. Here every column is uniform over the observed range.

# %%
inputs = {name: Uniform(x_train[name].min(), x_train[name].max()) for name in names}
indices = sobol_indices(model, inputs, second_order=False, num_functions=20 if SHORT else 200)
shares = {"first": indices.first.value, "total": indices.total.value, "deviation": indices.total.std}
print(pd.DataFrame({name: part.numpy() for name, part in shares.items()}, index=names).round(3).to_string())
print(f"log marginal likelihood {model.log_marginal_likelihood_value_:.1f}")

# %% [markdown]
# The last five columns have no effect, and the model has learned this from the data. `slope` and `angle` matter most.
# If the total index is larger than the first-order index, the column interacts with others.
#
# ## A pipeline, and a grid
#
# The estimators work in any pipeline. This pipeline first takes logarithms of two columns (a bad idea, used as an
# example), and the grid search compares it with the untransformed columns, for several kernels, in two processes.


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
# The kernel matters most; smooth kernels can represent what a logarithm would straighten. Parameters *of* a kernel
# need no grid: they are learned. You can pass a GPyTorch kernel in place of a name; it is copied, never changed.
#
# A fitted model can be saved to a file:

# %%
joblib.dump(search.best_estimator_, "model.joblib")
assert np.array_equal(joblib.load("model.joblib").predict(x_test), search.predict(x_test))

# %% [markdown]
# ## More rows, later
#
# Suppose that new rows arrive every week. `partial_fit` adds them to the model, with the scales and parameters
# learned at first; it takes a fraction of a second, and does not read the old rows again.

# %%
half = len(x_train) // 2
stream = RandomFeatureGPRegressor(num_features=64 if SHORT else 200, block_size=None, **effort)
for start in (0, half):
    stream.partial_fit(x_train[start : start + half], y_train[start : start + half])
    print(f"{start + half} rows: R2 {stream.score(x_test, y_test):.3f}")

# %% [markdown]
# ## Several targets, some of them missing
#
# Two laboratories measure the same samples. The second one uses a different scale, and measures only every third
# sample. One model of both learns how they are correlated. A missing target is NaN.

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
# The classifier has the same parameters. Labels can be strings, and `predict_proba` returns class probabilities. The
# data are thirteen chemical measurements of 178 wines from three growers; a third of them are held out for testing.

# %%
wine = load_wine(as_frame=True)
growers = pd.Series(np.array(["Barolo", "Grignolino", "Barbera"])[wine.target], name="wine")
w_train, w_test, g_train, g_test = train_test_split(wine.data, growers, test_size=1 / 3, random_state=0)
classifier = RandomFeatureGPClassifier(**effort).fit(w_train, g_train)
probabilities = pd.DataFrame(classifier.predict_proba(w_test), columns=classifier.classes_, index=w_test.index)
print(f"accuracy {classifier.score(w_test, g_test):.3f}")
print(probabilities.loc[probabilities.max(axis=1).sort_values().index[:3]].assign(truth=g_test).round(2))

# %% [markdown]
# These are the three wines with the most uncertain predictions, and their true classes.
#
# ## Features for another model
#
# The features are also available as a transformer. A linear model on these features is a kernel machine.

# %%
ridge = make_pipeline(RandomFeatures("rbf", num_features=64 if SHORT else 512, random_state=0), LinearRegression())
print(ridge.fit(x_train, y_train)[:-1].transform(x_test).shape)

# %% [markdown]
# Things to know:
#
# - **Many rows.** Up to 1,000 rows, one set of parameters has the exact Gaussian process. Above, the model has
#   landmarks for long-range structure, blocks of near rows for short-range structure, and predicts from the nearest
#   rows. The time of `fit` is linear in the number of rows, not cubic.
# - **Limited time.** `time_limit=20` chooses the sizes so that `fit` takes about 20 seconds on *this* machine. More
#   time gives a better model.
# - **Error bars are those of measurements.** For the function without noise, use `model_.function(...)` of an average,
#   or `model_.posterior(...)` of one set of parameters: distributions of standardized targets.
# - **Extrapolation.** Far from all rows the prediction returns to the mean of the targets, with their variance. This
#   is a property of the model, not of the data.
