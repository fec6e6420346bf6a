"""Drift: what is repaired, how often in a fight, and containers that run without their CPUs."""
