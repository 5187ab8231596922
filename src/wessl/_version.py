__version__ = "0.1.0.dev0"


def versions(*packages: str) -> dict[str, str]:
    """Of wessl, of these packages and of Python: what a record of numbers names."""
    # Imported here, because whoever wants only the version should not wait for these.
    import platform
    from importlib.metadata import version

    named = {package: version(package) for package in packages}
    return dict(wessl=__version__) | named | dict(python=platform.python_version())
