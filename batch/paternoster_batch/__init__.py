"""The Batch API: files, batches and their lines, in one process with one volume."""
