"""What a member of either protocol does with its group: runs from one assignment to the next, and the ways out.

Here belongs what both protocols share. Not here: any request of a protocol but the leave.
"""
