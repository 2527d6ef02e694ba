"""The oracle for events: reads Kafka messages by Spark's own JSON functions; imports nothing of the package.

Errors of it, which are no rules for events (``tests/support/known_event_errors.py`` has an exact condition for each):

* It accepts some texts after a document: ``{"id":1}}x`` and ``{"id":1},"x":2``; and reads keys that are not UTF-8.
* Numbers with a fraction in a wrapper of flat documents, and in texts, are those of ``double``: decimals lose digits
  after the 17th, numbers that are too large become ``Infinity``, and Java before 19 prints some with too many digits.
* A decimal is rounded to 38 digits, of which those before the point are as many as its column has.
* Of a repeated member the last one counts, and the first one is shown in reasons.
* A text that is no base64, in BINARY inside another column, makes the document a null one.
* A whole number of nanoseconds near the least ``bigint`` fails the query.
"""
