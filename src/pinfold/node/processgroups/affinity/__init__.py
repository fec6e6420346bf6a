"""Groups without cgroups: the CPUs of every thread are set by its affinity. Needs no privileges.

`groups` is what the rest of pinfold uses; `confinement` keeps each container's processes on its CPUs, `membership`
says whose they are, `threads` sets and reads what the kernel keeps for each thread.
"""
