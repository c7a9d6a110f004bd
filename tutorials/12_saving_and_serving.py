# %% [markdown]
# # Saving and serving
#
# A model was trained for half a minute, on the machine that has the data. A web page wants its answers within
# milliseconds, on a machine that has neither the data nor the code of the training. **What has to travel, what is in
# it, and how long does an answer take?**
#
# One file travels. This page trains once, looks into the file, puts it behind a small web server of Python's standard
# library, and measures. Nothing has to be compiled or exported for that: the file is loaded where `rfgp` is installed.

# %%
import copy
import http.client
import http.server
import json
import os
import tempfile
import threading
import time
from pathlib import Path

import gpytorch
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

import rfgp
from rfgp.study import plots

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
torch.set_default_dtype(torch.float64)
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})

# %% [markdown]
# ## A solar panel
#
# The power of a panel depends on the irradiance, and on how warm it is: sun and air heat it, wind cools it, and each
# degree costs 0.4 %. The rows are simulated, with a meter whose errors have a standard deviation of 4 W. Irradiance is
# in kW/m², temperature in units of 10 °C, wind in 10 m/s, and power in 100 W: numbers near one need no scaling that
# would have to travel beside the model.

# %%
UNIT = 100.0  # W


def power(x):
    """The power of the panel in units of 100 W."""
    irradiance, air, wind = x.unbind(-1)
    panel = 10.0 * air + 32.0 * irradiance / (1.0 + 2.5 * wind)
    return 4.0 * irradiance * (1.0 + 0.04 * torch.log(irradiance)) * (1.0 - 0.004 * (panel - 25.0))


generator = torch.Generator().manual_seed(0)
low, high = torch.tensor([0.05, -1.0, 0.0]), torch.tensor([1.1, 4.0, 1.2])
x = low + (high - low) * torch.rand(150 if SHORT else 3000, 3, generator=generator)
y = power(x) + 4.0 / UNIT * torch.randn(len(x), generator=generator)

exact = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=3))
kernel = rfgp.approximate(exact, 64 if SHORT else 512, input_dim=3, method="fourier_orthogonal", seed=0)
model = rfgp.WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood(), gpytorch.means.ConstantMean())
print(rfgp.fit(model, x, y, max_evaluations=3 if SHORT else 40, progress=False))

# %% [markdown]
# ## One file
#
# `rfgp.save` writes it, and `rfgp.load` makes the model again. Not a similar one: its predictions have the same bits.

# %%
folder = Path(tempfile.mkdtemp())
rfgp.save(model, folder / "panel.pt")
served = rfgp.load(folder / "panel.pt")
with torch.no_grad():
    assert torch.equal(served.posterior(x[:50]).variance, model.posterior(x[:50]).variance)
print(f"{(folder / 'panel.pt').stat().st_size / 2**20:.2f} MiB, of {len(x)} rows")

# %% [markdown]
# ## What is inside?
#
# `torch.load` opens the file without unpickling anything, so that a file from a stranger can hold wrong numbers, but
# no program. There are tensors with names, a text that says how they make up the model, and a checksum. The text
# knows the versions that wrote it. A file of another major version warns, and one that is damaged raises.

# %%
content = torch.load(folder / "panel.pt", weights_only=True)
header = json.loads(content["header"])
print({key: header[key] for key in ("model", "versions", "rows_seen", "rows_kept", "left_out")})
largest = sorted(content["tensors"].items(), key=lambda item: -item[1].numel())[:3]
for name, values in largest:
    print(f"{tuple(values.shape)!s:>12}  {name}")

damaged = bytearray((folder / "panel.pt").read_bytes())
damaged[len(damaged) // 2] ^= 1  # one bit
(folder / "damaged.pt").write_bytes(damaged)
try:
    rfgp.load(folder / "damaged.pt")
except ValueError as error:
    print(f"refused: {error}")

# %% [markdown]
# The largest tensor is a square matrix of sums over the rows. Its size is that of the features, however many rows
# there were: for this small table the file is larger than the data, for a large one it would be much smaller. Are rows
# of the data in there? We look for them in all tensors with as many columns.
#
# That depends on the features. Random ones know nothing of the data. *Landmarks* are inputs of some rows, without their
# targets, and they are in the file because they are the kernel: a reason to prefer random features where the inputs
# themselves are nobody's business. Models with `block_size` predict from all rows, and saving them warns.


# %%
def rows_inside(path):
    """How many of the training inputs are in a file."""
    tensors = torch.load(path, weights_only=True)["tensors"].values()
    table = torch.cat([values for values in tensors if values.dim() == 2 and values.shape[1] == x.shape[1]])
    return int((table.unsqueeze(1) == x).all(-1).any(0).sum())


landmarks = rfgp.approximate(model.covar_module.exact_kernel, 32, method="landmarks", train_inputs=x, seed=0)
with torch.no_grad():
    other = rfgp.WeightSpaceGP(landmarks, gpytorch.likelihoods.GaussianLikelihood()).condition(x, y)
rfgp.save(other, folder / "landmarks.pt")
for name in ("panel", "landmarks"):
    print(f"{name}.pt: the inputs of {rows_inside(folder / f'{name}.pt')} of {len(x)} training rows")

# %% [markdown]
# ## A server
#
# JSON in, mean and interval out. The server is the smallest that is honest: it answers in watts, with an interval that
# 95 of 100 new *measurements* are in, and it says what is wrong with a request that it cannot answer. Three lines want
# attention. Gradients are switched off in every thread anew. One prediction is made before the first request, since
# the first one factorizes the matrix and the others only use it. And the answer leaves the machine at once
# (`disable_nagle_algorithm`), instead of waiting for more to send.


# %%
def answer(panel, rows):
    """Means and ends of 95 % intervals in watts."""
    points = torch.tensor(rows, dtype=next(panel.parameters()).dtype)
    with torch.no_grad():
        observed = panel.likelihood(panel.posterior(points))
    mean, half = UNIT * observed.mean, UNIT * 1.96 * observed.stddev
    return {"mean": mean.tolist(), "lower": (mean - half).tolist(), "upper": (mean + half).tolist()}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # one connection for many requests
    disable_nagle_algorithm = True

    def do_POST(self):
        try:
            rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["rows"]
            status, found = 200, answer(self.server.models[self.path], rows)
        except (KeyError, TypeError, ValueError) as error:
            status, found = 400, {"error": str(error)}
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Say nothing of each request."""


# %% [markdown]
# float32 halves what features take. It is chosen with the rows: a copy with the same parameters and weights is fitted
# to them in float32, and saved to a file of its own. Sums and factors stay in float64, as everywhere in `rfgp`. The
# price is measured, in watts.

# %%
with torch.no_grad():
    narrow = copy.deepcopy(model).float().condition(x.float(), y.float())
rfgp.save(narrow, folder / "panel32.pt")
narrow = rfgp.load(folder / "panel32.pt")
rows = x[:200].tolist()
answers = [np.array(answer(panel, rows)["mean"]) for panel in (served, narrow)]
print(f"float32 differs by {np.abs(answers[0] - answers[1]).max():.1e} W at most")

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)  # 0: any port that is free
server.daemon_threads = True
server.models = {"/float64": served, "/float32": narrow}
threading.Thread(target=server.serve_forever, daemon=True).start()
connection = http.client.HTTPConnection(*server.server_address)


def ask(rows, path="/float64"):
    """The status and the answer of a request."""
    connection.request("POST", path, json.dumps({"rows": rows}))
    response = connection.getresponse()
    return response.status, json.loads(response.read())


print(ask([[0.8, 2.0, 0.3]]))
print(ask([[0.8, 2.0]]))
print(ask([[0.8, "warm", 0.3]]))

# %% [markdown]
# ## How long does an answer take?
#
# From the client: JSON, the way there, the prediction, and the way back. Requests have one row or many. Medians
# are not enough, since a page waits for the slow ones too: bars go up to what 19 of 20 requests need at most.

# %%
repeats, sizes = (3, (1, 100)) if SHORT else (60, (1, 10, 100, 1000))
fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
for place, path in enumerate(server.models):
    latencies = []
    for size in sizes:
        rows, seconds = x[torch.arange(size) % len(x)].tolist(), []
        started = time.process_time()
        for _ in range(repeats):
            began = time.perf_counter()
            ask(rows, path)
            seconds.append(time.perf_counter() - began)
        median, slow = 1e3 * np.quantile(seconds, [0.5, 0.95])
        latencies.append((median, slow))
        busy = 1e3 * (time.process_time() - started) / repeats  # of client and server
        print(f"{path[1:]}, {size:4d} rows: median {median:.1f} ms, 19 of 20 in {slow:.1f} ms; processor {busy:.1f} ms")
    median, slow = np.array(latencies).T
    style = {"color": plots.COLORS[place], "marker": plots.MARKERS[place], "capsize": 3.0}
    at = np.array(sizes) * (1.0 + 0.12 * place)  # side by side
    left.errorbar(at, median, yerr=[0.0 * median, slow - median], label=path[1:], **style)
left.set(xscale="log", yscale="log", xlabel="rows in a request", ylabel="milliseconds until the answer")
left.set_title("latency: median, and up to the 95th percentile")
left.legend(frameon=False)

sunny = torch.linspace(0.05, 1.5, 60)
points = torch.stack([sunny, torch.full_like(sunny, 2.5), torch.full_like(sunny, 0.2)], -1)
status, found = ask(points.tolist())
right.axvspan(0.05, 1.1, color="#EEEEEE", label="irradiance of the training rows")
right.fill_between(
    sunny, found["lower"], found["upper"], color=plots.COLORS[0], alpha=0.3, label="95 % of measurements"
)
right.plot(sunny, found["mean"], color=plots.COLORS[0], label="predicted mean")
right.plot(sunny, UNIT * power(points), "--", color=plots.EXACT, linewidth=1.2, label="true power")
right.set(xlabel="irradiance, kW/m²", ylabel="power, W", title="answers at 25 °C and 2 m/s of wind")
right.legend(frameon=False, loc="upper left", fontsize=8)
fig.savefig("serving.png")

# %% [markdown]
# Where the processor has nothing else to do, a latency is what it takes of its time, the last number of each line, and
# a request of one row is a matter of milliseconds. Most of that is HTTP and the objects of a prediction, which the
# rows of one request share: send many together where you can. Up to the edge of the gray range the interval is hardly
# wider than the errors of the meter; beyond it the model begins to guess, and the interval says so.
#
# The server stops when it is told to:

# %%
connection.close()
server.shutdown()
server.server_close()

# %% [markdown]
# ## The same from a shell
#
# Whose data are a table needs no Python for any of this. `rfgp fit` reads the table, learns, measures on held-out rows
# and writes one file, with names of columns and scales inside; `rfgp predict` gives means and intervals in the units of
# the table.
#
# ```console
# $ rfgp fit panel.csv --target power --out panel-table.pt
# $ rfgp predict panel-table.pt tomorrow.csv --level 0.9
# ```
#
# Both commands call `rfgp.study.tables.TableModel`, and a server of your own can do so too.

# %%
names = ["irradiance", "temperature", "wind"]
units = np.array([1.0, 10.0, 10.0])  # kW/m², °C and m/s
few = 40 if SHORT else 200
measured = pd.DataFrame(x[:few].numpy() * units, columns=names).assign(power=UNIT * y[:few].numpy())
table = rfgp.study.tables.read(measured, target="power")
rfgp.study.tables.TableModel.fit(table, time_limit=1.0 if SHORT else 10.0).save(folder / "panel-table.pt")
tomorrow = pd.DataFrame([[0.2, 12.0, 1.0], [0.7, 18.0, 4.0]], columns=names)
loaded = rfgp.study.tables.TableModel.load(folder / "panel-table.pt")
print(loaded.report())
print(tomorrow.join(loaded.predict(tomorrow, level=0.9)).round(1).to_string(index=False))

# %% [markdown]
# ## Limits
#
# - The server here is one process of Python, without encryption, passwords or limits on requests. Put what you trust
#   in front of it; the handler's four lines of prediction stay the same.
# - The file has no training rows with random features, but it is made of them: sums over a single row are its
#   features. That is no promise of privacy in the sense of a theorem.
# - Predictions have the same bits on the same machine. Another processor, or another version of PyTorch, may round in
#   another way.
# - A model knows nothing of a panel that gets dusty. A loaded model takes `update(x, y)`, as the one that was saved
#   would, and *A stream that drifts* shows what to do when the world changes.
# - Latencies above are those of the machine that made this page, with whatever else it had to do.
