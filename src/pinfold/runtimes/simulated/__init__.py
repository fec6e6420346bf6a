"""Runtimes that start no process: for machines one does not have, and for tests of everything above a runtime."""
