"""Where gateways send requests: rows of one table, its shares by namespace, and its copy in a Secret."""
