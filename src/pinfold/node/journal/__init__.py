"""The journal on disk: writes entries, keeps it within bounds, and answers questions about the past."""
