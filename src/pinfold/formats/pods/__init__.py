"""Pods from manifests, annotations, traces and what a container runtime says. No I/O."""
