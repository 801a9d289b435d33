"""The directions of imports that docs/architecture.md draws, and the public names of every package."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("analysis", "infra", "locustfiles")

# Of the modules below the first name, only those below the second names may be imported from our rooms.
ALLOWED = {
    "analysis": ("analysis",),
    "infra.command": ("analysis", "infra", "locustfiles"),
    "infra.lab": ("infra.lab", "infra.targets"),
    "infra.scenarios": ("infra.scenarios", "infra.targets"),
    "infra.targets": ("infra.targets",),
    "infra": ("infra",),
    "locustfiles": ("locustfiles", "infra.targets", "analysis.rundir"),
}
ONLY_IN_LOCUSTFILES = ("locust", "gevent", "geventhttpclient")


def modules() -> dict[str, Path]:
    found = {}
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(module: str, path: Path) -> Iterator[str]:
    """Give every name that a module imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            # `from infra import lab` imports infra.lab: the longer name is the one that the rule is about.
            yield from (f"{base}.{alias.name}" for alias in node.names)


def lies_in(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def room_of(module: str) -> str:
    return max((room for room in ALLOWED if lies_in(module, (room,))), key=len)


MODULES = modules()


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_go_one_way(module: str) -> None:
    room = room_of(module)
    names = list(imports(module, MODULES[module]))
    ours = [name for name in names if lies_in(name, ROOMS)]
    assert [name for name in ours if not lies_in(name, ALLOWED[room])] == []
    if room != "locustfiles":
        assert [name for name in names if lies_in(name, ONLY_IN_LOCUSTFILES)] == []


def test_the_rule_sees_an_import_in_a_function_and_a_relative_one(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("def late():\n    from infra import lab\n    import analysis.run\n    from ..engine import x\n")
    assert list(imports("locustfiles.engine.module", path)) == ["infra.lab", "analysis.run", "locustfiles.engine.x"]
    assert room_of("infra.command.main") == "infra.command"
    assert not lies_in("infra.labels", ("infra.lab",))


def test_every_package_has_the_names_that_it_promises() -> None:
    # In a process of its own: importing the engine lets gevent patch the interpreter.
    packages = sorted(name for name, path in MODULES.items() if path.name == "__init__.py")
    check = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    package = importlib.import_module(name)\n"
        "    for promised in getattr(package, '__all__', ()):\n"
        "        if not hasattr(package, promised): print(f'{name}.{promised}')\n"
    )
    done = subprocess.run([sys.executable, "-c", check, *packages], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
