"""Entries of the journal as lines of its files, and as a trace to replay. No I/O."""
