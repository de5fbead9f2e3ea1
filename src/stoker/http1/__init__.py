"""HTTP/1.1 server and client pool on asyncio.Protocol and httptools: bytes, limits, backpressure; no policy."""
