"""Read and write whole topics outside of an application, for data jobs and tools."""
