"""Metrics: the table of all, counters from events, gauges from a Snapshot."""
