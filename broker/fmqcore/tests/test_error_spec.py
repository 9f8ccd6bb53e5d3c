"""Every error has one row, and the row agrees with the wire."""

from fmqcore import errors
from fmqcore.error_spec import ERRORS, EXIT_USAGE, RetryAction, spec_of, spec_of_code
from fmqcore.errors import ErrorCode, FmqError, InvalidArgument, NoPermission, Unavailable


def test_every_error_class_has_exactly_one_row() -> None:
    classes = {each for each in vars(errors).values() if isinstance(each, type)}
    kinds = [spec.kind for spec in ERRORS]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) == {kind for kind in classes if issubclass(kind, FmqError)}


def test_every_wire_code_but_ok_has_its_row() -> None:
    for code in set(ErrorCode) - {ErrorCode.OK, ErrorCode.INTERNAL}:
        assert spec_of_code(code).kind.code is code
        assert isinstance(errors.error_of(code, ""), spec_of_code(code).kind)


def test_unknown_code_is_uncertain() -> None:
    spec = spec_of_code(999)
    assert (spec.retry, spec.appended) == (RetryAction.RESEND_SAME, True)


def test_subclass_without_a_row_takes_the_row_of_the_base() -> None:
    class Lost(Unavailable):
        pass

    assert spec_of(Lost("")) is spec_of(Unavailable(""))
    assert spec_of(InvalidArgument("")).exit_code == EXIT_USAGE


def test_records_of_a_certain_refusal_are_not_stored() -> None:
    codes = {spec.kind.code for spec in ERRORS if spec.appended} - {ErrorCode.INTERNAL}
    assert codes == {
        ErrorCode.DELIVERY_UNKNOWN,
        ErrorCode.ALREADY_EXISTS,
        ErrorCode.NOT_FOUND,
        ErrorCode.STALE_ASSIGNMENT,
        ErrorCode.UNAVAILABLE,
        ErrorCode.SEGMENT_CLOSED,
    }
    assert spec_of(NoPermission("")).retry is RetryAction.SWITCH_BROKER
