#!/usr/bin/env python3
"""Writes schemas/kubernetes.json and schemas/cert-manager.json for schema_test.py: the kinds that deploy/ uses, from the
API server of kubectl's current context. Apply cert-manager's CRDs first (these are of 1.18.2): cert-manager.crds.yaml of
its release, or deploy/crds of its Go module without Helm's labels. The schemas are strict: they reject unknown fields.
Usage: make_schemas.py"""

import json
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True

import manifests  # noqa: E402

_OUT = pathlib.Path(__file__).resolve().parent / "schemas"
# Parts of OpenAPI that a JSON schema or these tests do not use, such as the format int32.
_LEFT_OUT = ("description", "default", "format")


def get(path):
    return json.loads(subprocess.run(["kubectl", "get", "--raw", path], capture_output=True, check=True).stdout)


def strict(node):
    if isinstance(node, list):
        return [strict(each) for each in node]
    if not isinstance(node, dict):
        return node
    if "allOf" in node and len(node["allOf"]) == 1:  # OpenAPI's way to describe a reference
        return strict(node["allOf"][0])
    if "$ref" in node:
        return {"$ref": "#/definitions/" + node["$ref"].rpartition("/")[2]}
    made = {}
    for key, value in node.items():
        if key == "properties":
            made[key] = {field: strict(schema) for field, schema in value.items()}
        elif key not in _LEFT_OUT and not key.startswith("x-kubernetes"):
            made[key] = strict(value)
    if "properties" in made:
        made.setdefault("additionalProperties", False)
    return made


def references(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value.rpartition("/")[2]
            else:
                yield from references(value)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


def reachable(roots, definitions):
    found, left = set(), list(roots)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += references(definitions[name])
    return {name: definitions[name] for name in sorted(found)}


def definition_of(kind, components):
    group, _, version = kind["apiVersion"].rpartition("/")
    wanted = {"group": group, "version": version, "kind": kind["kind"]}
    return next(name for name, schema in components.items() if wanted in schema.get("x-kubernetes-group-version-kind", []))


def write(file, used):
    kinds, definitions = {}, {}
    for version, kind in sorted(used):
        path = ("apis/" if "/" in version else "api/") + version
        components = get("/openapi/v3/" + path)["components"]["schemas"]
        kinds[f"{version} {kind}"] = definition_of({"apiVersion": version, "kind": kind}, components)
        definitions.update({name: strict(schema) for name, schema in components.items()})
    told = {"kubernetes": get("/version")["gitVersion"], "kinds": kinds, "definitions": reachable(kinds.values(), definitions)}
    # Write one definition per line, so that the file is small and its changes are readable.
    lines = [f"{json.dumps(name)}: {json.dumps(schema, sort_keys=True)}" for name, schema in told["definitions"].items()]
    _OUT.mkdir(exist_ok=True)
    (_OUT / file).write_text('{"kubernetes": %s,\n"kinds": %s,\n"definitions": {\n%s\n}}\n' % (
        json.dumps(told["kubernetes"]), json.dumps(kinds, indent=1), ",\n".join(lines)))


def main():
    used = {(each["apiVersion"], each["kind"]) for overlay in manifests.OVERLAYS for each in manifests.render(overlay)}
    used = {each for each in used if "monitoring.coreos.com" not in each[0]}  # schemas/prometheus-operator.json has these
    of_manager = {each for each in used if "cert-manager.io" in each[0]}
    write("kubernetes.json", used - of_manager)
    write("cert-manager.json", of_manager)


if __name__ == "__main__":
    main()
