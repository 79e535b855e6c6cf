"""Figures, drawn from tables alone: their plots are in `ssm.figures.plots`, stacked by `ssm.figures.draw`."""
