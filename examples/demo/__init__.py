"""The demo: a group of consumers that join, leave and crash while they count real flights. Not part of the library."""
