"""Check whose journal an archive holds: under two names its records would come twice."""

from pathlib import Path

from fmqcore.errors import InvalidArgument
from fmqspark.archive.ledger import FOLDER, Book, Ledger, groups, load
from fmqspark.source.survey import Survey


def only_here(
    folder: Path, group: str, topics: list[str] | None, found: Survey, ledger: Ledger | None
) -> None:
    """Raise `InvalidArgument` if the archive holds this journal under another name.

    Its records would come twice. A journal is known by its batches, wherever its directories are.
    """
    marks = marks_of(found)
    for name in groups(folder):
        if name == group:
            continue
        try:
            other = load(folder, name) or Ledger()
        except InvalidArgument:
            if ledger is None or not ledger.marks:
                raise
            continue  # it does not keep another run from continuing
        if not _same(marks, other.marks):
            continue
        if topics is not None and other.topics is not None and not set(topics) & set(other.topics):
            continue
        if ledger is not None and _same(marks, ledger.marks):
            raise InvalidArgument(
                f"{folder} holds this journal as {name!r} and as {group!r} (an "
                "earlier version let it), so its records come twice: remove one of the two there, "
                f"files topic=*/date=*/<name>-<digits>-<digits>.parquet and {FOLDER}/<name>.ledger"
            )
        raise InvalidArgument(
            f"{folder} holds this journal already as {name!r}, under {group!r} "
            f"its records would come twice: use --group {name}, or archive into another folder"
        )


def same_journal(book: Book, found: Survey) -> None:
    """Raise `InvalidArgument` if the folder holds another journal: positions differ there."""
    for at, crc in marks_of(found).items():
        if book.ledger.marks.get(at) not in (None, crc):
            raise InvalidArgument(
                f"{book.folder} holds another journal as {book.group!r}: what it has at {at} "
                "is another batch; give this one another --group"
            )


def marks_of(found: Survey) -> dict[int, int]:
    """Return the marks by which a journal is known: see `SegmentView.marks`."""
    return {at: crc for view in found.segments for at, crc in view.marks.items()}


def _same(marks: dict[int, int], others: dict[int, int]) -> bool:
    both = marks.keys() & others.keys()
    return bool(both) and all(marks[at] == others[at] for at in both)
