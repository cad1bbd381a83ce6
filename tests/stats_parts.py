"""What tests of statistics read off an interval."""


def bounds(interval):
    return interval.low, interval.high


def estimate_and_bounds(interval):
    return interval.estimate, interval.low, interval.high
