"""Frozen, validated descriptions of what runs and tables are made of: models, data, training, measurements.

This layer imports nothing heavy: reading, checking and hashing a spec takes milliseconds, so that the plan, the
workflow and the command line's help stay fast.
"""
