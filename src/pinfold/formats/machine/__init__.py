"""Machines as other tools write them, read into a Topology: hwloc, lscpu, cAdvisor, JSON. No I/O."""
