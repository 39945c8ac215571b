"""From servers and spools to rows: planning (which knows no Spark), reading, and the Spark adapter on top."""
