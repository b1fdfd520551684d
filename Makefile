# Each target sets up .venv from nothing first; a second run is quick.
#   make demo     convert and verify the ResNet-18 in examples/
#   make test     lint, types and all tests          make proofs   the claims alone, the formal layer included
#   make bench    the table of speeds                make mutants  the planted mistakes of the domain alone
#   make docs     the documentation site, in site/
#   make clean    remove what make made
# PYTHON=python3.12 chooses an interpreter. pip obeys its own variables: without a GPU, PIP_EXTRA_INDEX_URL set to
# PyTorch's index of CPU wheels saves a large download.

PYTHON ?= python3
BIN := .venv/bin
PYTEST_WORKERS ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test docs proofs bench zoo mutants clean

demo: .venv/.installed
	$(BIN)/conv2attn demo -o resnet18.attn.pt --force

test: .venv/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -n $(PYTEST_WORKERS)

COQ := coq libcoq-mathcomp-algebra libcoq-coquelicot libcoq-flocq libcoq-interval ocaml-findlib libzarith-ocaml-dev

proofs: .venv/.installed
	@command -v coqc >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq -y $(COQ); } \
		|| echo 'not run: the formal layer, for want of coqc and the right to install it: apt-get install $(COQ)'
	$(BIN)/conv2attn prove $$(command -v coqc >/dev/null && echo --formal)
	@if command -v coqchk >/dev/null; then $(BIN)/python -m proofs.formal.independent; \
		else echo 'not run: the independent checker of proofs, for want of coqchk'; fi
	@if command -v coqc >/dev/null && command -v ocamlfind >/dev/null; then $(BIN)/python -m proofs.formal.extraction; \
		else echo 'not run: the proved checker of certificates, for want of coqc, ocamlfind and Zarith'; fi

docs: .venv/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

mutants: .venv/.installed-dev
	$(BIN)/pytest -q tests/test_domain_mutants.py

bench: .venv/.installed
	$(BIN)/python -m benchmarks

zoo: .venv/.installed-dev
	$(BIN)/python -m benchmarks.zoo

clean:
	rm -rf .venv build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'Python 3.11 or newer is needed: make PYTHON=python3.11' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' \
		|| { echo 'This Python has no venv: apt-get install python3-venv (or your system'"'"'s package of it)' >&2; exit 1; }
	$(PYTHON) -m venv .venv
	touch $@

.venv/.installed: .venv/.created pyproject.toml constraints.txt
	$(BIN)/pip install -qq -c constraints.txt -e .
	touch $@

.venv/.installed-dev: .venv/.installed tests/requirements-real.txt
	$(BIN)/pip install -qq -c constraints.txt -e '.[dev]'
	$(BIN)/pip install -qq --no-deps -r tests/requirements-real.txt
	touch $@
