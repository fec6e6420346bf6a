"""Bytes of NRI and ttrpc, and the JSON that a CRI runtime adds to a status. No I/O, no decisions."""
