"""The contracts: what is on the wire, and nothing about how it gets there.

Start at `catalog` (the table of topics), then the message you care about; `codec` is the door
through which every byte comes in. No Kafka package, no clock and no file is used by readers.
"""
