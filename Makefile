PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
export PYTHONDONTWRITEBYTECODE :=  # modules are compiled once, and not by every process of the tests

.DEFAULT_GOAL := help
.PHONY: help test test-long smoke oldest coverage package demo gpu tutorials docs lint format clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# torch goes first and alone, so that the pinned build is settled before anything that depends on it.
$(INSTALLED): pyproject.toml setup.py $(wildcard rfgp/linalg/*.cpp rfgp/linalg/*.h) constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@

test: lint  ## check style, types and layers, then run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests

test-long: $(INSTALLED)  ## run what make test leaves out: the other cases, and tests marked long; before a release
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --cases=rest tests

smoke: $(INSTALLED)  ## run one example of every class and the main paths of users, in a minute
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m smoke tests

oldest:  ## run the smoke tests with the oldest versions that are allowed, in .oldest
	$(PYTHON) -m venv .oldest
	.oldest/bin/python -m pip install -q 'torch==2.5.*' 'gpytorch==1.15.2'
	.oldest/bin/python -m pip install -q -e '.[big,dask,grid,plots,study]' SALib hypothesis pyro-ppl pytest pytest-xdist
	OMP_NUM_THREADS=1 .oldest/bin/python -m pytest -n 2 -m smoke --ignore=tests/benchmarks --ignore=tests/botorch --ignore=tests/package tests

coverage: $(INSTALLED)  ## run the tests, and show which lines and branches they do not reach
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --cov --cov-report=term-missing:skip-covered tests

package:  ## build the wheel and the sdist into dist, check both, and run the README in an empty environment
	rm -rf dist .package && $(PYTHON) -m venv .package
	.package/bin/python -m pip install -q build twine check-wheel-contents
	.package/bin/python -m build -q
	.package/bin/twine check --strict dist/*
	.package/bin/check-wheel-contents dist/*.whl
	rm -rf .package && $(PYTHON) -m venv .package
	.package/bin/python -m pip install -q -c constraints.txt torch
	.package/bin/python -m pip install -q -c constraints.txt "$$(ls dist/*.whl)[study]"
	.package/bin/python .ci/readme_blocks.py

lint: $(INSTALLED)  ## check style, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy rfgp
	$(BIN)/lint-imports --no-cache

format: $(INSTALLED)  ## format, and fix what can be fixed
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

demo: $(INSTALLED)  ## compare random features with the exact model on digits, into demo-results
	OMP_NUM_THREADS=1 $(BIN)/python -m rfgp study digits --kernel polynomial:3 --num-features 128,256,512,1024 \
		--seeds 5 --exact-limit 1000 --force --out demo-results \
		--methods rademacher:real,rademacher:ctr,tensor_srht:real,tensor_srht:ctr,tensor_sketch:real,gaussian:real,landmarks

gpu: $(INSTALLED)  ## compare a device with the processor, into gpu-results; DEVICE=cpu to see that it runs
	PYTHON=$(BIN)/python bash .ci/gpu run gpu-results "" $(or $(DEVICE),cuda)

tutorials: $(INSTALLED)  ## run the tutorials whose code has changed, and store what they show; ONLY=07 runs that one
	OMP_NUM_THREADS=1 $(BIN)/python docs/extensions/tutorial_outputs.py $(ONLY)

docs: $(INSTALLED)  ## build the documentation
	$(BIN)/sphinx-build -q -W --keep-going docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:  ## remove the environment and everything generated
	rm -rf .venv .oldest .package build dist docs/_build demo-results .mypy_cache .pytest_cache .ruff_cache *.egg-info rfgp/linalg/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
