"""Fleet files: types of nodes and workloads. No I/O."""
