"""The command line of studies: its defaults are those of the functions, and options have to go with the data."""

import argparse
import inspect

import pytest

from rfgp import study
from rfgp.study.commands.study import _data, add_arguments


def options(*arguments):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


def test_defaults_are_those_of_the_function():
    defaults = {name: parameter.default for name, parameter in inspect.signature(study.run).parameters.items()}
    found = options("concrete")
    assert found.seeds == defaults["num_seeds"] and found.exact_limit == defaults["exact_limit"]
    assert found.alpha_epsilon == defaults["alpha_epsilon"]
    assert tuple(found.num_features) == tuple(defaults["num_features"])


@pytest.mark.parametrize("name", ["runs.csv", "runs.csv.gz", "arrays.npz"])
def test_outputs_of_built_in_data_do_not_go_with_files(name):
    with pytest.raises(ValueError, match=f"expected --output for built-in data sets, got the file {name};"):
        _data(options(name, "--target", "y", "--output", "all"))
    with pytest.raises(ValueError, match=f"expected the name of the target in {name}, got none; pass --target"):
        _data(options(name))
