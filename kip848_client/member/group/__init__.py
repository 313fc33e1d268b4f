"""The steps that members of both protocols take: runs from one assignment to the next, and the ways out.

Here belongs what both protocols share. Not here: any request of a protocol but the leave.
"""
