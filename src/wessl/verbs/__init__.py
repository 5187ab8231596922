"""One file a verb: the function behind ``wessl.VERB(...)``, and ``command`` for the command line.

They wire the rooms together; nothing in a room knows of them.
"""
