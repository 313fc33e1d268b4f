"""The calls by which a program controls a running broker, by subject: ``broker.topics``, ``broker.groups``,
``broker.nodes``, ...

Here belongs the public call of a subject, which runs on the broker's thread. Not here: what the call changes (`topics`,
`coordinators`, `cluster`, `security`), and the calls that a newcomer types first (`EmbeddedBroker` itself).
"""
