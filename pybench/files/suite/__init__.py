"""A suite file: its schema, its rules, profiles laid over it, and the values it becomes."""
