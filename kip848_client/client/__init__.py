"""The shell of one group member: threads, connections and records around the pure core in `kip848_client.member`.

===========================  ==================================================================================
`heartbeat_manager`          the one background thread: steps the member, sends what it asks for
`request_sender`             connections by node, time-outs; opening a connection is the only thing ever retried
`coordinator_manager`        the coordinator's own connection
`topic_metadata`             topic id to name, and the leaders that `ListOffsets` is split by
`queues`                     the two queues between the application's thread and the background thread
`commit_manager`             futures of commits and offset fetches; no rules
`listener_invoker`           runs rebalance listeners on the application's thread
`app_thread`                 performs the member's effects inside poll(), and waits for its answers
`group_member`               `GroupMember`: all of the above without records
`data_plane`, `fetcher`      records through confluent_kafka, on the thread that polls
`assembly`                   puts one member together from a configuration
===========================  ==================================================================================

Two threads meet here. The background thread owns the `Member` and every socket of the control plane; the thread that
calls the application's methods owns the data plane, the listeners and every error that is raised. They exchange events
one way, effects the other way, and one frozen `MemberView` that is replaced whole.
"""
