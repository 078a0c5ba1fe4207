"""Models fetched into a local cache: from the Hugging Face hub, S3, Google Cloud Storage and HTTPS."""
