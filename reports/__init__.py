"""Results as pages: HTML, Markdown, terminal, charts."""
