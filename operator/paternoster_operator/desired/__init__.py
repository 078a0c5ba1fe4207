"""Pure builders: what each child of an LLMDeployment should look like."""
