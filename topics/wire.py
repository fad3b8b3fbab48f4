"""Fields on the wire: documented, bounded, read and described from one declaration.

A message is a frozen dataclass whose fields carry ``metadata=wire("what it means", minimum=0)``;
the keywords are JSON Schema's. `read` builds one from parsed JSON and refuses what the schema
refuses, `write` makes the bytes, `schema` the JSON Schema. A field may hold messages, a tuple of
them, or a mapping from names to them or to numbers. Unknown fields are ignored, so that the message
of a newer writer can be read: a message may gain optional fields and change in no other way.
Features and labels, which come from outside, have their own stricter reader in `codec`.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from math import isfinite
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import orjson

from topics.reasons import Reason, Rejection

Message = TypeVar("Message")
_TYPES: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
WHOLE_FLOAT_MAX = 2.0**53


class _RefusedError(Exception):
    """Carries a rejection out of nested fields; never leaves this module."""

    def __init__(self, reason: Reason, path: str, problem: str) -> None:
        self.reason, self.path, self.problem = reason, path, problem


def wire(doc: str, **schema: Any) -> dict[str, Any]:
    """Metadata of one field: its meaning, and the keywords of its JSON Schema beyond its type.

    ``required=False``: it may be absent though the reader always fills it in. A keyword given as
    None is left out.
    """
    return {"doc": doc, "schema": schema}


def as_integer(value: object) -> int | None:
    """The whole number that a JSON value is, or None. JSON has one kind of number: 7.0 is 7."""
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer() and abs(value) <= WHOLE_FLOAT_MAX:
        return int(value)
    return None


def described(cls: type) -> list[tuple[Field[Any], Any]]:
    """The fields of a message that are on the wire, each with its resolved type."""
    assert is_dataclass(cls)
    hints = get_type_hints(cls)
    return [(item, hints[item.name]) for item in fields(cls) if "doc" in item.metadata]


def required(item: Field[Any]) -> bool:
    """Whether a message without this field is refused; the metadata overrule the type."""
    return bool(item.metadata["schema"].get("required", _default(item) is MISSING))


def _default(item: Field[Any]) -> Any:
    """What a field is when it is absent; MISSING if it must not be."""
    return item.default if item.default_factory is MISSING else item.default_factory()


def schema(cls: type) -> dict[str, Any]:
    """The JSON Schema of a message, as an object to be written down."""
    properties = {}
    for item, hint in described(cls):
        described_by = _hint_schema(hint) | item.metadata["schema"] | {"required": None}
        kept = {key: value for key, value in described_by.items() if value is not None}
        properties[item.name] = {"description": item.metadata["doc"]} | kept
    needed = [item.name for item, _ in described(cls) if required(item)]
    return {"type": "object", "properties": properties, "required": needed}


def read(cls: type[Message], raw: Mapping[str, Any]) -> Message | Rejection:
    """The message in a parsed JSON object, or why it is not one."""
    hint: Any = cls
    try:
        message: Message = _reader(hint)(raw)
    except _RefusedError as refused:
        return Rejection(refused.reason, f"{refused.path.rstrip('.')}: {refused.problem}")
    return message


def write(message: object) -> bytes:
    """The bytes of a message; a NaN or an infinity in it is a bug and raises ValueError."""
    kind: Any = type(message)
    data = orjson.dumps(message)
    # orjson writes them as null, so where no null is unexpected the numbers need no look.
    unexpected = data.count(b"null") != sum(get(message) is None for get in _optional(kind))
    if unexpected and not isfinite(_total(kind)(message)):
        raise ValueError(f"a {kind.__name__} with a number that is not finite")
    return data


def write_fields(fields: Mapping[str, Any]) -> bytes:
    """The bytes that `write` makes of a message with these fields, all of them and in its order.

    For a message written so often that making the objects costs more than writing them.
    """
    data = orjson.dumps(fields)
    unexpected = data.count(b"null") != list(fields.values()).count(None)
    if unexpected and not _finite(fields):
        raise ValueError("a message with a number that is not finite")
    return data


def _finite(value: Any) -> bool:
    """Whether all floats in a value made of JSON's types are finite."""
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_finite, value))


@cache
def _optional(cls: type) -> list[Callable[[Any], Any]]:
    """Getters of the fields of a message that may be None."""
    return [attrgetter(item.name) for item, hint in described(cls) if NoneType in get_args(hint)]


@cache
def _total(cls: type) -> Callable[[Any], float]:
    """A function that gives 0 for a message all of whose floats are finite, else NaN."""
    plan = [(attrgetter(item.name), _adder(hint)) for item, hint in described(cls)]
    floats = [(getter, adder) for getter, adder in plan if adder is not None]
    return lambda message: sum(adder(getter(message)) for getter, adder in floats)


def _adder(hint: Any) -> Callable[[Any], float] | None:
    """The same for a value of this type; None if it holds no floats."""
    if hint is float:
        return lambda value: value * 0.0  # a plain sum of large numbers would overflow
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return _total(hint)
    if get_origin(hint) is tuple:
        inner = _adder(get_args(hint)[0])
        return None if inner is None else lambda held: sum(map(inner, held))
    if _maps_names(hint):
        each = _adder(get_args(hint)[1])
        return None if each is None else lambda held: sum(map(each, held.values()))
    return None


def _hint_schema(hint: Any) -> dict[str, Any]:
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return schema(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return {"type": "string", "enum": [str(member) for member in hint]}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _hint_schema(get_args(hint)[0])}
    if _maps_names(hint):
        return {"type": "object", "additionalProperties": _hint_schema(get_args(hint)[1])}
    if get_origin(hint) is UnionType:
        inner = _hint_schema(_present(hint))
        return inner | {"type": [inner["type"], "null"]}
    return {"type": "object"}


def _present(hint: Any) -> Any:
    """The type beside None in an optional one."""
    (present,) = (part for part in get_args(hint) if part is not NoneType)
    return present


def _maps_names(hint: Any) -> bool:
    """Whether it is a mapping from names to messages or to numbers."""
    if get_origin(hint) is not Mapping:
        return False
    values = get_args(hint)[1]
    return values is float or is_dataclass(values)


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """A function from parsed JSON to a value of this type, made once per type."""
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return _object_reader(hint)
    if get_origin(hint) is tuple:
        return _array_reader(_reader(get_args(hint)[0]))
    if _maps_names(hint):
        return _mapping_reader(_reader(get_args(hint)[1]))
    if get_origin(hint) is UnionType:
        inner = _reader(_present(hint))
        return lambda raw: None if raw is None else inner(raw)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _choice_reader(hint)
    return _plain_reader(hint)


def _plain_reader(hint: Any) -> Callable[[Any], Any]:
    kind = _TYPES.get(hint, "object")

    def plain(raw: Any) -> Any:
        value: Any = raw
        if hint is int:
            value = as_integer(raw)
        elif hint is float and type(raw) is int:
            value = float(raw)
        if type(value) is not (hint if hint in _TYPES else dict):
            raise _RefusedError(Reason.WRONG_TYPE, "", f"must be of type {kind}")
        return value

    return plain


def _choice_reader(hint: type[StrEnum]) -> Callable[[Any], Any]:
    members = {str(member): member for member in hint}

    def choice(raw: Any) -> Any:
        if type(raw) is not str or raw not in members:
            raise _RefusedError(Reason.WRONG_TYPE, "", f"must be one of {', '.join(members)}")
        return members[raw]

    return choice


def _array_reader(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def array(raw: Any) -> Any:
        if type(raw) is not list:
            raise _RefusedError(Reason.WRONG_TYPE, "", "must be of type array")
        return tuple(map(inner, raw))

    return array


def _mapping_reader(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def mapping(raw: Any) -> Any:
        if type(raw) is not dict:
            raise _RefusedError(Reason.WRONG_TYPE, "", "must be of type object")
        return {name: _converted(name, inner, value) for name, value in raw.items()}

    return mapping


def _object_reader(cls: type) -> Callable[[Any], Any]:
    plan = [_step(item, hint) for item, hint in described(cls)]

    def build(raw: Any) -> Any:
        if type(raw) is not dict:
            raise _RefusedError(Reason.WRONG_TYPE, "", "must be of type object")
        values = []
        for name, kind, default, reader, low, high in plan:
            value = raw.get(name, default)
            if value is MISSING:
                raise _RefusedError(Reason.MISSING_FIELD, name, "must be there")
            if value is not default:
                if type(value) is not kind:
                    value = _converted(name, reader, value)
                if (low is not None and value < low) or (high is not None and value > high):
                    raise _RefusedError(Reason.OUT_OF_RANGE, name, _range(low, high))
            values.append(value)
        return cls(*values)

    return build


def _step(item: Field[Any], hint: Any) -> tuple[Any, ...]:
    """Of one field: name, the type that needs no conversion, default, reader, bounds."""
    bounds = item.metadata["schema"]
    kind = hint if hint in _TYPES else None
    low, high = bounds.get("minimum"), bounds.get("maximum")
    return item.name, kind, _default(item), _reader(hint), low, high


def _converted(name: str, reader: Callable[[Any], Any], raw: Any) -> Any:
    try:
        return reader(raw)
    except _RefusedError as refused:
        refused.path = f"{name}.{refused.path}"
        raise


def _range(low: float | None, high: float | None) -> str:
    return f"must be {low} or more" if high is None else f"must be {low} to {high}"
