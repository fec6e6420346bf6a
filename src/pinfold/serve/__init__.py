"""What others see and ask for: one HTTP server, one read model."""
