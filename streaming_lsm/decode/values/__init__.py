"""Convert values of messages to the types of the table's columns: a whole column at a time, or one text or token."""
