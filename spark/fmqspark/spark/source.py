"""`spark.read.format("fmq")` and `readStream`: what Spark calls of `fmqspark.source`.

`register(spark)` makes the format known (and has Spark pass a query's filters to the source); a
session that finds the package `pyspark_fmq` knows the format by itself.

Spark does not pass a query's columns to a Python source: the option `columns`, or
`.schema("value binary, offset long")`, prunes them. With the option `json`, fields of the messages
are columns, too, and are parsed here. Filters on topic, queue, offset, position and store_time
decide what is read; Spark applies them again to the rows, so a superset is enough.

Spark up to 4.3 keeps what a filter led to with the DataFrame (`PythonDataSourceV2.setReadInfo`),
and uses it again for the next query, which has another filter or none: rows would be missing
without an error. There filters decide nothing, unless the query sets `filters=once`. The Spark that
keeps it with the scan is the one whose readers may take a limit (`PythonScanBuilder.readInfo`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from fmqcore.errors import InvalidArgument
from fmqcore.scan.selection import NO_END, Range, Wanted
from fmqspark.source.names import add_topic_names
from fmqspark.source.options import ORDERED_COLUMNS, Request, to_ms, understand
from fmqspark.source.ordered import plan_ordered
from fmqspark.source.survey import Survey
from fmqspark.spark.partitions import (
    TaskPartition,
    ordered_partitions,
    partitions,
    print_notices,
    read,
    spare_loaded_modules,
)
from fmqspark.spark.stream import FmqStreamReader

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
APART: Final = hasattr(DataSourceReader, "pushLimit")
"""Whether this Spark keeps what one query reads apart from the next one's."""
_TYPES: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "queue": IntegerType(),
    "offset": LongType(),
    "key": BinaryType(),
    "value": BinaryType(),
    "tag": BinaryType(),
    "headers": MapType(StringType(), BinaryType()),
    "store_time": TimestampType(),
    "deliver_time": TimestampType(),
    "born_time": TimestampType(),
    "producer": LongType(),
    "epoch": LongType(),
    "position": LongType(),
}
_ORDERED_TYPES: Final[dict[str, DataType]] = dict.fromkeys(ORDERED_COLUMNS, LongType())
_KINDS: Final[dict[str, DataType]] = {
    each.simpleString(): each
    for each in (
        *(BooleanType(), ByteType(), ShortType(), IntegerType(), LongType()),
        *(FloatType(), DoubleType(), StringType()),
    )
}
"""The Spark types of message fields."""


def register(spark: SparkSession) -> None:
    """Make `format("fmq")` known to a session."""
    made = type(FmqDataSource.__name__, (FmqDataSource,), {"at_once": _at_once(spark)})
    spark.dataSource.register(made)
    spark.conf.set(PUSHDOWN, "true")


def _at_once(spark: SparkSession) -> int:
    """Return how many tasks this Spark runs at once; 0 if that is not known, or not fixed."""
    if spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return 0
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:  # Spark Connect
        return 0


class FmqDataSource(DataSource):
    """Spark's data source `fmq`. See the module; options are in `fmqspark.source.options`."""

    at_once: ClassVar[int] = 0
    """Tasks at once in the Spark that runs it, as `register` found; 0: not known."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` takes."""
        return "fmq"

    def schema(self) -> StructType:
        """Return the columns that are asked for."""
        spare_loaded_modules()
        request = understand(self.options)
        types = _types(request)
        found = StructType()
        for name in types if request.columns is None else request.columns:
            found = found.add(name, _type(types, name))
        return found

    def reader(self, schema: StructType) -> "FmqReader":
        """See `DataSource`."""
        spare_loaded_modules()
        request = replace(understand(self.options), at_once=self.at_once)
        return FmqReader(request, _columns(request, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """See `DataSource`."""
        request = replace(understand(self.options), at_once=self.at_once)
        if request.chain:
            raise InvalidArgument(
                "an ordered topic (option chain) is not read as a stream: the progress of a stream "
                "is one position of one journal; use spark.read, or a consumer of the topic"
            )
        return FmqStreamReader(request, _columns(request, schema))


class _Push:
    """A reader's `pushFilters` that Spark does not recognise as overridden.

    Where push-down is switched off (Spark's default), Spark refuses a reader that overrides the
    method, by looking at `__func__`; where it is on, Spark calls it.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: "FmqReader") -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        self._reader.narrow(filters)
        return filters


class FmqReader(DataSourceReader):
    """The reader of a batch query."""

    def __init__(self, request: Request, columns: tuple[str, ...]) -> None:
        self._request = request
        self._columns = columns
        self._filters: list[Filter] = []
        self.pushFilters = _Push(self)  # type: ignore[method-assign]

    def narrow(self, filters: list[Filter]) -> None:
        """Read only what these filters may let pass, if Spark forgets that with the query."""
        if APART or self._request.filters_once:
            self._filters = filters

    def partitions(self) -> Sequence[TaskPartition]:
        """See `DataSourceReader`."""
        if self._request.chain:
            plan = plan_ordered(self._request, self._narrowed)
            print_notices(plan.notices)
            return ordered_partitions(plan.tasks)
        found = self._request.survey()
        print_notices(found.notices)
        return partitions(
            self._request.cut(found, self._narrowed(self._request.wanted_in(found), found))
        )

    def _narrowed(self, wanted: Wanted, found: Survey) -> Wanted:
        """Return what the query's filters leave of `wanted`."""
        if any(_column(one) == "topic" for one in self._filters):
            add_topic_names(found)
        for one in self._filters:
            wanted = narrowed(wanted, one, found)
        return wanted

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """See `DataSourceReader`."""
        return read(partition, self._columns, self._request.fields)


def narrowed(wanted: Wanted, one: Filter, found: Survey) -> Wanted:
    """Return what is left of `wanted` under a filter; an unknown filter changes nothing."""
    name = _column(one)
    if name == "topic":
        values = _values(one)
        if values is None:
            return wanted
        if not values.issubset(found.names.values()):
            return wanted  # nothing is left out of a group that is unknown
        ids = frozenset(i for i, topic in found.names.items() if topic in values)
        return replace(wanted, topics=ids if wanted.topics is None else wanted.topics & ids)
    if name == "queue":
        values = _values(one)
        if values is None:
            return wanted
        queues = frozenset(value for value in values if isinstance(value, int))
        return replace(wanted, queues=queues if wanted.queues is None else wanted.queues & queues)
    field = {"offset": "offsets", "position": "positions", "store_time": "store_ms"}.get(name)
    within = _range(one) if field else None
    if field is None or within is None:
        return wanted
    return replace(wanted, **{field: getattr(wanted, field).cut(within)})


def _column(one: Filter) -> str:
    """Return the column that a filter is about; "" if it is not a simple one."""
    column: tuple[str, ...] = getattr(one, "attribute", ())
    return ".".join(column)


def _values(one: Filter) -> frozenset[Any] | None:
    match one:
        case EqualTo() | EqualNullSafe():
            return frozenset([one.value])
        case In():
            return frozenset(one.value)
        case _:
            return None


def _range(one: Filter) -> Range | None:
    """Return the least range that holds all that pass; None if there is none."""
    match one:
        case EqualTo() | EqualNullSafe():
            values = [one.value]
        case In():
            values = list(one.value)
        case GreaterThan() | GreaterThanOrEqual():
            first = _at_least(one.value, above=isinstance(one, GreaterThan))
            return None if first is None else Range(first=first)
        case LessThan() | LessThanOrEqual():
            end = _at_least(one.value, above=isinstance(one, LessThanOrEqual))
            return None if end is None else Range(end=min(end, NO_END))
        case _:
            return None
    numbers = [number for value in values if (number := _at_least(value)) is not None]
    return Range(min(numbers), max(numbers) + 1) if numbers else None


def _at_least(value: object, *, above: bool = False) -> int | None:
    """Return the least integer (of a time: milliseconds) not below, or above, `value`."""
    if isinstance(value, datetime):
        return to_ms(value) + (above and value.microsecond % 1000 == 0)
    return value + above if isinstance(value, int) else None


def _types(request: Request) -> dict[str, DataType]:
    ordered = _ORDERED_TYPES if request.chain else {}
    return _TYPES | ordered | {each.column: _KINDS[each.kind] for each in request.fields}


def _type(types: dict[str, DataType], name: str) -> DataType:
    if name not in types:
        raise InvalidArgument(f"unknown column {name!r}: use {', '.join(types)}")
    return types[name]


def _columns(request: Request, schema: StructType) -> tuple[str, ...]:
    """Return the names of the schema's columns.

    Raises `InvalidArgument` for no column, one named twice, unknown, or of another type.
    """
    if not schema.fields:  # Arrow knows no rows without columns: there would be none to count
        raise InvalidArgument(
            'the schema has no columns: name one, like "offset long", or leave the schema out'
        )
    types = _types(request)
    twice = sorted(name for name, times in Counter(schema.fieldNames()).items() if times > 1)
    if twice:
        raise InvalidArgument(f"column {twice[0]} is named more than once: name it once")
    for field in schema.fields:
        kind = _type(types, field.name)
        if field.dataType != kind:
            raise InvalidArgument(
                f"column {field.name} is {kind.simpleString()}, "
                f"not {field.dataType.simpleString()}: cast the column after reading"
            )
    return tuple(schema.fieldNames())
