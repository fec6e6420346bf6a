"""`python -m pinfold` is the command `pinfold`."""

from pinfold.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
