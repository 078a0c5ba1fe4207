"""Chat templates: compiled and rendered in a process of their own, because a template is a program of strangers."""
