"""A model's files of one format as configuration, tokenizer and named weights."""
