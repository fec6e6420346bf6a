"""Pods from manifests, annotations, traces and the data of a container runtime. No I/O."""
