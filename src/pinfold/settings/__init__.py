"""The daemon's settings: one table makes flags, file, environment and the reference page."""
