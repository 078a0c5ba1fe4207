"""This engine and its peers on one workload: same weights, same requests, same cores, in turn."""
