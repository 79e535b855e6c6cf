"""The project's own config and its plans, made once for all tests. Do not change them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ssm.plan import Library, Plan, load_config, make_plan

CONFIG = Path(__file__).parents[2] / "config"


@cache
def library(scale: str) -> Library:
    return load_config(CONFIG, scale)


@cache
def plan(scale: str) -> Plan:
    return make_plan(library(scale))
