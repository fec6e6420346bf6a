"""The rest of the host, kept off CPUs: reads and sets the CPUs of groups, processes, kernel threads, IRQs, workqueues.

`core.shield` decides; `shield` reads, writes down what was there, and changes it. Paths are below a root directory.
"""
