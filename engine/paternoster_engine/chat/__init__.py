"""Chat templates, compiled and rendered in a process of their own: a template is an untrusted program."""
