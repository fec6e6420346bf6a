"""Runtimes run containers: each one finds the containers and keeps them on their CPUs; none decides anything."""
