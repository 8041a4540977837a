"""What a run used in energy: measured by counters, else estimated from power, with an error bound.

Each device has one rising curve of joules over time (`meter`, `curve`). Every figure is a difference of it, so that
parts add up to the whole (`portions`); `reading` reads the lines of a run and puts it all together.
"""
