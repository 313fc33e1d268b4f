"""Who gets which partition. Pure: an assignment is a function of the group's description alone.

For users: what an assignor of their own is made of (the names in ``__init__.pyi``, loaded when they are first used),
ready ones (`library`), and tasks with local state (`streams`). `server` has what a coordinator runs itself.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
