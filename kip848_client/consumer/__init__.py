"""`Consumer`, and the shell of its member: threads and records around the pure core in `kip848_client.member`.

===========================  ==================================================================================
`consumer`                   the public calls, and the order inside poll()
`heartbeat_manager`          the one background thread: steps the member, sends what it asks for
`commit_manager`             futures of commits and offset fetches; no rules
`listener_invoker`           runs rebalance listeners on the application's thread
`app_thread`                 performs the member's effects inside poll(), and waits for its answers
`group_member`               `GroupMember`: all of the above without records
`data_plane`, `fetcher`      records through confluent_kafka, on the thread that polls
`assembly`                   puts one member together from a configuration
`processing`                 ``process()``: handlers on threads
`transactions`               ``transaction()``, and the producer's calls
===========================  ==================================================================================

Connections, requests and metadata are in `kip848_client.network`.

Two threads meet here. The background thread owns the `Member` and every socket of the control plane; the thread that
calls the application's methods owns the data plane, the listeners and every error that is raised. They exchange events
one way, effects the other way, and one frozen `MemberView` that is replaced whole.
"""
