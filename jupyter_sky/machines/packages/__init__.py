"""Packages of this machine on machines elsewhere: asked of an index, or sent as they are here.

A machine may ask a package index for a package by its name only if the package is known to have
come from there. Anything else is sent as files through the connection that there is: a public
index must neither learn a private name nor be trusted to serve it (dependency confusion).

The rule, for each installed distribution that a cell imports and for what it depends on:

1. It is *sent* if it was installed from a folder, a repository or an archive (``direct_url.json``,
   PEP 610), by an installer that is not known, or is marked ``Private ::``.
2. Where pip and uv are set up here with PyPI as their default index, it is *sent* if one of the
   other indexes or folders that are set up has its name, or does not answer; else a machine *asks*
   its own default index for this version.
3. Where the default index here is another one, a machine *asks* that index and those beside it,
   with their credentials, and nobody else; packages that it cannot install so are *sent*.

An installed distribution does not record its index. One that was installed with an index given on
the command line alone (``pip install --index-url ...``) looks public: set that index up in
``pip.conf`` or ``uv.toml``, or mark the package ``Private :: Do Not Upload``.
"""
