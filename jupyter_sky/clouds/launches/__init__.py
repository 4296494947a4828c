"""Parts that all rented clouds share: launches, leases, records and ends."""
