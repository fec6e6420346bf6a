"""The cgroups of Kubernetes pods: finds the groups that a kubelet and its runtime made, and sets their CPUs.

`groups` holds PodGroups, which the rest of pinfold uses. It works through a `driver`: `v1` and `v2` are the kernel's
files, `simulated` is a tree in memory. `nested` and `cut` are the two orders in which CPUs can be written. Not here:
who gets which CPUs, and the groups of plain processes, which pinfold makes itself.
"""
