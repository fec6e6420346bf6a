"""The command `pinfold`: parse, call, print; exit codes are decided here and nowhere else."""
