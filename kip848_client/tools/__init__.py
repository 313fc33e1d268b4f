"""The operators' tools: what happened to the groups of a real cluster, and the commands that ask and change it.

Here belong event logs read from ``__consumer_offsets`` (`tools.recorder`), figures and pages of them
(`tools.report`), and the subcommands of ``kip848``. Not here: commands that run the test kit (`testing.commands`)
or Spark (`spark.commands`), and what a program asks of a cluster (`admin`).
"""
