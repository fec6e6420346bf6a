"""Starting processes in their groups: `starter` asks, and the small program `forker` beside the daemon does it.

The daemon has threads, and a fork of a process with threads can hang: another thread may hold a lock for ever. The
program has one thread, and less memory to copy. Not here: which groups there are (`node/processgroups`).
"""
