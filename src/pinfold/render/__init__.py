"""Values drawn for people: maps, tables, SVG, HTML and reports. Decides nothing, prints nothing."""
