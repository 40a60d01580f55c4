"""`python -m tosaic` is the command `tosaic`."""

from tosaic.cli import main

main(prog_name="tosaic")
