"""The groups of plain processes, which pinfold makes itself: one for each container, on the CPUs it is given.

`groups` holds the protocol that the rest of pinfold uses, and chooses a kind of groups: `v2` and `v1` are cgroups,
`affinity` needs no privileges. Not here: who gets which CPUs, and the groups of Kubernetes pods (`node/podgroups`).
"""
