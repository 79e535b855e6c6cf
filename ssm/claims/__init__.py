"""From tables to verdicts: the quantity that tests a claim, its interval, and what the interval decides."""
