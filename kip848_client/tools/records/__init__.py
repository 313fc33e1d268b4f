"""Reading and printing records: where to begin and end, formats, deserialisers."""
