"""When running containers get other CPUs, and in which order; which CPUs is decided in `core`."""
