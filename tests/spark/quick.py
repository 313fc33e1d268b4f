"""Settings of Spark for tests: every query here is small and new, so that compiling it takes longer than running it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

QUICK: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A busy machine takes longer than the default of fifteen seconds.
    "spark.python.authenticate.socketTimeout": "600s",
    "spark.sql.streaming.stopTimeout": "240000",
}


def quick_environment(folder: Path) -> dict[str, str]:
    """An environment in which programs start Spark with `QUICK`, whatever else they configure; *folder* is made."""
    folder.mkdir()
    lines = [f"{name} {value}\n" for name, value in QUICK.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    return {**os.environ, "SPARK_CONF_DIR": str(folder)}
