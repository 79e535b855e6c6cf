#!/usr/bin/env bash
# Snakemake runs this script in the new conda environment, from the root of the checkout.
set -euo pipefail
python -m pip install --constraint constraints.txt --editable '.[workflow]'
