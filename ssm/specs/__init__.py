"""Frozen, validated descriptions of models, data, training and measurements.

This layer imports no torch and no polars. A spec is read, checked and hashed in milliseconds, so the plan, the workflow
and the help of the command line stay fast.
"""
