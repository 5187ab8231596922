"""file:// URLs, which name paths on this machine."""

from urllib.parse import unquote

from wessl.errors import UserError

_SCHEME = "file://"


def as_path(data: str) -> str:
    """The path that a file:// URL names; any other DATA as it is.

    >>> as_path("file:///data/my%20photos/"), as_path("photos/"), as_path("s3://bucket/a.tar")
    ('/data/my photos/', 'photos/', 's3://bucket/a.tar')
    """
    if not data.startswith(_SCHEME):
        return data
    host, slash, rest = data.removeprefix(_SCHEME).partition("/")
    if host not in ("", "localhost") or not slash:
        raise UserError(
            f"{data}: a file:// URL has three slashes and the whole path, as file:///data/photos; "
            f"{host or 'nothing'} stands where it could name another machine. Give the path alone"
        )
    return slash + unquote(rest)
