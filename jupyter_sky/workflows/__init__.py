"""Work of many parts: pipelines, bags of jobs and trials."""
