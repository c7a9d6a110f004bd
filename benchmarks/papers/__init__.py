"""The papers, page by page: one script per table or figure, what is printed beside ours, and one table of all."""
