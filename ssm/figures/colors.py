"""The two neutral colours of figures: a page may replace these very strings by its own, by day and by night."""

from __future__ import annotations

INK = "#1f2328"  # text, axes, ticks and the base's curve
GRID = "#d0d7de"  # grid lines
