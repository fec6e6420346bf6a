"""Which containers get exclusive CPUs: each policy maps a State and a container to the next State, or refuses."""
