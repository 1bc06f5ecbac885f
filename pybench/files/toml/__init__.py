"""TOML read strictly: bounded, with the line of each key and errors that name it."""
