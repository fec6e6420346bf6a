"""Puts the parts of a daemon together for each runtime, starts and reloads them. Decides nothing."""
