"""The one exception of this package."""


class RunDirError(Exception):
    """A run directory cannot be written or read. The message is one line: what was found, where, what to do."""
