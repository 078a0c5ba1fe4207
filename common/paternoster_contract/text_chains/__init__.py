"""Which text an engine has cached: the chain of digests over a request's text, and the stream of an engine's pieces.

The gateway hashes each request body to a chain (:mod:`.canonical_text`, then :mod:`.chain`). The engine hashes the same
body with the same functions, finds out at which token of its prompt each piece of the text ends, and reports over HTTP
which pieces its prefix cache can serve now (:mod:`.stream`).

What a gateway does with a body, and with one index for each engine, ``{digest: tokens}``::

    text = canonical_text(path, pydantic_core.from_json(body))     # None: a route without prompts
    scope = chain_scope(model, tenant if hello.isolates_tenants else "", cache_salt_of(fields))
    pieces = text_chain(scope, text)                               # [(digest, end), ...]
    cached = next((index[p.digest] for p in reversed(pieces) if p.digest in index), 0)

The deepest piece that is in the index decides, since an engine reports a piece only while all that is cached before it
can be found, too. ``cached`` is how many prompt tokens that engine would not compute: whole blocks, the same unit as
``usage.prompt_tokens_details.cached_tokens``.

``model`` is the name that ``Hello.model`` has, the first of the engine's served names, which is the key of the fleet in
the routing table; ``tenant`` is ``Identity.tenant`` of the client's key, and empty for clients without an identity. So
no text of a tenant is found by another one unless their engine shares its cache between tenants.

What an engine delivered of it is in the headers :data:`~paternoster_contract.http.headers.PROMPT_TOKENS` and
:data:`~paternoster_contract.http.headers.CACHED_TOKENS` of each answer to a forwarded request that generates, streams
included.
"""
