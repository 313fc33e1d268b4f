"""Transactions that hold a consumer's offsets and a producer's records.

Here belongs what calls a producer's transactions, and what a consumer does before and after one. Not here: the consumer
for tasks (`kip848_client.aio.transaction`), a broker's side (`kip848_client.testing.transactions`).
"""
