"""A folder on any file system that Spark can write to: ``s3a://``, ``hdfs://`` or a path of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kip848_client.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Folder:
    """One folder; it need not exist yet.

    Args:
        address: a path or an address with a scheme.

    Raises:
        ConfigError: this Spark has no file system for it.
    """

    def __init__(self, spark: SparkSession, address: str) -> None:
        self.address: Final = address.rstrip("/") or "/"
        jvm: Any = spark.sparkContext._jvm
        java: Any = spark.sparkContext._jsc
        self._path: Final = jvm.org.apache.hadoop.fs.Path
        try:
            self._files: Final = self._path(self.address).getFileSystem(java.hadoopConfiguration())
        except Exception as error:  # a Java exception; Py4J has no narrower type for it
            lines = str(error).splitlines()
            reason = next((line for line in lines if "Exception" in line), lines[0] if lines else "")
            raise ConfigError(f"Spark cannot use {address}: {reason.strip()}") from error

    def __str__(self) -> str:
        return self.address

    def of(self, name: str) -> str:
        """The address of the file or folder *name* in it."""
        return f"{self.address}/{name}"

    def names(self) -> list[str]:
        """The names directly in it, sorted; none if it does not exist."""
        path = self._path(self.address)
        if not self._files.exists(path):
            return []
        return sorted(each.getPath().getName() for each in self._files.listStatus(path))

    def has(self, name: str) -> bool:
        """Whether something of that name is in it."""
        return bool(self._files.exists(self._path(self.of(name))))

    def read(self, name: str) -> str | None:
        """The text of a small file; None if it is not there."""
        if not self.has(name):
            return None
        stream = self._files.open(self._path(self.of(name)))
        try:
            return bytes(stream.readAllBytes()).decode("utf-8")
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a small file; the folder is made, and a file of that name replaced."""
        stream = self._files.create(self._path(self.of(name)), True)
        try:
            stream.write(bytearray(text.encode("utf-8")))
        finally:
            stream.close()
