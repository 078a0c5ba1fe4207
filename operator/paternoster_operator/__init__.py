"""The operator: reconciles LLMDeployments into engines and steers replicas and max_num_seqs together."""
