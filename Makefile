# make install | demo | test | docs: the first one builds .venv with PYTHON; it is rebuilt when what it is made from changes.
PYTHON ?= python3
PYTEST_ARGS ?= -n 2 --dist worksteal
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed-$(shell { echo '$(CURDIR)'; cat pyproject.toml constraints.txt; } | cksum | tr ' ' '-')
# These small models train fastest with one thread per process; a sweep runs one process per core.
export OMP_NUM_THREADS := 1

.PHONY: install demo types test docs clean

install: $(INSTALLED)

$(INSTALLED):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "semcom needs Python 3.11 or newer, which '$(PYTHON)' is not: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Installing into $(VENV) (once; a few minutes) ..."
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: install
	$(BIN)/semcom sweep demo --scale smoke --jobs 2

# What reads sources without importing them (mypy, mkdocstrings) finds them here under the names that are installed.
types:
	rm -rf build/types && mkdir -p build/types/semcom build/types/semcom_papers
	ln -s $(CURDIR)/semcom/* $(CURDIR)/channels build/types/semcom
	ln -s $(CURDIR)/experiments $(CURDIR)/figures build/types/semcom_papers

# Compiled once, for all processes that tests start: they write nothing themselves with PYTHONDONTWRITEBYTECODE.
test: install types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd build/types && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache
	$(BIN)/python -m compileall -q semcom channels experiments figures tests
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# In site/, without a network; a broken link is an error. The notebooks are executed.
docs: install types
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f docs/site/mkdocs.yml

clean:
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache
