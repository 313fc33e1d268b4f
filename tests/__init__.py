"""Tests of kip848_client; a package, so that test helpers are imported as `tests.support...`, `tests.interop...`."""
