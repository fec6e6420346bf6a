"""Kubernetes around the node: asks the kubelet and the API server for whole pods, and tells the API server of refusals.

`pods` has the sources of whole pods. Knows HTTP, TLS and the messages of both; decides nothing about CPUs, and is
imported only on a node of Kubernetes.
"""
