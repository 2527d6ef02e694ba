"""The oracle for events: reads Kafka messages by Spark's own JSON functions; imports nothing of the package.

Known errors of it, which are no rules for events:

* It accepts some texts after a document: ``{"id":1}}x`` and ``{"id":1},"x":2``.
* In a wrapper of flat documents, and in texts, numbers with a fraction are those of ``double``: decimals lose digits
  after the 17th, numbers that are too large become ``Infinity``, and Java before 19 prints some with too many digits.
* A whole number of nanoseconds near the least ``bigint`` fails the query.
"""
