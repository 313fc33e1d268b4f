"""The settings of a query, as checked values: options, places, filters, offsets in a checkpoint. Pure.

Here belongs what Spark hands over. Not here: anything that asks a broker.
"""
