# make help        these lines
# make environment only the environment, in .venv; make environment-dev: with the tools for tests
# make figures     the headline report; makes only what is missing, and continues after a kill
# make verdicts    one line for each claim of finished figures
# make compare     compares finished figures with the reference results in reports
# make test        the tests, and the ten slowest of them
# make test-exhaustive  slow tests that rarely find what the others do not; make test-all: these and the others
# make mutants     the mutation score of the modules in tests/mutants/modules.toml, and the mutants that no test detects
# make fuzz        damaged and hostile input of every kind, for MINUTES
# make test-slurm  the workflow on a SLURM cluster of two nodes on this machine, with kills (four minutes)
# make campaign    KILLS kills at random moments, of runs and of a workflow; compares the results bit for bit (minutes)
# make journey     diagnoses and extends a checkpoint, and diagnoses one that needs no repair (six minutes)
# make libraries   what users of transformers, fla, mamba_ssm and lm-evaluation-harness type, on models made with these
#                  libraries; builds mamba_ssm without its CUDA part (five minutes)
# make families    `ssm diagnose` and `ssm extend` on a tiny model of every family in the docs (ten minutes)
# make nightly     campaign, journey, libraries, families, ten minutes of fuzz, and gpu-rehearsal; a failure does not
#                  stop the others
# make bench       the speed of scans, training and inference next to other implementations; tables are in results/bench
# make gpu         what only a GPU can show, in stages of at most eight minutes; results are in reports/gpu. Needs no
#                  network, and not the environment; says what is missing
# make gpu-rehearsal  the same without a GPU, at tiny sizes (six minutes); results are in results/gpu_rehearsal
# make docs        writes docs/reference, the reference of all config keys, from the specs
# make check       formatting, types, spelling, the workflow's lint, and pages that disagree with the reference results
# make clean       removes the environment and all caches; results stay
#
# Variables:
#   PYTHON=python3.12                  makes the environment
#   CORES=2                            cores of `make figures`
#   TARGETS='lg_fig5 lg_fig12'         figures to make
#   ARGS='--config scale=gpu'          more arguments of snakemake
#   PROFILE=slurm                      submits the jobs to a cluster
#   RESULTS=results/gpu                for verdicts and compare
#   KILLS=20 SEED=2                    for campaign
#   MINUTES=10 SEED=2                  for fuzz; SEED also for test: chooses the tested families
#   MUTANTS='training plan'            only these groups of modules
#   STAGES='kernels speed'             only these stages of gpu
#   LIBRARIES='fla mamba_ssm'          only these libraries
#   FAMILIES="Mamba-2 'Kimi Linear'"   only these families

PYTHON ?= python3
VENV ?= .venv
CORES ?= all
TARGETS ?=
ARGS ?=
PROFILE ?=
RESULTS ?= results/smoke
KILLS ?= 100
MINUTES ?= 5
MUTANTS ?=
STAGES ?=
LIBRARIES ?=
FAMILIES ?=
SEED ?= 1

SHELL := /bin/bash
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: help environment environment-dev figures verdicts compare test test-exhaustive test-all test-slurm mutants fuzz campaign journey libraries families nightly bench gpu gpu-rehearsal docs check check-types check-others clean
.DEFAULT_GOAL := figures

help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' Makefile

environment: $(VENV)/.installed
	@echo "Type: source $(VENV)/bin/activate"

environment-dev: $(VENV)/.installed-dev
	@echo "Type: source $(VENV)/bin/activate"

figures: $(VENV)/.installed$(if $(filter slurm,$(PROFILE)),-slurm)
	@python workflow/scripts/unlock.py
	@snakemake $(if $(PROFILE),--workflow-profile workflow/profiles/$(PROFILE),--cores $(CORES)) $(TARGETS) $(ARGS)

verdicts: $(VENV)/.installed
	@ssm verdicts "$(RESULTS)"

compare: $(VENV)/.installed
	@ssm compare "$(RESULTS)"

test: $(VENV)/.installed-dev
	@OMP_NUM_THREADS=1 python -m pytest -n 2 --dist worksteal

test-exhaustive: $(VENV)/.installed-dev
	@OMP_NUM_THREADS=1 python -m pytest -n 2 --dist worksteal -m exhaustive

test-all: $(VENV)/.installed-dev
	@OMP_NUM_THREADS=1 python -m pytest -n 2 --dist worksteal -m 'not slurm'

test-slurm: $(VENV)/.installed-dev
	@timeout -k 10 1000 python -m pytest -s -rs -m slurm tests/workflow/test_slurm.py

mutants: $(VENV)/.installed-dev
	@python tests/mutants/run.py $(MUTANTS)

fuzz: $(VENV)/.installed-dev
	@OMP_NUM_THREADS=1 python tests/fuzz/fuzz.py --minutes $(MINUTES) --seed $(SEED)

campaign: $(VENV)/.installed-dev
	@OMP_NUM_THREADS=1 python tests/campaign/kills.py --kills $(KILLS) --seed $(SEED)

journey: $(VENV)/.installed-dev
	@OMP_NUM_THREADS=1 python tests/journey/journey.py

libraries: $(VENV)/.installed-mamba-ssm
	@OMP_NUM_THREADS=1 PYTHONPATH="$(abspath $(VENV))/mamba_ssm" python tests/journey/libraries.py $(LIBRARIES)

families: $(VENV)/.installed-dev
	@OMP_NUM_THREADS=1 python tests/families/run.py $(FAMILIES)

nightly:
	@$(MAKE) --no-print-directory --keep-going --jobs=1 campaign journey libraries families fuzz gpu-rehearsal MINUTES=10

bench: $(VENV)/.installed-dev
	@mkdir -p results/bench
	@ssm bench scans --out results/bench/scans.parquet
	@ssm bench training --out results/bench/training.parquet
	@ssm bench inference --out results/bench/inference.parquet

gpu:
	@PYTHONPATH=kernels $(PYTHON) -m ssm_kernels.benchmarks.on_gpu $(STAGES) $(ARGS)

gpu-rehearsal: $(VENV)/.installed-dev
	@python -m ssm_kernels.benchmarks.on_gpu --rehearse --out results/gpu_rehearsal $(STAGES) $(ARGS)

docs: $(VENV)/.installed
	@python -m ssm.plan.manual

check: $(VENV)/.installed-dev
	@$(MAKE) --no-print-directory --jobs=2 check-types check-others

check-types:
	@mypy

check-others:
	@ruff check .
	@ruff format --check .
	@codespell
	@ssm reference --check
	@snakefmt --check workflow
	@snakemake --lint

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. After a change of pyproject.toml or constraints.txt, a stamp is out of date and pip runs again.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: $(PYTHON) is not Python 3.11 or newer; give a newer one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@echo "Making the environment $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { \
	  rm -rf $(VENV); echo "make: $(PYTHON) -m venv failed; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing ssm and what its workflow needs into $(VENV): about 500 MB with the CPU build of torch, two minutes or more"
	@$(PIP) install -c constraints.txt -e '.[workflow]'
	@ssm plan --schemas workflow/schemas  # for editors
	@touch $@

$(VENV)/.installed-slurm: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing ssm and what a SLURM cluster needs into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[slurm]'
	@ssm plan --schemas workflow/schemas  # for editors
	@touch $(VENV)/.installed $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing ssm, what it needs and the development tools into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@ssm plan --schemas workflow/schemas  # for editors
	@touch $(VENV)/.installed $(VENV)/.installed-slurm $@

$(VENV)/.installed-mamba-ssm: pyproject.toml constraints.txt | $(VENV)/.installed-dev
	@echo "Building mamba_ssm without its CUDA part into $(VENV)/mamba_ssm, outside the search path"
	@rm -rf $(VENV)/mamba_ssm
	@MAMBA_FORCE_BUILD=TRUE MAMBA_SKIP_CUDA_BUILD=TRUE $(PIP) install -c constraints.txt --no-deps \
	  --no-build-isolation --target $(VENV)/mamba_ssm mamba-ssm
	@touch $@
