"""The command `pinfold`: parse, call, print; only this package decides exit codes."""
