"""The transaction coordinator without its network, clock and disk: who may write, and how transactions end. Pure.

`TransactionCoordinator` decides; `Transaction` is the state of one transactional id as a value; `records` are the bytes
of ``__transaction_state``. Records are stored by `partition_log`, offsets by the group coordinator.
"""
