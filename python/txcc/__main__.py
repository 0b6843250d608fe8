"""python -m txcc: the command, where it is not installed."""

from txcc import main

if __name__ == "__main__":
    main()
