"""The receive policy: what may be pushed, as named rules over old and new trees. Pure: no files, no git.

The hook, `gitmem check` and the library's own writes all ask these functions, so that a push and
the API can never disagree.
"""
