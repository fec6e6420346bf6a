"""What tells a Node of containers: NRI, CRI, and the supervisor of plain processes."""
