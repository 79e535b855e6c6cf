#!/usr/bin/env bash
# Snakemake runs this inside the new environment, from the folder that the workflow runs in: the checkout.
set -euo pipefail
python -m pip install --constraint constraints.txt --editable .
