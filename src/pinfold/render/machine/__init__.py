"""A machine drawn for people: as a map of boxes in the terminal, as SVG, as a table."""
