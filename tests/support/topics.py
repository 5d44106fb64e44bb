"""Prompts about different topics and openings of replies that name them, so that prompt fit is near 1."""

from typing import Final

TOPICS: Final = """
    violin puppy passport wedding garden dentist bicycle pregnancy marathon divorce landlord pottery algebra
    funeral kitten promotion earthquake chess airport cancer guitar snowstorm burglary retirement sourdough
    camping mortgage tattoo swimming hamster jury allergy piano hurricane wallet scholarship roommate diabetes
    fishing ballet graduation migraine tractor adoption casino bakery telescope layoff football ambulance
    cathedral karate electricity novel elevator honeymoon vineyard sunburn skateboard grandmother
""".split()  # noqa: SIM905


def on_topic(number: int) -> tuple[str, str]:
    """Return a prompt and the first two words of a reply to it; every sixtieth prompt has the same topic.

    >>> on_topic(0)
    ('Day 0: all I can think about is the violin.', 'The violin!')
    """
    topic = TOPICS[number % len(TOPICS)]
    return f"Day {number}: all I can think about is the {topic}.", f"The {topic}!"
