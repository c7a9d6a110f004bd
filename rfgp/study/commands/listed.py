"""Which commands there are."""

COMMANDS = {
    "fit": "learn a column of a table from the others, and write a model",
    "predict": "predict the rows of a table by a model of rfgp fit",
    "study": "compare random features with the exact Gaussian process on a data set, or study runs of a simulator",
    "compare": "compare two studies",
}
"""What each command does, in a line. Its module, of the same name, is imported when the command is given: it has a
``DESCRIPTION``, ``add_arguments(parser)`` and ``run(options)``."""
