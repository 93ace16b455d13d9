"""Documents as a held schema's answers are written: members in the order in which the schema declares them, without those
that it does not name, and integers without a fraction.

A schema with properties that says nothing of others is closed in answers: see coordinator/grammar/schema_grammar.h.
"""

import re
from urllib.parse import unquote

_DEEPEST = 24


class DeclaredOrder:
    """`valid(schema, value)` judges parts of `root`. `nested_first`: members of allOf and its like come before their
    schema's own."""

    def __init__(self, root, valid, nested_first=False, keeps_others=False):
        self._root, self._valid = root, valid
        self._nested_first, self._keeps_others = nested_first, keeps_others

    def of(self, document):
        return self._write(document, self._applying(self._root, document), 0)

    def _target(self, pointer):
        found = self._root
        for part in pointer.lstrip("#").split("/")[1:]:
            part = unquote(part).replace("~1", "/").replace("~0", "~")
            found = found[int(part)] if isinstance(found, list) else found[part]
        return found

    def _applying(self, schema, value, depth=0):
        """The schemas that say something of the value's members, in their order."""
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return []
        nested = []
        if isinstance(schema.get("$ref"), str) and schema["$ref"].startswith("#"):
            nested.append(self._target(schema["$ref"]))
        nested += schema.get("allOf", [])
        for word in ("anyOf", "oneOf"):
            nested += [part for part in schema.get(word, []) if self._valid(part, value)]
        if "if" in schema:
            nested += [schema["if"], schema.get("then", {})] if self._valid(schema["if"], value) else [schema.get("else", {})]
        inner = [found for part in nested for found in self._applying(part, value, depth + 1)]
        return inner + [schema] if self._nested_first else [schema] + inner

    def _write(self, value, schemas, depth):
        if isinstance(value, float) and value.is_integer() and abs(value) < 2 ** 53:
            return int(value)
        if depth > _DEEPEST or not isinstance(value, (dict, list)):
            return value
        if isinstance(value, list):
            return [self._write_part(item, self._of_item(schemas, i), depth) for i, item in enumerate(value)]
        named = {}
        for schema in schemas:
            for name, part in schema.get("properties", {}).items():
                named.setdefault(name, []).append(part)
        for schema in schemas:
            for name in schema.get("required", []) if isinstance(schema.get("required"), list) else []:
                named.setdefault(name, [])
        written = {}
        for name in [n for n in named if n in value] + [n for n in value if n not in named]:
            others = self._of_other(schemas, name)
            if name in named or others or self._keeps_others:
                written[name] = self._write_part(value[name], named.get(name, []) + others, depth)
        return written

    def _write_part(self, value, schemas, depth):
        return self._write(value, [found for part in schemas for found in self._applying(part, value)], depth + 1)

    @staticmethod
    def _of_item(schemas, index):
        found = []
        for schema in schemas:
            items, first = schema.get("items"), schema.get("prefixItems", [])
            if isinstance(items, list):
                items, first = schema.get("additionalItems"), items
            found.append(first[index] if index < len(first) else items)
        return found

    @staticmethod
    def _of_other(schemas, name):
        found = []
        for schema in schemas:
            patterns = [part for pattern, part in schema.get("patternProperties", {}).items() if re.search(pattern, name)]
            found += patterns
            if not patterns and name not in schema.get("properties", {}) and schema.get("additionalProperties"):
                found.append(schema["additionalProperties"])
        return found
