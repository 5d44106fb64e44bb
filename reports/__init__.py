"""Results as pages: HTML, Markdown, a terminal and charts."""
