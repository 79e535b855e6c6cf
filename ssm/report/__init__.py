"""A results folder becomes HTML pages. Reference results are committed and compared here, too."""
