"""The command line: one file per verb, each with HELP, add_arguments(parser) and run(args)."""
