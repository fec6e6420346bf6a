"""Drift: what is repaired, how often in a fight, containers that run without their CPUs, pods that end unreported."""
