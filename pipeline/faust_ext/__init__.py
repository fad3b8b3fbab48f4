"""Faust as this project needs it; the only user of private names of Faust and aiokafka."""
