"""How documents and places that all namespaces use are shared out among them."""
