"""Vectors of any number of texts in a folder: shards that are read through a memory map, and one manifest.

    from stsbench.extensions.stores.vectors import VectorStore

    store = VectorStore(Path("wiki-vectors"))
    for vectors in store.blocks():  # float32 (m, d), row by row in the order of the input
        ...
"""
