"""Invalid options of the source: reported before any file is read."""

import pytest

from fmqcore.errors import InvalidArgument
from fmqspark.source.options import understand


@pytest.mark.parametrize("text", ["zzz", "-5", "", "9" * 20, "Latest"])
def test_start_position_of_a_stream_is_validated(text: str) -> None:
    with pytest.raises(InvalidArgument, match="earliest, latest, or a position"):
        understand({"path": "/x", "startingPosition": text})


@pytest.mark.parametrize("text", ["earliest", "latest", "0", "99999999"])
def test_valid_start_positions_of_a_stream(text: str) -> None:
    assert understand({"path": "/x", "startingPosition": text}).starting == text


@pytest.mark.parametrize(
    "options", [{"path": "/x, /y/../x"}, {"paths": '["/x", "/x"]'}, {"path": "/x,/x/"}]
)
def test_a_directory_named_twice_is_no_other_replica(options: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="the same directory is named twice"):
        understand(options)


def test_no_directory_at_all() -> None:
    with pytest.raises(InvalidArgument, match="nothing names a journal"):
        understand({"paths": "[]"})
