"""What makes the documentation site besides its pages: hooks of MkDocs, generated pages, pictures."""
