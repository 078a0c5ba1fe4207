"""Events of the prefix cache for routers outside: vLLM's messages over ZMQ."""
