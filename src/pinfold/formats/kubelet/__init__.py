"""The kubelet's own files: its configuration and flags, and the checkpoint with its checksums. No I/O."""
