"""Teacher and student steps, the loop around them, and what watches over it.

Called, this room is the verb: ``wessl.pretrain(data, out, recipe="auto", budget=None, quiet=False,
**settings)`` trains an encoder and returns its ``Run``; see ``wessl.verbs.pretrain``.
"""
