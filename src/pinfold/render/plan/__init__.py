"""A plan drawn as a table, a page, a picture or data."""
