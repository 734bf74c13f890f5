"""`python -m gitmem`."""

from gitmem.cli import main

main()
