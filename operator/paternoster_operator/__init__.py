"""The operator: reconciles LLMDeployments into engines and steers replicas, max_num_seqs and tokens a step together."""
