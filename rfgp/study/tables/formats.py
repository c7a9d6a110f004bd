"""Words for how tables are written, which commands know before they import what reads them."""

TEXT = (".csv", ".tsv", ".txt", ".dat")
"""How the names of text files end, with or without .gz behind it."""
SUFFIXES = (*TEXT, ".jsonl", ".ndjson", ".parquet", ".pq", ".xlsx", ".xlsm")
"""How the names of all files end, with or without .gz behind it."""
WHITESPACE = " "
SEPARATORS = {"tab": "\t", "semicolon": ";", "pipe": "|", "comma": ",", "whitespace": WHITESPACE}
"""What may be between two cells, in the order in which they are tried."""
