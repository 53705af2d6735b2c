"""Stores: folders with the vectors of any number of texts, in memory-mapped shards and one manifest.

    from stsbench.extensions.stores.vectors import VectorStore

    store = VectorStore(Path("wiki-vectors"))
    for vectors in store.blocks():  # float32 (m, d), row by row in the order of the input
        ...
"""
