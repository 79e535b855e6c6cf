"""Defaults of the options of `ssm diagnose`. The help shows them, so this file imports nothing slow."""

from __future__ import annotations

TOLERANCE = 1.1  # paired ratio of perplexities above which a model counts as broken
BUDGET = 10.0  # minutes for the measurements
SEQUENCES = 256  # maximum number of windows
SEED = 1
TEXT_KEY = "text"  # JSON key or Parquet column with the text
