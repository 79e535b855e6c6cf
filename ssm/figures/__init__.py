"""Pictures, drawn from tables alone: what stands in them in `ssm.figures.drawings`, stacked by `ssm.figures.draw`."""
