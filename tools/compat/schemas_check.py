#!/usr/bin/env python3
"""Drawn JSON schemas against `halfbyte serve` at temperature 1: every answer parses and fulfils its schema, by jsonschema.

    schemas_check.py HALFBYTE TINY_LLAMA [COUNT]     77: jsonschema is not there
"""
import collections
import concurrent.futures
import http.client
import json
import pathlib
import random
import subprocess
import sys
import tempfile


def text_schema(own):
    out = {"type": "string"}
    if own.random() < 0.4:
        out["maxLength"] = own.randint(3, 20)
    if own.random() < 0.3:
        out["minLength"] = own.randint(0, 3)
    return out


def integer_schema(own):
    out = {"type": "integer"}
    if own.random() < 0.5:
        out["minimum"] = own.randint(-1000, 1000)
    if own.random() < 0.5:
        out["maximum"] = out.get("minimum", 0) + own.randint(0, 5000)
    if own.random() < 0.2:
        out["exclusiveMinimum"] = out.get("minimum", out.get("maximum", 5) - 10) - 1
    return out


def number_schema(own):
    out = {"type": "number"}
    if own.random() < 0.5:
        out["minimum"] = round(own.uniform(-100, 100), 3)
    if own.random() < 0.5:
        out["exclusiveMaximum"] = out.get("minimum", 0) + round(own.uniform(0.01, 50), 3)
    return out


def object_schema(own, depth):
    parts = {f"k{i}{own.choice('abcä')}": schema(own, depth + 1) for i in range(own.randint(0, 4))}
    return {"type": "object", "properties": parts, "required": [name for name in parts if own.random() < 0.6], "additionalProperties": False}


def array_schema(own, depth):
    out = {"type": "array", "items": schema(own, depth + 1)}
    if own.random() < 0.5:
        out["minItems"] = own.randint(0, 3)
    if own.random() < 0.5:
        out["maxItems"] = out.get("minItems", 0) + own.randint(0, 3)
    return out


def schema(own, depth=0):
    simple = [lambda: text_schema(own), lambda: integer_schema(own), lambda: number_schema(own), lambda: {"type": own.choice(["boolean", "null"])},
              lambda: {"enum": own.sample(["a", "bee", 1, 12, 123, None, True, -5.5, 'a"b', "ä"], own.randint(1, 5))},
              lambda: {"const": own.choice(["x", 3, None, {"a": [1, 2]}])}]
    groups = [lambda: object_schema(own, depth), lambda: array_schema(own, depth), lambda: {"type": "object", "additionalProperties": schema(own, depth + 1)},
              lambda: {"anyOf": [schema(own, depth + 1) for _ in range(own.randint(1, 3))]}]
    return own.choice(simple + (groups if depth < 3 else []))()


def whole_schema(seed):
    own = random.Random(seed)
    out = schema(own)
    if own.random() < 0.2:
        out = {"type": "object", "properties": {"v": out, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["v", "next"], "additionalProperties": False}
    return out


def outcome(port, seed):
    import jsonschema
    wanted = whole_schema(seed)
    body = {"messages": [{"role": "user", "content": "JSON, please"}], "temperature": 1, "max_tokens": 150, "seed": seed,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": wanted, "strict": True}}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    if response.status != 200:
        return f"status {response.status}", wanted, answer
    text = answer["choices"][0]["message"]["content"]
    try:
        jsonschema.validate(json.loads(text), wanted)
        return "fulfilled", wanted, text
    except (ValueError, jsonschema.ValidationError) as error:
        return "not fulfilled", wanted, f"{text}: {str(error)[:200]}"


def main(program, tiny_llama, count="200"):
    try:
        import jsonschema  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        model = pathlib.Path(scratch, "tiny")
        subprocess.run([program, "quantize", tiny_llama, model, "-q"], check=True, stdout=subprocess.DEVNULL)
        process = subprocess.Popen([program, "serve", model, "--port", "0", "--json", "-q", "--chat-template", "chatml"], stdout=subprocess.PIPE, text=True)
        port = json.loads(process.stdout.readline())["port"]
        try:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                found = list(pool.map(lambda seed: outcome(port, seed), range(int(count))))
        finally:
            process.terminate()
            process.wait(30)
    for kind, wanted, text in found:
        if kind != "fulfilled":
            print(kind, json.dumps(wanted), text)
    print(dict(collections.Counter(kind for kind, _, _ in found)))
    return 0 if all(kind == "fulfilled" for kind, _, _ in found) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
