"""Functions on pools: lazy calls, the operators that send them, streams, and what runs them.

Files of the notebook's process: `lazy_calls` (calls before they run), `compute` and `pool` (their
target), `dispatch` (assignment to nodes), `results`, `streams`, `output`. Files of the engines'
processes: ``node/``, with `node_worker` (commands of pools), `executors` and `call_process`
(threads and processes of calls) and `calls`. ``shared/`` holds the collections that tasks share,
``plugins/`` what pools of torch, jax, dask and MPI need. Nothing is imported before it is used.
"""
