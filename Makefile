# make run: set up and run the main suite.  make test: set up and run every check and test.  make bench: benchmarks.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard csrc/*)

.PHONY: run test lint bench clean

run: $(STAMP)
	$(BIN)/pybench run suites/tp_scaling.toml

test: $(STAMP) lint
	$(BIN)/python -m pytest -q --cov --cov-report=
	$(BIN)/python -m coverage report --include='pybench/model/*,pybench/compute/*,pybench/judge/*' --fail-under=95

lint: $(STAMP)
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy --no-error-summary
	$(BIN)/clang-format --dry-run --Werror $(wildcard csrc/*.h csrc/*.cpp tests/native/*.h tests/native/*.cpp)

bench: $(STAMP)
	$(BIN)/python -m pytest -q tests/benchmarks tests/containers/test_start_cost.py --benchmark-only

$(STAMP): $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt scikit-build-core pybind11 nvidia-nvml-dev
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-build-isolation \
	  --editable '.[torch,transformers,train,test,dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist
