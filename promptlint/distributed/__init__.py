"""Logs larger than one machine: the pipelines of `app`, cut into tasks that any number of processes can share.

Stage 1 reads one input (a file, or a range of lines of a large one), renders and tokenises it and writes a *piece*: parquet files, one for each bucket of routing keys,
whose rows know their place in the input. Stage 2 runs the command's own code over one bucket of all pieces, in the order of the input. What the partitions
counted are whole numbers, which are added up exactly; rates are computed once, from the sums.

A partition may stand alone where nothing outside it can change its numbers: prefix caches without limit keep namespaces and models apart. Where one cache with limited
room, one scheduler or one router sees all requests, the pieces are read as one stream in file order instead, and the command says so. The numbers are those of one process either way.

The stages are plain functions of files and know no engine; `on_ray` hands them to Ray.
"""
