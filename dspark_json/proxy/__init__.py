"""The reverse proxy with the hook around it, for servers that have no ASGI application to hook (DESIGN §2)."""
