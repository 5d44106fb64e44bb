"""Limits of what is read from files, requests and raters; whatever exceeds one is refused with its number."""

from typing import Final

MB: Final = 1 << 20

# Files
LONGEST_LINE: Final = 16 * MB  # bytes of a line of JSON or CSV; usual rows have a few thousand
LARGEST_WHOLE: Final = 128 * MB  # bytes of a file that is read whole, as one JSON value is
LARGEST_ARCHIVE: Final = 128 * MB  # bytes of a workbook or an Inspect log without its compression
LARGEST_BATCH: Final = 64 * MB  # bytes of 256 rows of Parquet without their compression
MOST_EXPANSION: Final = 1_000  # times the size of a Parquet file, if that is more than a batch
LARGEST_SEALED: Final = 64 * MB  # bytes of a calibration, a plan or another file of this program
MOST_COLUMNS: Final = 16_384  # as many as Excel has
MOST_ROWS: Final = 1 << 20  # of a workbook, as many as Excel has
MOST_CELLS: Final = 1 << 25  # of a workbook, empty ones included
MOST_BAD_ROWS: Final = 1_000  # before the shape of a table is known
MOST_PARTS: Final = 256  # exchanges in one row
MOST_DIGITS: Final = 308  # as many as a number with a decimal point can have before it
DEEPEST_MESSAGES: Final = 6  # as deep as messages are nested in what tools write
LONGEST_TEXT: Final = 100_000  # characters; a longer text is a mistake far more often than a reply
LONGEST_RAW: Final = 1 << 16  # bytes saved of a line that cannot be read
LONGEST_COLUMN: Final = 200  # characters; the patterns of columns take the square of its length
MOST_ITEMS: Final = 5_000  # turns of a dialogue, or values in another field of a row

# Requests to the server
LARGEST_BODY: Final = MB  # bytes of a request
MOST_EXCHANGES: Final = 256  # in a request
LONGEST_EXCHANGE: Final = 200_000  # characters of all its texts together
MOST_QUEUED: Final = 512  # runs of the judge's network accepted at once
MOST_ALTERNATIVES: Final = 20  # of `top_logprobs`
MOST_CONNECTIONS: Final = 512  # and as many that wait to be accepted
MOST_OPEN_FILES: Final = 8192
IDLE_SECONDS: Final = 30.0  # for a whole request to arrive, or an answer to be read
BODY_TIMEOUT: Final = 30.0  # seconds for the whole body to arrive
DRAIN_FACTOR: Final = 32  # times the limit that is read of an oversized body, so that the sender gets the 413
LONGEST_RETRY: Final = 600  # seconds in Retry-After
DEEPEST_BODY: Final = 32  # nested containers
MOST_FIELDS: Final = 100  # properties of a JSON schema, and options of one of them
LONGEST_OPTION: Final = 80  # characters of an option that are compared with a label

# Raters
LONGEST_REASON: Final = 2_000  # characters
LARGEST_RATING: Final = 64 << 10  # bytes of one rating that the page sends
LONGEST_TIME: Final = 40  # characters
