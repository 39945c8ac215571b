"""``dspark-json demo``: the whole path, from requests over HTTP to a Delta table, checked row by row."""
