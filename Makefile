# Each target sets up .venv from nothing first; a second run is quick.
#   make demo     convert and verify the ResNet-18 in examples/
#   make test     lint, types and all tests          make proofs   the claims alone, the formal layer included
#   make gpu      figures of an accelerator, in benchmarks/gpu.md, and the tests that take one; DEVICE=cuda is the default
#   make wheels   what a machine with a GPU and without a network needs beside the checkout and torch, in wheels/
#   make bench    the table of speeds                make mutants  the planted mistakes of the domain alone
#   make mutation ROOM=bounds [COUNT=300] [SEED=0]   seeded mutants of a room of mutation.toml, and who survives
#   make fresh    the drawn tests with a fresh seed, which is printed; make thorough: with 10,000 examples
#   make docs     the documentation site, in site/
#   make attack   10,000 random statements put to the core that decides the claims, and 10,000 random formulas of each kind;
#                 1,000 layers whose printed bound inputs are searched to exceed; all rotated tests
#   make release VERSION=0.3.0   run everything, and build and check what a person then publishes
#   make artefact the wheel and the sdist, checked by the tool that uploads them; the wheel runs in a bare environment
#   make clean    remove what make made
#   make versions every Python that is installed, the oldest and the newest versions: demo, README, a quick part of the
#                 tests, each in an environment that is then deleted; docs/versions.md. make oldest: the oldest alone
# PYTHON=python3.12 chooses an interpreter; a torch that it has is used. Without a GPU, PyTorch's CPU build is installed
# if its index can be reached. pip obeys its own variables. CONSTRAINTS=other.txt pins other versions.

PYTHON ?= python3
BIN := .venv/bin
PYTEST_WORKERS ?= 2
CONSTRAINTS ?= constraints.txt
COUNT ?= 300
SEED ?= 0
DEVICE ?= cuda
DRAWN ?= tests/layers tests/theory
REHEARSED ?= demo test proofs docs
SYSTEM_PACKAGES = $(shell $(PYTHON) -c 'import importlib.util as u; print("--system-site-packages" * bool(u.find_spec("torch")))')
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Bytecode is kept: tests start hundreds of processes, and each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

QUICK := tests/test_readme.py tests/test_torch_internals.py tests/cli tests/files/laws.py

.PHONY: versions oldest artefact demo test fresh thorough docs proofs attack bench gpu wheels zoo mutants mutation release clean

demo: .venv/.installed
	$(BIN)/conv2attn demo

test: .venv/.installed-dev
	@.ci/install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -n $(PYTEST_WORKERS)

# In one process: the seed that pytest prints is then that of every test.
fresh: .venv/.installed-dev
	CONV2ATTN_PROFILE=fresh $(BIN)/pytest -m hypothesis $(DRAWN)

thorough: .venv/.installed-dev
	CONV2ATTN_PROFILE=thorough $(BIN)/pytest -m hypothesis --timeout=0 $(DRAWN)

versions:
	$(PYTHON) .ci/versions.py $(QUICK)

oldest:
	$(PYTHON) .ci/versions.py --only 3.11-oldest $(QUICK)

proofs: .venv/.installed
	@.ci/install coqc
	$(BIN)/conv2attn prove $$(command -v coqc >/dev/null && echo --formal)
	@if command -v coqchk >/dev/null && command -v ocamlfind >/dev/null; then $(BIN)/python -m proofs.formal.stamp --write; fi

attack: .venv/.installed-dev
	CONV2ATTN_ATTACK=10000 CONV2ATTN_ALL=1 $(BIN)/pytest -q -o timeout=7200 tests/proofs/edges/core_attack.py \
		tests/equality/fingerprint/edges/random_programs.py tests/equality/fingerprint/edges/swept_arguments.py \
		tests/equality/fingerprint/edges/torch_samples.py tests/equality/layers/edges/bound_attack.py
	CONV2ATTN_ALL=1 $(BIN)/pytest -q -o timeout=7200 -m rotated

docs: .venv/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

mutation: .venv/.installed-dev .venv/mutation
	@test -n "$(ROOM)" || { echo 'Say which: make mutation ROOM=bounds' >&2; exit 1; }
	$(BIN)/python .ci/mutation.py $(ROOM) $(COUNT) $(SEED)

mutants: .venv/.installed-dev
	CONV2ATTN_ALL=1 $(BIN)/pytest -q tests/test_domain_mutants.py tests/licences/laws.py -k "mutant or generates"

bench: .venv/.installed
	$(BIN)/python -m benchmarks

# Figures first, and whatever fails, the rest is run all the same: a lent machine may be there for minutes.
gpu: .venv/.installed-dev
	-$(BIN)/python -m benchmarks.gpu --device $(DEVICE)
	CONV2ATTN_ALL=1 $(BIN)/pytest -q --device $(DEVICE) tests/layers/attention tests/theory/basis tests/span/edges/devices.py

# What a machine with torch and without a network needs beside a copy of the checkout: python -m benchmarks.gpu takes it.
wheels: .venv/.created
	$(BIN)/pip download -q --only-binary :all: --no-deps -c constraints.txt -d wheels python-flint msgspec rich click \
	    safetensors markdown-it-py mdurl pygments

zoo: .venv/.installed-dev
	$(BIN)/python -m benchmarks.zoo

release: .venv/.installed-dev
	@test -n "$(VERSION)" || { echo 'Say which: make release VERSION=0.3.0' >&2; exit 1; }
	$(BIN)/python .ci/release.py $(VERSION)
	$(MAKE) $(REHEARSED)
	$(MAKE) artefact
	$(BIN)/python .ci/release.py $(VERSION) --remaining

artefact: .venv/.created
	$(BIN)/pip install -q build 'twine>=6.2' 'packaging>=26'
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	rm -rf .venv/wheel
	$(PYTHON) -m venv .venv/wheel
	.venv/wheel/bin/python .ci/install_torch.py $(CONSTRAINTS) .venv/wheel/constraints.txt
	.venv/wheel/bin/pip install -q -c .venv/wheel/constraints.txt dist/*.whl
	cd .venv/wheel && bin/conv2attn demo && bin/conv2attn --version
	cd .venv/wheel && bin/conv2attn convert ../../examples/resnet18.pt --input-size 3x32x32 -o converted.pt
	rm -rf .venv/wheel

clean:
	rm -rf .venv build dist site wheels *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Beside the installed packages and last on the path, so that tests run with what constraints.txt pins.
.venv/mutation: .venv/.created
	$(BIN)/pip install -q --target $@ -c $(CONSTRAINTS) cosmic-ray==8.7.0 coverage==7.17.4
	touch $@

.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'Python 3.11 or newer is needed: make PYTHON=python3.11' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' \
		|| { echo 'This Python has no venv: apt-get install python3-venv (or your system'"'"'s package of it)' >&2; exit 1; }
	$(PYTHON) -m venv $(SYSTEM_PACKAGES) .venv
	touch $@

.venv/.installed: .venv/.created pyproject.toml $(CONSTRAINTS)
	$(BIN)/python .ci/install_torch.py $(CONSTRAINTS) .venv/constraints.txt
	$(BIN)/pip install -c .venv/constraints.txt -e '.[plot]'
	touch $@

.venv/.installed-dev: .venv/.installed tests/requirements-real.txt
	$(BIN)/pip install -q -c .venv/constraints.txt -e '.[dev]'
	$(BIN)/pip install -q --no-deps -r tests/requirements-real.txt
	touch $@
