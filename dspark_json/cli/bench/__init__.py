"""``dspark-json bench``: measurements of this product on this machine."""
