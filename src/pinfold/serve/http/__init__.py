"""HTTP/1.1 on asyncio, for a unix socket and for loopback: who may ask, how much, for how long; not what there is."""
