"""Models for EleutherAI's lm-evaluation-harness, read in pieces with the state carried on.

`python -m ssm.harness` is the harness's own command with the model `ssm` (`ssm.harness.adapter`) in it: the harness
knows the models of a list of its own, and has no other way in.
"""
