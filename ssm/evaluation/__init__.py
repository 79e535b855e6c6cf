"""Measuring, one file for each kind of measurement, by its name; `measure.py` makes tables with all of them.

The file holds a function of the same name, which gives a table in its kind's schema. A measurement of a run is given
(spec, ctx); one of another table (spec, that table); one of a run's metrics (spec, metrics, whether it diverged);
one of its record (spec, record, run);
one of models as they are built, or of nothing (spec, device); one of a task (spec, its token store). A new one: see
ssm/specs/measurements/.
"""

from ssm.evaluation.registry import MEASURES

MEASURES.discover()
