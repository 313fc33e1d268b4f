"""The transaction coordinator without its network, clock and disk: who may write, and how transactions end. Pure.

`TransactionCoordinator` decides; `Transaction` is the state of one transactional id as a value; `records` are the bytes
of ``__transaction_state``. What partitions store is `partition_log`, what groups store is the group coordinator.
"""
