"""Python source of a decoder for one message class in one version. Only text is made here; `compiler` runs it.

The function that comes out is ``decode(b, p, end, left)``: it reads a message from bytes *b* at *p* and returns it with
the position after it. Each length is checked against the bytes left before anything of that length is made; *left* is
how many elements and tagged fields all of its arrays and structs together may have. An early end surfaces as IndexError
or struct.error, which `compiler` maps.
"""

from __future__ import annotations

from typing import Final

from kip848_client.wire.compiler.primitives import ARRAY_LENGTH_MAX
from kip848_client.wire.compiler.source import Source
from kip848_client.wire.schema import (
    BYTES,
    RECORDS,
    STRING,
    UUID,
    ArrayOf,
    FieldSpec,
    Scalar,
    Versions,
    WireStruct,
    WireType,
    fields_of,
)


class DecoderSource:
    """Writes the source of one decoder.

    Args:
        cls: message class.
        version: which version to read.
        flexible: versions with compact lengths and tags.
    """

    def __init__(self, cls: type[WireStruct], version: int, flexible: Versions) -> None:
        self.version: Final = version
        self.compact: Final = flexible.includes(version)
        self.names: Final = Source()
        self._lines: list[str] = []
        self._indent = 1
        self._run: list[tuple[str, str]] = []
        result = self._struct(cls)
        self._flush()
        self._emit(f"return {result}, p")
        self.text: Final = "def decode(b, p, end, left):\n" + "\n".join(self._lines) + "\n"

    def _emit(self, line: str) -> None:
        self._lines.append("    " * self._indent + line)

    def _fixed(self, code: str, local: str) -> None:
        """Read *local* together with its neighbours of fixed size, at the next flush."""
        self._run.append((code, local))

    def _flush(self) -> None:
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        locals_ = [local for _, local in self._run]
        self._run = []
        if codes == "B":
            self._emit(f"{locals_[0]} = b[p]; p += 1")
            return
        comma = "," if len(locals_) == 1 else ""
        size = _size_of(codes)
        self._emit(f"{', '.join(locals_)}{comma} = {self.names.unpacker(codes)}(b, p); p += {size}")

    # --- structure: each reader returns the source of its value, valid after the next flush

    def _struct(self, cls: type[WireStruct]) -> str:
        values: list[str] = []
        given = 0
        tagged: list[tuple[FieldSpec, str]] = []
        for field in fields_of(cls):
            if self.compact and field.versions.includes(self.version) and field.is_tagged(self.version):
                local = self.names.fresh("g")
                tagged.append((field, local))
                values.append(local)
                given = len(values)
            elif field.versions.includes(self.version):
                nullable = field.nullable.includes(self.version)
                values.append(self._value(field.kind, nullable=nullable))
                given = len(values)
            else:
                values.append(self._default(field))
        if self.compact:
            self._tags(tagged)
        self._flush()
        made = self.names.fresh("x")
        # Fields behind the last one of this version keep their defaults.
        self._emit(f"{made} = {self.names.constant(cls)}({', '.join(values[:given])})")
        return made

    def _default(self, field: FieldSpec) -> str:
        value = field.default
        if value is None or isinstance(value, bool | int | float | str | bytes) or value == ():
            return repr(value)
        return self.names.constant(value)

    def _tags(self, tagged: list[tuple[FieldSpec, str]]) -> None:
        count = self.names.fresh("t")
        self._fixed("B", count)
        self._flush()
        if not tagged:
            self._emit(f"if {count}:")
            self._indent += 1
            self._count_tags(count)
            self._emit(f"p = skip_tags(b, p, end, {count})")
            self._indent -= 1
            return
        for field, local in tagged:
            self._emit(f"{local} = {self._default(field)}")
        self._emit(f"if {count}:")
        self._indent += 1
        self._count_tags(count)
        self._emit(f"for _ in range({count}):")
        self._indent += 1
        tag, stop = self.names.fresh("k"), self.names.fresh("q")
        self._emit(f"{tag}, p = decode_uvarint(b, p)")
        self._emit(f"{stop}, p = decode_uvarint(b, p)")
        self._emit(f"{stop} += p")
        self._emit(f"if {stop} > end: bad_tag_size({stop})")
        keyword = "if"
        for field, local in tagged:
            self._emit(f"{keyword} {tag} == {field.tag}:")
            self._indent += 1
            value = self._value(field.kind, nullable=field.nullable.includes(self.version), tagged=True)
            self._flush()
            self._emit(f"{local} = {value}")
            self._emit(f"if p != {stop}: bad_tag_size({stop})")
            self._indent -= 1
            keyword = "elif"
        self._emit(f"else: p = {stop}")
        self._indent -= 2

    def _count_tags(self, count: str) -> None:
        self._emit(f"if {count} > 127: {count}, p = rest_of_tag_count(b, p, {count})")
        self._emit(f"left -= {count}")
        self._emit("if left < 0: too_many_elements()")

    def _value(self, kind: WireType, *, nullable: bool, tagged: bool = False) -> str:
        if isinstance(kind, ArrayOf):
            return self._array(kind.element, nullable=nullable)
        if not isinstance(kind, Scalar):
            return self._nested(kind, nullable=nullable, tagged=tagged)
        if kind is STRING or kind is BYTES or kind is RECORDS:
            return self._sized(kind, nullable=nullable or kind is RECORDS)
        local = self.names.fresh("f")
        self._fixed(kind.code, local)
        if kind is UUID:
            return f"(UUIDS.get({local}) or uuid_of({local}))"
        return local

    def _nested(self, cls: type[WireStruct], *, nullable: bool, tagged: bool) -> str:
        """A struct. Null is -1, but in a tag, where Kafka writes an unsigned number, 0."""
        if not nullable:
            return self._struct(cls)
        marker, result = self.names.fresh("n"), self.names.fresh("v")
        self._fixed("b", marker)
        self._flush()
        self._emit(f"if {marker} {'<=' if tagged else '<'} 0: {result} = None")
        self._emit("else:")
        self._indent += 1
        made = self._struct(cls)
        self._flush()
        self._emit(f"{result} = {made}")
        self._indent -= 1
        return result

    def _sized(self, kind: Scalar, *, nullable: bool) -> str:
        """A string or bytes. A null is tested for first: in steady messages most optional fields are null."""
        length, stop, result = self.names.fresh("n"), self.names.fresh("q"), self.names.fresh("s")
        # Without neighbours to be read together, *p* stays at the length byte: one addition less.
        behind = 1 if self.compact and not self._run else 0
        if behind:
            self._emit(f"{length} = b[p]")
        else:
            self._fixed("B" if self.compact else "h" if kind is STRING else "i", length)
            self._flush()
        start = "p + 1" if behind else "p"
        least = 1 if self.compact else 0
        if nullable:
            empty = '""' if kind is STRING else 'b""'
            step = "; p += 1" if behind else ""
            self._emit(f"if {length} == {least - 1}: {result} = None{step}")
            self._emit(f"elif {length} == {least}: {result} = {empty}{step}")
            self._emit("else:")
            self._indent += 1
        if self.compact:
            rest = "rest_of_string_length" if kind is STRING else "rest_of_uvarint"
            back = "; p -= 1" if behind else ""
            self._emit(f"if {length} > 127: {length}, p = {rest}(b, {start}, {length}){back}")
        shorter = 1 - behind if self.compact else 0
        self._emit(f"{stop} = p + {length}{' - 1' if shorter else ''}")
        refuse = f"bad_length(p, {length}{' - 1' if self.compact else ''})"
        self._emit(f"if {stop} > end or {length} < {least}: {refuse}")
        taken = f"b[{start}:{stop}]"
        self._emit(f"{result} = {taken}{'.decode()' if kind is STRING else ''}; p = {stop}")
        if nullable:
            self._indent -= 1
        return result

    def _array(self, element: Scalar | type[WireStruct], *, nullable: bool) -> str:
        count, result = self.names.fresh("n"), self.names.fresh("a")
        self._fixed("B" if self.compact else "i", count)
        self._flush()
        if nullable:
            self._emit(f"if {count} == {0 if self.compact else -1}: {result} = None")
            self._emit("else:")
            self._indent += 1
        if self.compact:
            self._emit(f"if {count} > 127: {count}, p = rest_of_array_length(b, p, {count})")
            self._emit(f"{count} -= 1")
        else:
            self._emit(f"if {count} > {ARRAY_LENGTH_MAX}: too_long_array(p, {count})")
        least = self._least_size(element)
        needed = f"{count} * {least}" if least > 1 else count
        self._emit(f"if {count} < 0 or {needed} > end - p: bad_array_length(p, {count})")
        self._emit(f"left -= {count}")
        self._emit("if left < 0: too_many_elements()")
        self._elements(element, count, result)
        if nullable:
            self._indent -= 1
        return result

    def _elements(self, element: Scalar | type[WireStruct], count: str, result: str) -> None:
        if isinstance(element, Scalar) and element.code and element is not UUID:
            long = f'unpack_from(">%d{element.code}" % {count}, b, p)'
            short = f"UNPACK_INT32S[{count}](b, p) if {count} < 32 else " if element.code == "i" else ""
            self._emit(f"{result} = {short}{long}; p += {count} * {element.size}")
            return
        items = self.names.fresh("l")
        self._emit(f"{items} = []")
        self._emit(f"for _ in range({count}):")
        self._indent += 1
        value = self._struct(element) if not isinstance(element, Scalar) else self._value(element, nullable=False)
        self._flush()
        self._emit(f"{items}.append({value})")
        self._indent -= 1
        self._emit(f"{result} = tuple({items})")

    def _least_size(self, kind: WireType) -> int:
        """The fewest bytes that one value of *kind* takes; an array cannot have more elements than that allows."""
        if isinstance(kind, ArrayOf):
            return 1 if self.compact else 4
        if isinstance(kind, Scalar):
            return kind.size if kind.code else (1 if self.compact else kind.size)
        total = 1 if self.compact else 0
        for field in fields_of(kind):
            if not field.versions.includes(self.version) or (self.compact and field.is_tagged(self.version)):
                continue
            optional_struct = isinstance(field.kind, type) and field.nullable.includes(self.version)
            total += 1 if optional_struct else self._least_size(field.kind)
        return max(total, 1)


def _size_of(codes: str) -> int:
    import struct

    return struct.calcsize(f">{codes}")
