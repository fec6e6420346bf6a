"""The parts of a daemon: those that every runtime has, those of a plain host, and those of a Kubernetes node."""
