"""This machine, or a copy of one: everything is read through a root directory given as an argument."""
