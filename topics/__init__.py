"""The contracts: what is on the wire, not how it is transported.

Start at `catalog` (the table of topics), then the message you care about; `codec` reads and writes
them. Nothing here uses a Kafka package, a clock or a file, apart from `generate`.
"""
