"""Functions on pools: lazy calls, the operators that send them, streams, and what runs them.

The notebook's side: `pending` (what a call is before it runs), `pool` and `compute` (where it
goes), `dispatch` (which node, in what pieces), `streaming`, `output`. The node's side: `site`
(takes commands in the engine), `executors` and `call_process` (threads and processes that calls run in),
`calls` (one call). Nothing here is imported before it is used.
"""
