"""Cache ways and memory bandwidth for CPUs through the kernel's resctrl; it does not know who gets how much."""
