"""From a results folder to one self-contained HTML page."""
