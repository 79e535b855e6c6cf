"""A model for EleutherAI's lm-evaluation-harness that reads texts of any length and carries the state.

`python -m ssm.harness` is the harness's own command with one more model, `ssm` (`ssm.harness.adapter`). The harness
loads only the models of its own list, so a model from outside needs its own command.
"""
