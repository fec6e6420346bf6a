"""The plugin's end of NRI: connection, requests and answers. Who gets which CPUs is decided elsewhere."""
