"""How a report is shown: `html` is the page of timelines, `summary` the page of many groups, `png` needs matplotlib."""
