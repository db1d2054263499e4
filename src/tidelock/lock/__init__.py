"""The lock of RFC-91: its state machine, clients, record and audit log.

A *holding* is one grant of a lock to one owner, from acquire to release or loss. A *ghost* is a
grant that a client wrote and did not learn of, because the reply was lost; it is released as soon
as it is found.
"""
