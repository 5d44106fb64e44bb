"""Pure statistics: agreement, intervals and shares, computed from rows and never from a model."""
