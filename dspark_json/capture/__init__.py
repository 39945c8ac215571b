"""From the server's ASGI messages to records in the spool: the hook, stream assembly, control routes (DESIGN §2)."""
