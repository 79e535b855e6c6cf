"""From tables to verdicts: the quantity of a claim, its interval, and the verdict."""
