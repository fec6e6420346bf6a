"""The journal on disk: written, kept within bounds, and asked what was when."""
