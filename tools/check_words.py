"""Count the words that the project does not use, and refuse more of them than there are today.

`docs/glossary.md` has the words to use instead. Searched: identifiers, docstrings, comments,
messages and pages; not CHANGELOG.md, whose old entries stay as they were published.

    python tools/check_words.py            the count; 1 if it is above `MAX_HITS`
    python tools/check_words.py --list     each hit as file:line: word

`MAX_HITS` only falls: a change that removes hits lowers it. At 0 it goes, and any hit is an error.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MAX_HITS = 1
"""Hits that are still in the sources. Lower it with every change that removes some."""

REFUSED = {
    "told": "reported, returned, logged",
    "tell": "report, return, log",
    "tells": "reports, returns, logs",
    "said": "reported, stated",
    "anew": "again; recreate",
    "nobody": "no broker, no client, no reader",
    "begun": "started",
    "began": "started",
    "of it": "its, or name the thing",
    "of its": "name the thing",
    "heir": "successor",
    "lest": "so that ... not",
    "thereof": "its",
    "whence": "from where",
    "my lease": "the broker's lease",
    "my master": "its master",
    "my journal": "the broker's journal",
    "my group": "the broker's group",
    "mine": "the broker's own",
}
"""The refused word, and what to write instead."""

_FILES = ("*.py", "*.md", "*.proto", "*.yaml", "*.yml", "*.tpl", "*.toml", "Makefile")
_LEFT_OUT = re.compile(
    r"(^CHANGELOG\.md|_pb2\.pyi?|^tools/(check_words|tests/test_checks)\.py|^docs/glossary\.md)$"
)
_SHOULD_BE = "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in REFUSED)
_WORD = re.compile(rf"(?<![A-Za-z])({_SHOULD_BE})(?![A-Za-z])", re.IGNORECASE)


def main(arguments: list[str]) -> int:
    """Print the count, or each hit."""
    hits = list(_hits())
    if "--list" in arguments:
        for file, line, word in hits:
            print(f"{file}:{line}: {word}: {REFUSED[word]}")
    print(f"refused words: {len(hits)}, at most {MAX_HITS}")
    if len(hits) > MAX_HITS:
        print(
            f"{len(hits) - MAX_HITS} refused words too many; "
            "`python tools/check_words.py --list` names them, docs/glossary.md what to write",
            file=sys.stderr,
        )
        return 1
    return 0


def _hits() -> Iterator[tuple[str, int, str]]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *_FILES]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in sorted(set(names.splitlines())):
        path = ROOT / name
        if _LEFT_OUT.search(name) or not path.is_file():
            continue
        text = path.read_text()
        for match in _WORD.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield name, line, re.sub(r"\s+", " ", match[1].lower())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
