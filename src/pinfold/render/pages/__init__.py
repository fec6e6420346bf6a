"""Pages of docs/reference that are made from the tables of the code."""
