"""Importers: other people's files become leaves. One format a module.

Importing the same thing twice adds nothing; a broken entry never stops the rest and is listed.
"""
