"""Files of a host that is reached by SSH, as a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.checksums import crc_to_hex
from jupyter_sky.machines.storage.stores.errors import SkyChecksumMismatch
from jupyter_sky.machines.storage.stores.file_parts import VERSION_HEADER, file_url
from jupyter_sky.machines.storage.stores.files import FILES_CAPABILITY, FileUpload
from jupyter_sky.machines.storage.stores.part_worker import PartJob, SignWrite
from jupyter_sky.machines.storage.stores.ssh_channel import SCHEME, host_request, open_channel
from jupyter_sky.machines.storage.stores.ssh_host import find_host, install_worker, module_command
from jupyter_sky.machines.storage.stores.ssh_messages import (
    AbortUpload,
    BeginUpload,
    ComputeSums,
    EndUpload,
    FindParts,
    ListPage,
    Remove,
    Stat,
)
from jupyter_sky.machines.storage.stores.ssh_server import decode_upload, encode_upload
from jupyter_sky.machines.storage.stores.store import (
    ALWAYS,
    Checksums,
    Condition,
    Part,
    PartRequest,
    Span,
    Store,
    StoreDefaults,
    StoredObject,
    Upload,
    part_span,
)
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.machines.storage.stores.worker_process import Report, WorkerProcess


class SshStore(StoreDefaults):
    """The files of a host; keys are paths without their first ``/``.

    Parameters
    ----------
    uri
        Any address of the host.
    """

    capability = FILES_CAPABILITY

    def __init__(self, uri: StorageUri) -> None:
        self.uri = replace(uri, key="")

    @property
    def host(self) -> str:
        """Host as the address names it."""
        return self.uri.bucket

    def stat(self, key: str) -> StoredObject:
        """Return size and version of a file."""
        return StoredObject(*open_channel(self.host).ask(Stat(key)).object)

    def sums(self, key: str) -> Mapping[str, str]:
        """Return the checksums of a file, computed on its host."""
        return open_channel(self.host).ask(ComputeSums(key)).sums

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoredObject]:
        """Yield files in the order of their keys, by pages."""
        cursor = 0
        while True:
            page = open_channel(self.host).ask(ListPage(prefix, after, cursor))
            yield from (StoredObject(*each) for each in page.objects)
            if not (cursor := page.cursor):
                return

    def read(self, obj: StoredObject, span: Span | None = None) -> PartRequest:
        """Return a request that reads a span of this version."""
        headers = {VERSION_HEADER: obj.version}
        return PartRequest("GET", self._url(f"/{obj.key}"), headers, span or Span(0, obj.size))

    def begin(
        self,
        key: str,
        size: int,
        *,
        part_size: int = 0,
        condition: Condition = ALWAYS,
        upload_id: str = "",
    ) -> Upload:
        """Begin a file beside its final name; see `FilesStore.begin`."""
        operation = BeginUpload(key, size, part_size, asdict(condition), upload_id)
        begun = open_channel(self.host).ask(operation)
        return SshUpload(self, decode_upload(begun.upload))

    def end(self, upload: Upload, parts: Sequence[Part]) -> StoredObject:
        """Bring the file to the disk and give it its name, in one step."""
        assert isinstance(upload, SshUpload)
        for part in parts:
            if part.crc32c is not None and part.tag != crc_to_hex(part.crc32c):
                raise SkyChecksumMismatch(
                    _("{host} has written other bytes of {key} than were sent").format(
                        host=self.host, key=upload.key
                    )
                )
        listed = [(p.number, p.span.start, p.span.stop, p.crc32c) for p in parts]
        ended = open_channel(self.host).ask(EndUpload(encode_upload(upload.file), listed))
        return StoredObject(*ended.object)

    def remove(self, keys: Iterable[str]) -> None:
        """Delete files."""
        open_channel(self.host).ask(Remove([*keys]))

    def can_copy_from(self, other: Store) -> bool:
        """Files are copied as part of a transfer, by a process of the host."""
        return False

    def start_worker(self, report: Report) -> HostWorker:
        """Start a worker on the host: what it moves does not pass through this machine."""
        return HostWorker(report, self.host)

    def _url(self, path: str) -> str:
        return f"{SCHEME}{self.host}{path}"


@dataclass(frozen=True, slots=True)
class SshUpload:
    """A file of a host that is being written; see `Upload`."""

    store: SshStore
    file: FileUpload

    @property
    def key(self) -> str:
        """Key of the object."""
        return self.file.key

    @property
    def id(self) -> str:
        """Name by which the upload goes on; empty for files of one part."""
        return self.file.id

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return self.file.size

    @property
    def part_size(self) -> int:
        """Bytes of each part but the last."""
        return self.file.part_size

    @property
    def condition(self) -> Condition:
        """Condition that the host checks when the file gets its name."""
        return self.file.condition

    def write(self, number: int, sums: Checksums) -> PartRequest:
        """Return a request that writes a part."""
        request = self.file.write(number, sums)
        path = request.url.removeprefix(file_url(""))
        return replace(request, url=f"{SCHEME}{self.store.host}{path}")

    def have(self) -> dict[int, Part]:
        """Return the parts that are written, after comparing each with its checksum there."""
        answer = open_channel(self.store.host).ask(FindParts(encode_upload(self.file)))
        return {
            number: Part(number, part_span(number, self.size, self.part_size), crc, tag)
            for number, crc, tag in answer.parts
        }

    def copy(self, number: int, source: Store, obj: StoredObject) -> Part:
        """Files have no copy without passing through their host."""
        raise NotImplementedError

    def abort(self) -> None:
        """Remove what has been written."""
        open_channel(self.store.host).ask(AbortUpload(encode_upload(self.file)))


class HostWorker(WorkerProcess):
    """Worker on a host of ``ssh:`` addresses, which reads and writes its own files.

    Parameters
    ----------
    report
        Takes the outcome of each job.
    authority
        Host as an address names it.
    """

    def __init__(self, report: Report, authority: str) -> None:
        command = install_worker(find_host(authority))
        self._own = f"{SCHEME}{authority}/"
        module = "jupyter_sky.machines.storage.stores.worker_process"
        super().__init__(report, module_command(command, module))

    def submit(self, job: PartJob, sign_write: SignWrite) -> None:
        """Send a job, with addresses as the host itself has them."""
        sign = partial(self._sign, sign_write)
        super().submit(replace(job, read=self._translate(job.read)), sign)

    def _sign(self, sign_write: SignWrite, sums: Checksums) -> PartRequest:
        return self._translate(sign_write(sums))

    def _translate(self, request: PartRequest) -> PartRequest:
        return host_request(request) if request.url.startswith(self._own) else request
