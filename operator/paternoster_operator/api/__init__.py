"""The resource LLMDeployment: its types, its rules, and the CRD made from both."""
