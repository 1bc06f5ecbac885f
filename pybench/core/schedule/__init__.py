"""Which attempt runs next, in which process, and which still fit the time."""
