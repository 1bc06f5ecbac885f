"""Workers on several hosts: one pybench leads, those on the other hosts take its orders over TCP."""
