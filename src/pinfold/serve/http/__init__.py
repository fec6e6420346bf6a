"""HTTP/1.1 on asyncio, for a unix socket and for TCP: access and limits for clients; knows nothing of the content."""
