"""One file a verb: what may be said to it, read and refused before anything heavy is imported.

``parse`` turns the words of a command line into what is asked for; ``command`` of the verb's file
in ``verbs/`` does it. Nothing here imports torch, so a misspelt flag or path is answered at once.
"""
