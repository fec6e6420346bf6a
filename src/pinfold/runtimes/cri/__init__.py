"""A client of a container runtime's CRI service."""
