"""How verbs write to the terminal: its width and colours, and a progress bar. Knows nothing of what is printed."""
