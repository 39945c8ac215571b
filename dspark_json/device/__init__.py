"""The device ring: the newest records of a lane once more, in a GPU's memory (DESIGN §7)."""
