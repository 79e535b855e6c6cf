"""Measurements, one file each: a run's weights and held-out text in, one table out.

A measurement is a function (task, subject) -> DataFrame in the schema of its kind. To add one: its spec in
ssm/specs/measurement.py, its schema in ssm/base/tables.py, its file here, a line in `measure.py`.
"""
