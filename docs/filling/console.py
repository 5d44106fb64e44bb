"""Console blocks: commands after `$`, and what they print."""

import re
from collections.abc import Iterator
from html import escape
from typing import Final

BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
DRAWN: Final = '<div class="language-console highlight"'


def commands_of(block: str) -> Iterator[tuple[str, str, int]]:
    """Yield every command of a block, what the page says it prints, and the command's line.

    >>> list(commands_of("$ echo one \\\\\\n    two\\none two\\n$ true"))
    [('echo one \\\\\\n    two', 'one two', 0), ('true', '', 3)]
    """
    lines = block.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    if starts[:1] != [0]:
        raise ValueError("a console block starts with a command: $ ...")
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        last = start
        if "<<'END'" in lines[start]:
            last = lines.index("END", start)
        while lines[last].endswith("\\"):
            last += 1
        command = "\n".join([lines[start][2:], *lines[start + 1 : last + 1]])
        yield command, "\n".join(lines[last + 1 : end]), start


def copy_commands(html: str, markdown: str) -> str:
    """Have the copy button of every console block take its commands, without `$` and what they print."""
    parts = html.split(DRAWN)
    for number, block in enumerate(BLOCK.findall(markdown), start=1):
        copied = escape("\n".join(command for command, _, _ in commands_of(block)))
        parts[number] = f' data-copy="{copied}"{parts[number]}'
    return DRAWN.join(parts)
