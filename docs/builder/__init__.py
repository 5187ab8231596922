"""Builds the documentation's site from the pages in ``docs/``: ``python -m docs.builder FOLDER``.

Everything a page needs lies in the folder: no script, font or formula is fetched from elsewhere.
"""
