"""Pods as the CPU Manager sees them: QoS class, whole CPUs, effective requests, amounts. Parses no YAML."""
