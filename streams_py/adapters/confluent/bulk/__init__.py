"""Topics read and written as a whole, outside of any application: data jobs and tools."""
