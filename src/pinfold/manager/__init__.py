"""Holds the one current State: decide, save, apply, verify, in this order."""
