"""The fields of requests by topic, each a part that the requests are put together from."""
