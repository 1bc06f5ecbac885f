# Each sets up .venv first.  make run: the main suite.  make check: lint, types, fast tests: before each commit.
# make test: every check and test.  make bench: benchmarks.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard csrc/*)

CORES ?= $(shell nproc)
PYTEST := $(BIN)/python -m pytest -q
BY_FILE := --dist loadfile --no-loadscope-reorder
# Fast tests that reach the judged code, as few as reach all of it: tracing doubles a test's time.
TRACED := tests/model tests/core tests/suites/test_turn_suite.py \
  $(patsubst %,tests/files/test_%.py,deepspeed_config generate_rules matmul_rules model_config overrides train_rules) \
  $(patsubst %,tests/nightly/test_%.py,comparison figures) tests/fleet/test_figures.py

# Without bytecode, each of the hundreds of processes that tests start compiles pybench again, and each worker of
# pytest every test. Some shells and images forbid it; empty allows it.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run check test lint fast covered slow torch docker podman bench clean

# Installs what a run needs and no more; a checkout for development has it already.
run:
	test -e $(BIN)/pybench || { $(PYTHON) -m venv $(VENV) && $(BIN)/pip install --quiet --no-compile \
	  --constraint constraints.txt '.[torch]'; }
	$(BIN)/pybench run tp_scaling

# Types take one core, for most of a minute where nothing is cached.
check: $(STAMP)
	$(MAKE) --no-print-directory --jobs 2 lint fast

# All at once, as the containers' tests mostly wait. Each fast test runs once, traced or not.
test: $(STAMP)
	$(MAKE) --no-print-directory --jobs 4 COMPILED=$(VENV)/.compiled LEFT_OUT="$(TRACED)" \
	  docker podman slow torch covered fast lint

docker podman slow torch covered fast: $(STAMP) $(COMPILED)

# Bytecode of all that tests import. Of a new .venv, a dozen processes that begin at once would each make it.
$(VENV)/.compiled: $(STAMP)
	-$(PYTEST) --collect-only >/dev/null 2>&1
	touch $@

fast:
	$(PYTEST) -m "pure or source" $(addprefix --ignore ,$(LEFT_OUT)) -n $(CORES) --dist worksteal

covered:
	$(PYTEST) -m pure $(TRACED) -n $(CORES) --dist worksteal --cov --cov-report= --cov-fail-under=95

# In the order that tests/conftest.py gives them: long files first. They wait for half of their time.
slow:
	$(PYTEST) -m "process or simulated or runs or native or whole" -n $(shell expr 3 \* $(CORES)) \
	  $(BY_FILE) --ignore tests/containers

# Apart from the others, as each worker of pytest imports torch and its libraries for 10 s.
torch:
	$(PYTEST) -m torch -n $(CORES) $(BY_FILE)

# An engine belongs to the machine: its tests exclude each other.
docker:
	$(PYTEST) tests/containers -k "not podman"

podman:
	$(PYTEST) tests/containers -k podman

lint: $(STAMP)
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy --no-error-summary
	$(BIN)/clang-format --dry-run --Werror $(wildcard csrc/*.h csrc/*.cpp tests/native/*.h tests/native/*.cpp)

bench: $(STAMP)
	$(BIN)/python -m pytest -q tests/benchmarks tests/containers/test_start_cost.py --benchmark-only

# By its own pip: a Python brings one that may be years old and takes twice as long to choose among wheels.
$(STAMP): $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt pip scikit-build-core setuptools-scm pybind11 nvidia-nvml-dev
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --no-build-isolation \
	  --editable '.[torch,transformers,train,qlora,test,dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist
