"""What this machine is: CPUs, NUMA nodes, devices, memory, load; read below a root directory, never written."""
