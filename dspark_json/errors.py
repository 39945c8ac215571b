"""Every error a user can meet.

Each class has a stable ``code`` (what scripts and runbooks match on), and each message says what happened, on which
thing, and what to do next: ``DSPARK_JSON_UNKNOWN_OPTION: "maxOfsetsPerTrigger" is not an option. Did you mean …?``

::

    DSparkJsonError
     ├── OptionError
     │    ├── UnknownOptionError        DSPARK_JSON_UNKNOWN_OPTION
     │    ├── InvalidOptionError        DSPARK_JSON_INVALID_OPTION
     │    └── MissingOptionError        DSPARK_JSON_MISSING_OPTION
     ├── SpoolError
     │    ├── SpoolNotFoundError        DSPARK_JSON_SPOOL_NOT_FOUND
     │    ├── SpoolPermissionError      DSPARK_JSON_SPOOL_PERMISSION
     │    ├── SpoolFormatError          DSPARK_JSON_SPOOL_FORMAT
     │    ├── SpoolCorruptError         DSPARK_JSON_SPOOL_CORRUPT
     │    ├── SpoolWriteError           DSPARK_JSON_SPOOL_WRITE
     │    ├── SpoolReplacedError        DSPARK_JSON_SPOOL_REPLACED
     │    ├── SpoolElsewhereError       DSPARK_JSON_SPOOL_ELSEWHERE
     │    ├── LaneNotFoundError         DSPARK_JSON_LANE_NOT_FOUND
     │    ├── RecordsExpiredError       DSPARK_JSON_RECORDS_EXPIRED
     │    └── BeyondEndError            DSPARK_JSON_BEYOND_END
     ├── EndpointError
     │    ├── EndpointUnreachableError  DSPARK_JSON_ENDPOINT_UNREACHABLE
     │    ├── ServerEndedError          DSPARK_JSON_SERVER_ENDED
     │    ├── ListenError               DSPARK_JSON_LISTEN
     │    ├── EndpointAnswerError       DSPARK_JSON_ENDPOINT_ANSWER
     │    ├── EndpointKeyError          DSPARK_JSON_ENDPOINT_KEY
     │    └── LoadBalancerError         DSPARK_JSON_LOAD_BALANCER
     ├── OffsetError                    DSPARK_JSON_OFFSET
     ├── DataLossError                  DSPARK_JSON_DATA_LOSS
     ├── SourceOnlyError                DSPARK_JSON_SOURCE_ONLY
     ├── SchemaError                    DSPARK_JSON_SCHEMA
     ├── ContentSchemaError             DSPARK_JSON_CONTENT_SCHEMA
     ├── SchemaLocationError            DSPARK_JSON_SCHEMA_LOCATION
     ├── SchemaChangedError             DSPARK_JSON_SCHEMA_CHANGED
     ├── MalformedRecordError           DSPARK_JSON_MALFORMED_RECORD
     ├── RecordedLineError              DSPARK_JSON_RECORDED_LINE
     ├── EngineUnavailableError         DSPARK_JSON_ENGINE_UNAVAILABLE
     ├── EngineFailedError              DSPARK_JSON_ENGINE_FAILED
     ├── DeviceError                    DSPARK_JSON_DEVICE
     ├── DeploymentError                DSPARK_JSON_DEPLOYMENT
     ├── MissingPackageError            DSPARK_JSON_MISSING_PACKAGE
     ├── WorkerError
     │    ├── WorkerStartError          DSPARK_JSON_WORKER_START
     │    ├── WorkerVersionError        DSPARK_JSON_WORKER_VERSION
     │    ├── WorkerDiedError           DSPARK_JSON_WORKER_DIED
     │    └── StreamUnknownError        DSPARK_JSON_STREAM_UNKNOWN
     ├── ConnectorMissingError          DSPARK_JSON_CONNECTOR_MISSING
     └── InternalError                  DSPARK_JSON_INTERNAL
"""

from __future__ import annotations

from typing import ClassVar


class DSparkJsonError(Exception):
    """Base of all errors of this package; ``str()`` gives ``CODE: what happened. What to do.``"""

    code: ClassVar[str] = "DSPARK_JSON_ERROR"

    def __init__(self, message: str, *, remedy: str = "") -> None:
        """``message`` says what happened and on which thing; ``remedy`` says what to do next."""
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}"
        return f"{text.rstrip('.')}. {self.remedy}" if self.remedy else text

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles errors between processes; keyword-only arguments need help to survive that.
        return (_rebuild, (type(self), self.message, self.remedy, self.__dict__.copy()))


def _rebuild(cls: type[DSparkJsonError], message: str, remedy: str, state: dict[str, object]) -> DSparkJsonError:
    error = cls.__new__(cls)
    DSparkJsonError.__init__(error, message, remedy=remedy)
    error.__dict__.update(state)
    return error


class OptionError(DSparkJsonError):
    """An option of the reader or of the hook can't be taken as given."""

    code = "DSPARK_JSON_OPTION"


class UnknownOptionError(OptionError):
    """No option has this name; the message names the closest one that exists."""

    code = "DSPARK_JSON_UNKNOWN_OPTION"


class InvalidOptionError(OptionError):
    """The option exists, its value is not allowed; the message says what is."""

    code = "DSPARK_JSON_INVALID_OPTION"


class MissingOptionError(OptionError):
    """An option that is needed was not given."""

    code = "DSPARK_JSON_MISSING_OPTION"


class SpoolError(DSparkJsonError):
    """Something about a spool folder or one of its lanes."""

    code = "DSPARK_JSON_SPOOL"


class SpoolNotFoundError(SpoolError):
    """There is no spool in this folder (no ``spool.json``)."""

    code = "DSPARK_JSON_SPOOL_NOT_FOUND"


class SpoolPermissionError(SpoolError):
    """The operating system does not let this user read or write the spool."""

    code = "DSPARK_JSON_SPOOL_PERMISSION"


class SpoolFormatError(SpoolError):
    """A file of the spool is not what its name says, or is of another format version."""

    code = "DSPARK_JSON_SPOOL_FORMAT"


class SpoolCorruptError(SpoolError):
    """Records inside the spool are missing or their bytes don't match their checksum."""

    code = "DSPARK_JSON_SPOOL_CORRUPT"


class SpoolWriteError(SpoolError):
    """The spool could not take a record (disk full, read-only, folder gone)."""

    code = "DSPARK_JSON_SPOOL_WRITE"


class SpoolReplacedError(SpoolError):
    """The folder or server now holds another spool (another ``spool_id``) than the one asked for."""

    code = "DSPARK_JSON_SPOOL_REPLACED"


class SpoolElsewhereError(SpoolError):
    """A task runs on another machine than the driver, where the folder or ``localhost`` is not the driver's."""

    code = "DSPARK_JSON_SPOOL_ELSEWHERE"


class LaneNotFoundError(SpoolError):
    """The spool has no lane of this name."""

    code = "DSPARK_JSON_LANE_NOT_FOUND"


class RecordsExpiredError(SpoolError):
    """The records asked for are below what retention has kept; ``first`` is the oldest one still there."""

    code = "DSPARK_JSON_RECORDS_EXPIRED"

    def __init__(self, message: str, *, first: int, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.first = first


class BeyondEndError(SpoolError):
    """The records asked for have not been written (yet); ``next`` is the number the next record will get."""

    code = "DSPARK_JSON_BEYOND_END"

    def __init__(self, message: str, *, next_seq: int, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.next = next_seq


class EndpointError(DSparkJsonError):
    """Something about a server asked over HTTP."""

    code = "DSPARK_JSON_ENDPOINT"


class ListenError(EndpointError):
    """A server of this package can't listen where it should."""

    code = "DSPARK_JSON_LISTEN"


class EndpointUnreachableError(EndpointError):
    """Nobody answers there, or not in time."""

    code = "DSPARK_JSON_ENDPOINT_UNREACHABLE"


class ServerEndedError(EndpointError):
    """A server that a command of this package started has ended by itself; the message has its last words."""

    code = "DSPARK_JSON_SERVER_ENDED"


class EndpointAnswerError(EndpointError):
    """Somebody answers, but not as the hook does."""

    code = "DSPARK_JSON_ENDPOINT_ANSWER"


class EndpointKeyError(EndpointError):
    """The hook's key is missing or wrong."""

    code = "DSPARK_JSON_ENDPOINT_KEY"


class LoadBalancerError(EndpointError):
    """One address answers for several spools in turn: a load balancer, where each replica must be listed."""

    code = "DSPARK_JSON_LOAD_BALANCER"


class OffsetError(DSparkJsonError):
    """An offset (from a checkpoint or from ``startingOffsets``) can't be understood."""

    code = "DSPARK_JSON_OFFSET"


class DataLossError(DSparkJsonError):
    """Records that the stream had yet to read are gone, and ``failOnDataLoss`` is true."""

    code = "DSPARK_JSON_DATA_LOSS"


class SourceOnlyError(DSparkJsonError):
    """Somebody writes with ``format("dspark-json")``, which can only be read."""

    code = "DSPARK_JSON_SOURCE_ONLY"


class SchemaError(DSparkJsonError):
    """The schema given for the rows does not fit the rows this source has."""

    code = "DSPARK_JSON_SCHEMA"


class ContentSchemaError(DSparkJsonError):
    """A content schema (JSON Schema or DDL) can't be turned into a column type."""

    code = "DSPARK_JSON_CONTENT_SCHEMA"


class SchemaLocationError(DSparkJsonError):
    """The folder of ``schemaLocation`` can't be read or written, or holds the types of another query."""

    code = "DSPARK_JSON_SCHEMA_LOCATION"


class SchemaChangedError(DSparkJsonError):
    """The server has seen a schema with new fields, and ``schemaEvolutionMode`` says that the query ends then."""

    code = "DSPARK_JSON_SCHEMA_CHANGED"


class MalformedRecordError(DSparkJsonError):
    """A record or the content of an answer can't be read as declared, and ``mode`` is FAILFAST."""

    code = "DSPARK_JSON_MALFORMED_RECORD"


class RecordedLineError(DSparkJsonError):
    """A line of a file of recorded answers or exchanges that none can be made of."""

    code = "DSPARK_JSON_RECORDED_LINE"


class EngineUnavailableError(DSparkJsonError):
    """The parse engine that was required can't run here."""

    code = "DSPARK_JSON_ENGINE_UNAVAILABLE"


class EngineFailedError(DSparkJsonError):
    """The parse engine failed at a record; the message names it."""

    code = "DSPARK_JSON_ENGINE_FAILED"


class DeviceError(DSparkJsonError):
    """The memory of a GPU can't be allocated, opened or copied."""

    code = "DSPARK_JSON_DEVICE"


class DeploymentError(DSparkJsonError):
    """A service that runs model servers refuses a deployment, or what it runs has failed."""

    code = "DSPARK_JSON_DEPLOYMENT"


class MissingPackageError(DSparkJsonError):
    """A package that this command or option needs is not installed."""

    code = "DSPARK_JSON_MISSING_PACKAGE"


class WorkerError(DSparkJsonError):
    """Something about the Python process that works for the JVM connector; raised on the JVM's side, mostly."""

    code = "DSPARK_JSON_WORKER"


class WorkerStartError(WorkerError):
    """The worker process did not start; the message has the command that was tried and what it said."""

    code = "DSPARK_JSON_WORKER_START"


class WorkerVersionError(WorkerError):
    """The connector's jar and the worker's Python have two versions of dspark-json."""

    code = "DSPARK_JSON_WORKER_VERSION"


class WorkerDiedError(WorkerError):
    """Worker processes died again and again in one read, which got no further."""

    code = "DSPARK_JSON_WORKER_DIED"


class StreamUnknownError(WorkerError):
    """The worker does not know a stream of the JVM's: another worker had it. The connector opens it again."""

    code = "DSPARK_JSON_STREAM_UNKNOWN"


class ConnectorMissingError(DSparkJsonError):
    """The JVM connector's jar is not part of this installation."""

    code = "DSPARK_JSON_CONNECTOR_MISSING"


class InternalError(DSparkJsonError):
    """A fault of this package, in a worker process; its log has the traceback."""

    code = "DSPARK_JSON_INTERNAL"
