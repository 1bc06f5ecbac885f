"""Expected tables: reading and writing a file, rules across the keys of a row, and a table as TOML."""
