"""Runtimes that start no process, for tests and for machines that are not there.

`launcher` pretends to start the commands of pods; `runtime` is a kubelet with a container runtime that do what a script
says, and serve NRI plugins and CRI clients on real sockets. None decides anything.
"""
