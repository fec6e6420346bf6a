"""Plain Linux processes: started, watched and kept on their CPUs; no container runtime is involved."""
