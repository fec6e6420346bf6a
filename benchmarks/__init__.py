"""Measures what pinfold promises about speed: one module for each subject, run by `python -m benchmarks`."""
