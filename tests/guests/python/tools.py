"""A tool component in Python. Its tools do what a tool of that language does first: compute, read, connect."""

# A component holds the modules that were imported when it was made, and no others. Sockets import this one when
# they look up a name.
import encodings.idna
import json
import socket
from pathlib import Path

import wit_world
from componentize_py_types import Err
from wit_world.imports import config, log
from wit_world.imports.types import Failure, ToolSpec


def add(numbers):
    log.write("info", f"adding {len(numbers)} numbers")
    unit = config.get("unit")
    return json.dumps({"sum": sum(numbers), "unit": unit and json.loads(unit)})


def fail(code):
    raise Err(Failure(code=code, message="as it was told", stop=None))


def crash():
    raise RuntimeError("nobody catches this")


def read(path):
    try:
        return Path(path).read_text()
    except OSError as error:
        raise Err(Failure(code="denied", message=f"{type(error).__name__}: {error}", stop=None))


def connect(host, port):
    try:
        with socket.create_connection((host, port), timeout=5):
            return "connected"
    except OSError as error:
        raise Err(Failure(code="denied", message=f"{type(error).__name__}: {error}", stop=None))


TEXT, NUMBER = {"type": "string"}, {"type": "number"}

# Each tool with the schemas of its arguments. All arguments are required.
TOOLS = {
    add: {"numbers": {"type": "array", "items": NUMBER}},
    fail: {"code": TEXT},
    crash: {},
    read: {"path": TEXT},
    connect: {"host": TEXT, "port": NUMBER},
}


def describe(tool, properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolSpec(
        name=tool.__name__,
        description="A tool of the tests.",
        parameters=json.dumps(parameters),
        hints=[],
    )


class WitWorld(wit_world.WitWorld):
    """What the host calls."""

    def describe(self):
        return [describe(tool, properties) for tool, properties in TOOLS.items()]

    def call(self, name, arguments):
        for tool in TOOLS:
            if tool.__name__ == name:
                return tool(**json.loads(arguments))
        raise Err(Failure(code="not-found", message=f"there is no tool {name}", stop=None))
