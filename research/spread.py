"""The statistics of runs with several seeds."""

import math
import statistics

# Student's t for a two-sided interval of 95 %, by the degrees of freedom.
_STUDENT = {4: 2.776, 9: 2.262}


def half_width(values):
    """Returns half of the interval of 95 % around the mean."""
    return _STUDENT[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))


def spread(prefix, values):
    """Returns the columns of a CSV for one number of all runs."""
    return {f"{prefix}_mean": statistics.mean(values), f"{prefix}_half_width": half_width(values), f"{prefix}_min": min(values),
            f"{prefix}_max": max(values)}
