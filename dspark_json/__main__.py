"""``python -m dspark_json``: the ``dspark-json`` command."""

import sys

from dspark_json.cli.main import main

sys.exit(main())
