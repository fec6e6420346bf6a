"""Runtimes that start no processes, for tests and for simulated machines.

`launcher` pretends to start the commands of pods; `runtime` is a kubelet with a container runtime that do what a script
says, and serve NRI plugins and CRI clients on real sockets (`nri`, `cri`). None decides anything.
"""
