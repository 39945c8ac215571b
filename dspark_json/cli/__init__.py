"""The ``dspark-json`` command; one module (or folder) a subcommand."""
