"""Files and data of cells: transfers, datasets, mounts and uploads."""
