"""HTTP/1.1 on asyncio for a unix socket and loopback TCP: requests, answers, streams, limits. It knows no routes."""
