"""Python source of an encoder for one message class in one version. Only text is made here; `compiler` runs it.

The function that comes out is ``encode(m, o)``: it appends the pieces of message *m* to the list *o*. Everything is
inlined: neighbouring fields of fixed size become one `struct` call, nested structs become nested loops.
"""

from __future__ import annotations

from typing import Final

from kip848_client.wire.compiler import primitives
from kip848_client.wire.compiler.source import Source, is_default_free
from kip848_client.wire.schema import (
    BOOL,
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

_NULL_COMPACT: Final = r'b"\0"'


class EncoderSource:
    """Writes the source of one encoder.

    Args:
        cls: message class.
        version: which version to write.
        flexible: versions with compact lengths and tags.
    """

    def __init__(self, cls: type[WireStruct], version: int, flexible: Versions) -> None:
        self.version: Final = version
        self.compact: Final = flexible.includes(version)
        self.names: Final = Source()
        self._functions: list[str] = []
        self._lines: list[str] = []
        self._indent = 1
        self._pieces: list[tuple[str, str]] = []
        self._begin()
        self._struct(cls, "m")
        self._flush()
        self._functions.append("def encode(m, o):\n" + ("\n".join(self._lines) or "    pass"))
        self.text: Final = "\n\n".join(self._functions) + "\n"

    def _begin(self) -> None:
        self._lines, self._indent, self._pieces = [], 1, []

    def _emit(self, line: str) -> None:
        self._lines.append("    " * self._indent + line)

    # --- pieces: (struct code, expression) for a fixed size, ("", expression) for bytes that are there already

    def _fixed(self, code: str, expression: str) -> None:
        self._pieces.append((code, expression))

    def _bytes(self, expression: str) -> None:
        self._pieces.append(("", expression))

    def _flush(self) -> None:
        """Emit the pieces collected so far, as one extension of *o*."""
        parts: list[str] = []
        codes, values = "", []
        for code, expression in [*self._pieces, ("", "")]:
            if code:
                codes += code
                if code != "x":
                    values.append(expression)
                continue
            if codes:
                parts.append(f"{self.names.packer(codes)}({', '.join(values)})" if values else repr(b"\0" * len(codes)))
                codes, values = "", []
            if expression:
                parts.append(expression)
        self._pieces = []
        if len(parts) == 1:
            self._emit(f"o.append({parts[0]})")
        elif parts:
            self._emit(f"o += ({', '.join(parts)})")

    # --- structure

    def _struct(self, cls: type[WireStruct], source: str) -> None:
        tagged = []
        for field in fields_of(cls):
            value = f"{source}.{field.name}"
            if not field.versions.includes(self.version):
                if not field.ignorable:
                    self._emit(f"if {self._differs(field, value)}: lost({source}, {field.name!r})")
            elif self.compact and field.is_tagged(self.version):
                tagged.append(field)
            else:
                self._value(field.kind, value, nullable=field.nullable.includes(self.version))
        if self.compact:
            self._tags(tagged, source)

    def _differs(self, field: FieldSpec, value: str) -> str:
        """Source of "the value is not the default"."""
        if field.default is None:
            return f"{value} is not None"
        if is_default_free(field.default):
            if field.kind is UUID:
                return f"{value}.int"
            return f"{value} != {field.default!r}"
        return f"{value} != {self.names.constant(field.default)}"

    def _tags(self, tagged: list[FieldSpec], source: str) -> None:
        if not tagged:
            self._fixed("x", "")
            return
        tagged.sort(key=lambda field: field.tag or 0)
        section = self.names.fresh("tags")
        result = self.names.fresh("t")
        tests = " or ".join(self._differs(field, f"{source}.{field.name}") for field in tagged)
        self._emit(rf'{result} = {section}({source}) if {tests} else b"\0"')
        self._bytes(result)
        self._tag_section(section, tagged)

    def _tag_section(self, name: str, tagged: list[FieldSpec]) -> None:
        """A function of its own for the tags of a struct: they are rarely there."""
        outer = self._lines, self._indent, self._pieces
        body = [f"def {name}(m):", "    c = 0", "    s = []"]
        for field in tagged:
            assert field.tag is not None
            number, test = primitives.encode_uvarint(field.tag), self._differs(field, f"m.{field.name}")
            if field.kind is UUID:  # the id of each committed offset
                head = number + primitives.encode_uvarint(16)
                body += [
                    f"    if {test}:",
                    "        c += 1",
                    f'        s += ({head!r}, m.{field.name}.int.to_bytes(16, "big"))',
                ]
                continue
            if isinstance(field.kind, Scalar) and field.kind.code and field.kind is not BOOL:
                head = number + primitives.encode_uvarint(field.kind.size)
                pack = self.names.packer(field.kind.code)
                body += [f"    if {test}:", "        c += 1", f"        s += ({head!r}, {pack}(m.{field.name}))"]
                continue
            one = self.names.fresh("tag")
            self._begin()
            self._emit("o = []")
            self._value(field.kind, "v", nullable=field.nullable.includes(self.version), tagged=True)
            self._flush()
            self._emit('return b"".join(o)')
            self._functions.append(f"def {one}(v):\n" + "\n".join(self._lines))
            body += [
                f"    if {test}:",
                f"        b = {one}(m.{field.name})",
                "        c += 1",
                f"        s += ({number!r}, uvarint(len(b)), b)",
            ]
        body.append('    return SHORT[c] + b"".join(s)')
        self._functions.append("\n".join(body))
        self._lines, self._indent, self._pieces = outer

    def _value(self, kind: WireType, value: str, *, nullable: bool, tagged: bool = False) -> None:
        if isinstance(kind, ArrayOf):
            self._array(kind.element, value, nullable=nullable)
        elif not isinstance(kind, Scalar):
            self._nested(kind, value, nullable=nullable, tagged=tagged)
        elif kind is STRING or kind is BYTES or kind is RECORDS:
            self._sized(kind, value, nullable=nullable)
        elif kind is UUID:
            self._bytes(f'{value}.int.to_bytes(16, "big")')
        else:
            # struct takes any object as a bool; an int in disguise is what Kafka would have read
            self._fixed(kind.code, f"bool({value})" if kind is BOOL else value)

    def _nested(self, cls: type[WireStruct], value: str, *, nullable: bool, tagged: bool) -> None:
        """A struct. Null is -1, but in a tag, where Kafka writes an unsigned number, 0."""
        local = self.names.fresh("v")
        self._emit(f"{local} = {value}")
        if not nullable:
            self._struct(cls, local)
            return
        self._flush()
        self._emit(f"if {local} is None:")
        self._indent += 1
        self._emit(r'o.append(b"\x00")' if tagged else r'o.append(b"\xff")')
        self._indent -= 1
        self._emit("else:")
        self._indent += 1
        self._bytes(r'b"\x01"')
        self._struct(cls, local)
        self._flush()
        self._indent -= 1

    def _sized(self, kind: Scalar, value: str, *, nullable: bool) -> None:
        """A string or bytes: length, then content."""
        content, length = self.names.fresh("s"), self.names.fresh("n")
        made = f"{value}.encode()" if kind is STRING else value
        if self.compact:
            spelled = "string_length" if kind is STRING else "uvarint"
            self._optional(
                nullable or kind is RECORDS,
                value,
                absent=f'{content} = b""; {length} = {_NULL_COMPACT}',
                present=[
                    f"{content} = {made}",
                    f"{length} = len({content}) + 1",
                    f"{length} = SHORT[{length}] if {length} < 256 else {spelled}({length})",
                ],
            )
            self._bytes(length)
        else:
            self._optional(
                nullable or kind is RECORDS,
                value,
                absent=f'{content} = b""; {length} = -1',
                present=[f"{content} = {made}", f"{length} = len({content})"],
            )
            self._fixed("h" if kind is STRING else "i", length)
        self._bytes(content)

    def _optional(self, nullable: bool, value: str, *, absent: str, present: list[str]) -> None:
        if not nullable:
            for line in present:
                self._emit(line)
            return
        self._emit(f"if {value} is None: {absent}")
        self._emit("else:")
        self._indent += 1
        for line in present:
            self._emit(line)
        self._indent -= 1

    def _array(self, element: Scalar | type[WireStruct], value: str, *, nullable: bool) -> None:
        items, count = self.names.fresh("a"), self.names.fresh("n")
        self._emit(f"{items} = {value}")
        if self.compact:
            self._optional(
                nullable,
                items,
                absent=f"{items} = (); {count} = {_NULL_COMPACT}",
                present=[
                    f"{count} = len({items}) + 1",
                    f"{count} = SHORT[{count}] if {count} < 256 else uvarint({count})",
                ],
            )
            self._bytes(count)
        else:
            self._optional(nullable, items, absent=f"{items} = (); {count} = -1", present=[f"{count} = len({items})"])
            self._fixed("i", count)
        if element is UUID:
            self._bytes(f'b"".join([u.int.to_bytes(16, "big") for u in {items}])')
        elif isinstance(element, Scalar) and element.code:
            self._fixed_array(element, items)
        else:
            self._loop(element, items)

    def _fixed_array(self, element: Scalar, items: str) -> None:
        size = self.names.fresh("n")
        self._emit(f"{size} = len({items})")
        long = f'pack(">%d{element.code}" % {size}, *{items})'
        if element.code == "i":
            self._bytes(f"(PACK_INT32S[{size}](*{items}) if {size} < 32 else {long})")
        else:
            self._bytes(long)

    def _loop(self, element: Scalar | type[WireStruct], items: str) -> None:
        self._flush()
        local = self.names.fresh("e")
        self._emit(f"for {local} in {items}:")
        self._indent += 1
        if isinstance(element, Scalar):
            self._value(element, local, nullable=False)
        else:
            self._struct(element, local)
        self._flush()
        self._indent -= 1
