"""What may not be in the repository, and that the documents tell of what is there."""

import re
import subprocess
from pathlib import Path

import pytest

from infra.command.main import SUBCOMMANDS

ROOT = Path(__file__).parent.parent
LARGEST_BYTES = 500_000

# Written in pieces, so that this file does not hold what it looks for.
REGISTRIES = [f"{name}.{ending}" for name, ending in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"))]
MACHINE_PATHS = [
    "/".join(["", *parts, ""]) for parts in (("work", "main"), ("work", "shared"), ("home", "runner"), ("root",))
]


def tracked() -> list[Path]:
    """Return the files that are, or would be, in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    return sorted(path for path in paths if path.is_file())


FILES = tracked()
DOCUMENTS = [path for path in FILES if path.suffix == ".md" and path.name != "CHANGELOG.md"]


def test_no_file_is_big() -> None:
    assert {
        str(path.relative_to(ROOT)): path.stat().st_size for path in FILES if path.stat().st_size > LARGEST_BYTES
    } == {}


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    forbidden = [*REGISTRIES, *MACHINE_PATHS, f"{ROOT}/"]
    found = []
    for path in FILES:
        text = path.read_bytes().decode(errors="replace")
        found += [f"{path.relative_to(ROOT)}: {word}" for word in forbidden if word in text]
    assert found == []


def test_pinned_requirements_come_from_wherever_the_reader_gets_packages() -> None:
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        text = path.read_text()
        assert re.search(r"https?://|--(extra-)?index-url|--find-links", text) is None, path.name
        assert "--hash=sha256:" in text


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_tell_of_what_is_there(path: Path) -> None:
    text = path.read_text()
    code = "\n".join(re.findall(r"^```.*?^```|`[^`\n]+`", text, flags=re.DOTALL | re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"(?:^|`)\s*make ([a-z-]+)", code, flags=re.MULTILINE)) <= targets
    assert set(re.findall(r"(?:^|`)\s*ingress-swarm ([a-z]+)", code, flags=re.MULTILINE)) <= set(SUBCOMMANDS)
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    assert [link for link in links if not (path.parent / link).exists()] == []
    assert [name for name in re.findall(r"\b(locustfiles/[\w/]+\.py)", code) if not (ROOT / name).exists()] == []
