"""The plugin's end of NRI: connection, requests and answers. It does not decide on CPUs."""
