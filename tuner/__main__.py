"""Entry point of the `clocktuner` command and of `python -m tuner`."""

import os


def main() -> None:
    """Run the command line; heavy parts are imported by the commands that need them."""
    # Before any numerical library loads: all matrices here are small, and threads that wait for each other cost many
    # times what they bring, above all beside other work. Who sets these variables keeps them.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    from tuner.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
