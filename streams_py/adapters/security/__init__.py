"""The security settings of both client libraries."""
