"""The one exception for a user's mistake: its message names the flag or file and the remedy."""


class UserError(ValueError):
    """Shown without a traceback by the command line, which then exits with code 2."""
