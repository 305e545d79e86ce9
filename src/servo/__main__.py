"""`python -m servo` is `servo`."""

from servo.cli.main import main

main()
