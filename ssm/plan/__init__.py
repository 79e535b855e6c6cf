"""Turn config files into specs, and specs into a plan: data sets, runs, measurements and figures.

Only config files are read, only specs are written, and torch is never imported.
"""

from ssm.plan.library import Library, given_settings, load_config
from ssm.plan.plan import Inputs, Plan, make_plan, write_specs

__all__ = ["Inputs", "Library", "Plan", "given_settings", "load_config", "make_plan", "write_specs"]
