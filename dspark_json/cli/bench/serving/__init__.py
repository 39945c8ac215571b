"""``dspark-json bench serve`` and ``spec-sweep``: a model server under load, judged by its JSON answers."""
