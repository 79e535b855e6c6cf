"""Frozen, validated descriptions of everything: models, data, training, measurements, figures.

This floor imports nothing heavy: reading, checking and hashing a spec takes milliseconds, so that the plan, the
workflow and the command line's help stay fast.
"""
