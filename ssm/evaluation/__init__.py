"""Measurements, one file for each kind. `measure.py` calls them and writes their tables.

Each file has a function with the name of the kind, which returns a table in the schema of its spec. Its arguments
depend on the base class of the spec (ssm/specs/measurements/base.py):

| base class | arguments |
|---|---|
| `OfRun` | spec, evaluation context |
| `OfTable` | spec, table of the other measurement |
| `OfMetrics` | spec, metrics, whether the run diverged |
| `OfRecord` | spec, record, run |
| `OfModels`, `OfNothing` | spec, device |
| `OfTask` | spec, token store of the task |
"""

from ssm.evaluation.registry import MEASURES

MEASURES.discover()
