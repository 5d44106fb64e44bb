"""What a judge's probabilities are worth: maps and reliability."""
