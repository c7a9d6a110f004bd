"""Powers of two that bound the inputs: every way of adding rows up keeps them, and they hold the value of no row."""

import copy
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from problems import model_for, rows_for
from saved_models import through_a_file

from rfgp.models import WeightSpaceGP
from rfgp.models.weight_space.row_sums import input_bounds

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the"),
]


def by_threads(model, parts, path):
    with ThreadPoolExecutor(1) as executor:
        return model.condition(parts, executor=executor)


def from_checkpoint(model, parts, path):
    with pytest.raises(ValueError, match="NaN"):
        model.condition([parts[0], (parts[1][0] * math.nan, parts[1][1])], checkpoint=path, checkpoint_every=1)
    return model.condition(parts, checkpoint=path)


def of_several_draws(model, parts, path):
    return WeightSpaceGP(model.covar_module, model.likelihood, model.mean_module, num_draws=2).condition(parts)


def from_state(model, parts, path):
    other = copy.deepcopy(model)
    other.load_state_dict(model.condition(parts).state_dict())
    return other


WAYS = {
    "rows": lambda model, parts, path: model.condition(*map(torch.cat, zip(*parts, strict=True))),
    "batches": lambda model, parts, path: model.condition(parts),
    "executor": by_threads,
    "checkpoint": from_checkpoint,
    "update": lambda model, parts, path: (
        model.condition(*parts[0]).update(*parts[1]).forget(0.5).downdate(*parts[0], weight=0.5)
    ),
    "merge": lambda model, parts, path: copy.deepcopy(model).condition(*parts[0]).merge(model.condition(*parts[1])),
    "draws": of_several_draws,
    "state": from_state,
    "file": lambda model, parts, path: through_a_file(model.condition(parts), path),
}


def parts_of_rows():
    x, y, _ = rows_for("gaussian", 30)
    return [(x[:20], y[:20]), (20.0 * x[20:], y[20:])]


@pytest.mark.parametrize("way", WAYS)
def test_every_fit_knows_the_bounds(way, tmp_path):
    parts = parts_of_rows()
    model = WAYS[way](model_for("gaussian", keep_data=False), parts, tmp_path / "file")
    assert torch.equal(model.conditioned.sums.input_bounds, input_bounds(torch.cat([x for x, _ in parts])))


def test_bounds_are_the_next_powers_of_two():
    x = torch.tensor([[-3.0, 0.1, 0.0, 2000.0, -4.0], [-1.0, 0.3, 0.0, 2020.0, 4.0]])
    assert input_bounds(x).tolist() == [[-4.0, 0.0625, 0.0, 1024.0, -4.0], [-1.0, 0.5, 0.0, 2048.0, 4.0]]


def test_states_from_before_bounds_were_kept_are_loaded():
    (x, y), _ = parts_of_rows()
    model = model_for("gaussian").condition(x, y)
    state = model.state_dict()
    del state["input_bounds"]
    model.load_state_dict(state)
    assert model.update(x, y).conditioned.sums.input_bounds is None
