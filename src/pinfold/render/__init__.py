"""Values drawn for people: machines, plans, tables, pages of the reference. Decides nothing, prints nothing."""
