"""Renewal of what is known of the clouds: spot prices, quotas of accounts, and the catalog.

``schedule`` decides by ages alone what is due; ``log`` keeps when each was read last; ``worker`` is
the process that reads, one at a time for each user and below the priority of cells; ``background``
starts it while a session lives, that of a notebook or of the Jupyter server. Nothing is asked of a
cloud without an account there, and nothing at all with ``Sky.renew`` off.
"""
