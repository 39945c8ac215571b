"""``dspark-json doctor``: small checks of a machine, a spool and a server, each with its evidence and a remedy."""
