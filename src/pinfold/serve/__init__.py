"""The daemon's interfaces for clients: one HTTP server, one read model."""
