"""What the pages take from the repository when the site is built: figures, drawings, tables, the notebook."""
