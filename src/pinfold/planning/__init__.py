"""Plans on any machine: one node, what-ifs, orders, replays and fleets. The same Admitter decides; no I/O."""
