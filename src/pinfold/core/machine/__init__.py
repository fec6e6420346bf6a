"""The machine as values: CPU sets, topologies, presets and how groups nest. Reads no files."""
