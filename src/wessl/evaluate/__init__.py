"""Features once, then every protocol of the paper on them, each number with its protocol.

Called, this room is the verb: ``wessl.evaluate(run, train, test, ...)`` measures encoders and
returns what it found; see ``wessl.verbs.evaluate``.
"""
