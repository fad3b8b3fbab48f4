"""Kafka clients of librdkafka: reading, writing, administering topics, and logging in."""
