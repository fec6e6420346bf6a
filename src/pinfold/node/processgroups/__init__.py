"""The groups of plain processes, which pinfold makes itself: one for each container, on the CPUs it is given.

`groups` holds the protocols that the rest of pinfold uses, and chooses a kind of groups. `v2` and `v1` are cgroups, on
`subtree`, `cpusets` and `cputime`; the folder `affinity` is for users without privileges. `joiner` and `origin` move
processes in and back, `halted` lists those that are stopped meanwhile. Not here: who gets which CPUs, and the groups of
Kubernetes pods (`node/podgroups`).
"""
