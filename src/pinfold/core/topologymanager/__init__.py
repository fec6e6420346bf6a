"""The Topology Manager: hints of each resource, how they are merged, and whether a pod is admitted."""
