"""List and check the files of a table, for operators: nothing is changed."""
