"""Entry point of the `clocktuner` command and of `python -m tuner`."""


def main() -> None:
    """Run the command line; heavy parts are imported by the commands that need them."""
    from tuner.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
