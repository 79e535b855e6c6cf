"""Config files become specs, and specs the graph of data, runs, measurements and figures.

Pure functions: nothing is read but the config files, nothing is written but specs, and torch is never imported.
"""

from ssm.plan.library import Library, load_config
from ssm.plan.plan import Inputs, Plan, make_plan
from ssm.plan.write import write_specs

__all__ = ["Inputs", "Library", "Plan", "load_config", "make_plan", "write_specs"]
