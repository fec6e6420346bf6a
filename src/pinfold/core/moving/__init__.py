"""How running containers move: the search, its cost, CPUs that have gone. When they move is decided in `manager`."""
