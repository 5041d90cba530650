# Everything runs in its own virtual environment; `make demo` and `make test` need nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests start Python by the hundred: what it has compiled once must be kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all check format methods bench clean

demo: $(STAMP)  ## judge a directed network, then compare three methods on it
	@rm -rf demo
	@printf '\n1 of 2: is a network good?  digrad analyze multi-sub-ring -n 20 --push-graph reverse\n\n'
	@$(BIN)/digrad analyze multi-sub-ring -n 20 --push-graph reverse --figure demo/network.png --html demo/network.html
	@printf '\n2 of 2: which method is best?  digrad reproduce logistic --quick (half a minute)\n\n'
	@$(BIN)/digrad reproduce logistic --quick --out demo/logistic
	@printf '\nOpen demo/logistic/report.html in a browser. What next: docs/tour.md, or just: $(BIN)/digrad\n'

test: check  ## all checks and all tests
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

test-all: check  ## the same and the slow tests: many processes, killed ones, several hosts
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m "slow or not slow"

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

methods: $(STAMP)  ## after a method was added or changed: tables of docs/methods.md, golden numbers
	$(BIN)/python docs/methods.py
	OPENBLAS_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python tests/runs/test_golden.py

bench: $(STAMP)  ## the speeds that docs/benchmarks.md reports
	$(BIN)/python benchmarks/theory.py
	$(BIN)/python benchmarks/simulation.py
	$(BIN)/python benchmarks/deep.py

# --no-compile: Python compiles what is imported, when it is; compiling all of it here takes a minute.
$(STAMP): pyproject.toml studies/pyproject.toml peers/pyproject.toml constraints.txt
	@echo "setting up $(VENV): a minute or two on the first run"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e ".[dev]" -e ./studies -e ./peers
	@touch $(STAMP)

clean:
	rm -rf $(VENV) build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
