"""One file a verb: the function behind ``wessl.VERB(...)``, and ``command`` for what was asked.

They wire the rooms together; nothing in a room knows of them. The larger verbs have their parts in
``pretraining``, ``evaluating``, ``launching`` and ``diagnosis``.
"""
