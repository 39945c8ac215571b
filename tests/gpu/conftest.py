"""These tests need a GPU: ``make test-gpu`` runs them, ``make test`` does not look at them."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("DSPARK_GPU_TESTS") else ["test_*.py"]
