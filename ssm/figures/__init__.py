"""Figure specs, grids and plots: from tables to pictures."""
