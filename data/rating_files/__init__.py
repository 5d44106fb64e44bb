"""Files of people's ratings as people have them: any headers, any scale, thumbs."""
