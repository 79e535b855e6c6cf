"""Pictures, drawn from tables alone: one function per kind of drawing, registered in `ssm.figures.draw`."""
