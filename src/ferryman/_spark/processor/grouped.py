"""`groupBy(...).transformWithState(...)` and its like, with Spark's names and arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import GroupedData
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from ferryman._engine.operator_spec import OperatorSpec, TimeSpec
from ferryman._model.errors import FerrymanError, InvalidConfiguration, NotOnStream, OperatorFailed
from ferryman._operator.cells import tables_of
from ferryman._spark.api.column_names import find_name
from ferryman._spark.compat.session import size_in_bytes
from ferryman._spark.plan.schema import declared_struct, parse_ddl, to_arrow
from ferryman._spark.plan.user_code import Shared, pickled, unpickled
from ferryman._spark.processor.group_state import GroupStateProcessor, time_mode
from ferryman._spark.processor.initial_state import initial_rows
from ferryman._spark.processor.input_frames import Batches
from ferryman._spark.processor.processor_handle import Recorder
from ferryman._spark.processor.processor_runner import INITIAL, ProcessorRunner
from ferryman._state.earlier_columns import ANY
from ferryman._state.keys import KeySchema

if TYPE_CHECKING:
    from ferryman._spark.api.keyed import KeyedStream
    from ferryman._spark.api.stream import Stream

_TIME_MODES = {"none": "None", "processingtime": "ProcessingTime", "eventtime": "EventTime"}
_EXTENSION_TYPES = "spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype"
_BY_NAME = "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName"
# What Spark takes for no limit in bytes.
_NO_LIMIT = 2**31 - 1
# Those that are always called.
_METHODS = ("init", "handleInputRows", "close")
_OUTPUT_MODES = {"append": "Append", "update": "Update", "complete": "Complete"}


class GroupedStream:
    """A stream grouped by key, as `DataFrame.groupBy` gives it: what Spark's stateful operators are called on."""

    def __init__(self, keyed: KeyedStream) -> None:
        self._keyed = keyed

    def transformWithState(
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: GroupedData | None = None,
        eventTimeColumnName: str = "",
        *,
        name: str | None = None,
    ) -> Stream:
        """Run a `StatefulProcessor` on rows, as `GroupedData.transformWithState` does.

        Parameters
        ----------
        statefulProcessor, outputStructType, outputMode, timeMode, initialState, eventTimeColumnName
            As for Spark.
        name
            The operator's name in the checkpoint; the processor's class name if left out.
        """
        return self._transform(
            False, statefulProcessor, outputStructType, outputMode, timeMode, initialState, eventTimeColumnName, name
        )

    def transformWithStateInPandas(
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: GroupedData | None = None,
        eventTimeColumnName: str = "",
        *,
        name: str | None = None,
    ) -> Stream:
        """Run a `StatefulProcessor` on pandas frames, as `GroupedData.transformWithStateInPandas` does.

        The parameters are those of `transformWithState`.
        """
        return self._transform(
            True, statefulProcessor, outputStructType, outputMode, timeMode, initialState, eventTimeColumnName, name
        )

    def applyInPandasWithState(
        self,
        func: Callable[..., Any],
        outputStructType: StructType | str,
        stateStructType: StructType | str,
        outputMode: str,
        timeoutConf: str,
        *,
        name: str | None = None,
    ) -> Stream:
        """Call a function on the rows of each key with a `GroupState`, as `GroupedData.applyInPandasWithState` does.

        Parameters
        ----------
        func, outputStructType, stateStructType, outputMode, timeoutConf
            As for Spark.
        name
            The operator's name in the checkpoint; the function's own name if left out, and `function` for a lambda.
        """
        label = name or _label(getattr(func, "__name__", "function"))
        mode = time_mode(timeoutConf, label)
        state = parse_ddl(stateStructType, f"operator {label!r}, stateStructType")
        parent = self._keyed.parent
        processor = GroupStateProcessor(
            func, state, timeoutConf, parent.schema.names, watermark=parent.event_time is not None
        )
        return self._transform(True, processor, outputStructType, outputMode, mode, None, "", label)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(GroupedData, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        key = ", ".join(map(repr, self._keyed.names))
        raise NotOnStream(
            f"a grouped stream has no {name!r}. Write stream.key_by({key}).aggregate(...) with what "
            f"ferryman.aggregates has, or an operator: stream.key_by({key}).process(MyOperator)."
        )

    def _event_time(self, name: str, output: StructType, label: str) -> str:
        """Find the output's column of event time as Spark does; none for an empty name."""
        found = find_name(name, output.names, exactly=self._keyed.parent.case_sensitive) or name
        if found and found not in output.names:
            raise InvalidConfiguration(
                f"operator {label!r}: eventTimeColumnName={found!r} is not a column of its output, which has "
                f"{', '.join(output.names)}. Name the output's column of event time."
            )
        if found and output[found].dataType not in (TimestampType(), TimestampNTZType()):
            raise InvalidConfiguration(
                f"operator {label!r}: eventTimeColumnName={found!r} is of type "
                f"{output[found].dataType.simpleString()}, and event time is a timestamp. Declare it as one."
            )
        return found

    def _transform(
        self,
        pandas: bool,
        processor: StatefulProcessor,
        output_type: StructType | str,
        output_mode: str,
        time_mode: str,
        initial: GroupedData | None,
        event_time: str,
        name: str | None,
    ) -> Stream:
        label = name or _label(type(processor).__name__)
        mode = _checked(label, processor, output_mode, time_mode)
        output = declared_struct(output_type, label)
        event_time = self._event_time(event_time, output, label)
        packed, shared = _packed(processor, label)
        recorder = Recorder(label, mode, self._keyed.names)
        # On a copy: what `init` leaves in the object must not travel to the tasks.
        _rehearse(unpickled(packed, shared), recorder, label)
        declared = tuple(recorder.declared.values())
        keyed = self._keyed
        # As for Spark, rows without a key have a group of their own.
        variables = [state.variable() for state in declared]
        tables, due = tables_of(label, keyed.key, variables, timers=mode != "none", nulls=True)
        # Spark refuses to go on with other modes too.
        settings = {"timeMode": mode, "outputMode": output_mode.lower()}
        tables = (replace(tables[0], settings=settings), *tables[1:])
        keyed.check(label, tables[0].state)
        arrow = to_arrow(output)
        start = None if initial is None else initial_rows(initial, keyed, label)
        runner = ProcessorRunner(
            processor=packed,
            pandas=pandas,
            key=keyed.said,
            input=tuple(keyed.parent.schema.names),
            declared=declared,
            state=tables[0].state,
            output=arrow,
            time_mode=mode,
            initial=start is not None,
            timezone=_timezone(keyed),
            group_state=isinstance(processor, GroupStateProcessor),
            event_time=event_time if event_time and keyed.parent.event_time is not None else None,
            deleted=frozenset(recorder.deleted),
            batches=_batches(keyed),
            by_name=not pandas or _by_name(keyed, label),
            shared=shared,
        )
        # Spark's event time begins in 1970.
        by_watermark = mode == "eventtime"
        time = TimeSpec(due=due, by_watermark=by_watermark, since_ms=0 if by_watermark else None)
        inputs = to_arrow(keyed.parent.schema)
        if start is not None:
            inputs = inputs.append(pa.field(INITIAL, to_arrow(start.schema).field(INITIAL).type))
        key = KeySchema(keyed.key, nulls=True)
        # As with Spark, a field that a schema leaves out is given up.
        given_up = (*recorder.deleted.values(), *(f"{state.stored}.{ANY}" for state in declared))
        spec = OperatorSpec(
            name=label, key=key, input=inputs, tables=tables, output=arrow, runner=runner, time=time, dropped=given_up
        )
        return keyed.operated(spec, output, event_time=event_time or None, initial=start)


def _label(own: str) -> str:
    """Give a name for files to a function or class that may be called anything in Python.

    Examples
    --------
    >>> _label("Counting"), _label("Zähler"), _label("<lambda>")
    ('Counting', 'Z_e4_hler', 'function')
    """
    return re.sub(r"[^A-Za-z0-9_]", lambda letter: f"_{ord(letter[0]):x}_", own) if own.isidentifier() else "function"


def _checked(label: str, processor: Any, output_mode: str, time_mode: str) -> str:
    """Check what Spark checks, and give the time mode in lower case."""
    faults = []
    # As for Spark, it need not be derived from StatefulProcessor.
    lacks = [method for method in _METHODS if not callable(getattr(processor, method, None))]
    if lacks or isinstance(processor, type):
        faults.append(
            f"statefulProcessor={processor!r}: give an object of a class derived from StatefulProcessor, "
            + (f"with the methods {', '.join(lacks)}" if lacks else "not the class")
        )
    # Spark refuses the last for a function alone.
    modes = [mode for mode in _OUTPUT_MODES if mode != "complete" or not isinstance(processor, GroupStateProcessor)]
    if str(output_mode).lower() not in modes:
        faults.append(
            f"outputMode={output_mode!r}: give {', '.join(repr(_OUTPUT_MODES[allowed]) for allowed in modes)}"
        )
    if str(time_mode).lower() not in _TIME_MODES:
        faults.append(f"timeMode={time_mode!r}: give {', '.join(map(repr, _TIME_MODES.values()))}")
    if faults:
        raise InvalidConfiguration.of([f"operator {label!r}: {fault}" for fault in faults])
    return time_mode.lower()


def _rehearse(processor: StatefulProcessor, recorder: Recorder, label: str) -> None:
    """Call what declares the states; on the driver, where nothing runs yet."""
    doing = "init"
    try:
        processor.init(recorder)
        doing = "close"
        processor.close()
    except FerrymanError:
        raise
    except Exception as error:
        known = ", ".join(recorder.declared) or "none"
        raise OperatorFailed(
            f"operator {label!r} raised {type(error).__name__}: {error} in `{doing}`, which is called once on the "
            f"driver to find out which states it declares (so far: {known}). Nothing was started. Fix the processor; "
            "what only the workers have must not be needed there to declare states."
        ) from error


def _timezone(keyed: KeyedStream) -> str:
    ferry = keyed.parent.ferry
    zone = ferry.spark.conf.get("spark.sql.session.timeZone") if ferry is not None else None
    return zone or "UTC"


def _batches(keyed: KeyedStream) -> Batches:
    """Read how large Spark lets a frame get."""
    ferry = keyed.parent.ferry
    if ferry is None:
        return Batches()
    rows = int(ferry.spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch", None) or 0)
    said = ferry.spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch", None) or str(_NO_LIMIT)
    size = size_in_bytes(ferry.spark, said)
    return Batches(rows if rows > 0 else None, size if 0 < size < _NO_LIMIT else None)


def _by_name(keyed: KeyedStream, label: str) -> bool:
    """Read how Spark is set to convert frames, and refuse what is not done here."""
    ferry = keyed.parent.ferry
    if ferry is None:
        return True
    if ferry.spark.conf.get(_EXTENSION_TYPES, "false") == "true":
        raise InvalidConfiguration(
            f"operator {label!r}: the session has {_EXTENSION_TYPES}=true, and frames do not have those types here. "
            f'Unset it before ferry.stream (spark.conf.unset("{_EXTENSION_TYPES}")); whole numbers beside nulls are '
            "floats then, as is Spark's default."
        )
    return ferry.spark.conf.get(_BY_NAME, "true") == "true"


def _packed(processor: StatefulProcessor, label: str) -> tuple[bytes, Shared]:
    try:
        return pickled(processor)
    except Exception as error:
        raise InvalidConfiguration(
            f"operator {label!r}: the processor cannot be sent to Spark's workers ({type(error).__name__}: {error}). "
            "Open connections, locks and the like in `init`, not in the constructor."
        ) from error
