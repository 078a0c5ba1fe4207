"""The engine over HTTP: the OpenAI API, probes, metrics and the admin API.

Everything here runs in the asyncio loop except :mod:`~paternoster_engine.server.loop`, whose thread owns the engine,
and what is given to :mod:`~paternoster_engine.server.generation.text_work`.
"""
