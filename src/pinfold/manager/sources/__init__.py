"""The sources that report containers to a Node: NRI, CRI, and the supervisor of plain processes."""
