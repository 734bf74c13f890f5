"""Git as a store: objects, refs, packs, and the purge of what a repository must forget."""
