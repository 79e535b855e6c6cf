"""The two neutral colors of figures. A page may replace these strings by its own colors for light and dark mode."""

from __future__ import annotations

INK = "#1f2328"  # text, axes, ticks and the curve of the base
GRID = "#d0d7de"  # grid lines
