"""`python -m fmqspark`: the jobs, also as a Spark application's entry point."""

from fmqspark.cli import main

if __name__ == "__main__":
    main()
