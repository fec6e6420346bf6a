"""Asks a daemon over its control socket, or reads the journal that it wrote. Prints nothing."""
