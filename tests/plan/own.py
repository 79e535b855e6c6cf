"""This project's own config: read, and planned, once a scale for all tests, which change neither."""

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
