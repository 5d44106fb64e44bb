"""What a judge's probabilities are worth: maps, reliability, prediction sets."""
