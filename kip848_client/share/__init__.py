"""Members of share groups (KIP-932), which read a topic as a queue: `ShareConsumer`, and the thread behind it.

Here belongs what reads, acknowledges and handles records of a share group. Not here: the rules of the protocol
(`kip848_client.member.share`), and `AsyncShareConsumer` (`kip848_client.aio`).
"""
