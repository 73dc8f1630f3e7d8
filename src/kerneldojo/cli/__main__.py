"""`python -m kerneldojo.cli`: the same as `dojo`."""

from kerneldojo.cli import app

app()
