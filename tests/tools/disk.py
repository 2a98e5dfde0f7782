"""What a disk may hold when the power goes: what was synced, and any part of what was not, in any order."""
import dataclasses

SECTOR = 512  # bytes that are written whole or not at all


class Folder(dict):
    """name -> Folder or File, by identity."""
    __hash__ = object.__hash__


class File:
    def __init__(self, data=b""):
        self.data = bytearray(data)


@dataclasses.dataclass
class Change:
    """One recorded call: what it does, to which folders or file, and from where in the record on it is safe."""
    what: str
    owners: tuple  # what must be synced for it to be safe
    fields: tuple
    safe_from: int = 1 << 60  # how many changes there were once it was synced

    @property
    def is_data(self):
        return self.what in ("write", "truncate")


def folder_of(path):
    """What stands in a folder of this machine."""
    return Folder({entry.name: folder_of(entry) if entry.is_dir() else File(entry.read_bytes()) for entry in path.iterdir()})


def write_folder(folder, path):
    path.mkdir()
    for name, entry in folder.items():
        if isinstance(entry, Folder):
            write_folder(entry, path / name)
        else:
            (path / name).write_bytes(entry.data)


def fingerprint(folder):
    return tuple(sorted((name, fingerprint(entry) if isinstance(entry, Folder) else bytes(entry.data)) for name, entry in folder.items()))


class Record:
    """The changes below `root`, read from what the preloaded library recorded; `start` is what stood there before."""

    def __init__(self, lines, root, start):
        self.root, self.start = str(root), start
        self.changes = []
        self.twins = {}  # what stands in the final state -> its beginnings, so that each replay has objects of its own
        top = self.copy_of(start)
        for line in lines:
            self.add(top, *line.split("\t"))
        self.top = top

    def copy_of(self, folder):
        out = Folder()
        for name, entry in folder.items():
            out[name] = self.copy_of(entry) if isinstance(entry, Folder) else File(entry.data)
            self.twins[out[name]] = entry
        self.twins[out] = folder
        return out

    def find(self, top, path):
        """(folder, name) of a path below root; None of one elsewhere."""
        if not path.startswith(self.root + "/"):
            return None
        *folders, name = path[len(self.root) + 1:].split("/")
        for part in folders:
            top = top[part]
        return top, name

    def add(self, top, what, path, *rest):
        if what == "sync":
            self.sync(top, path)
        elif place := self.find(top, path):
            self.add_change(top, what, place, rest)

    def add_change(self, top, what, place, rest):
        folder, name = place
        if what in ("write", "truncate"):
            values = (int(rest[0]), bytes.fromhex(rest[1])) if what == "write" else (int(rest[0]),)
            change = Change(what, (folder[name],), values)
        elif what in ("create", "mkdir"):
            change = Change(what, (folder,), (folder, name, File() if what == "create" else Folder()))
        elif what == "remove":
            change = Change(what, (folder,), (folder, name))
        else:
            there, new_name = self.find(top, rest[0])
            change = Change(what, (folder, there), (folder, name, folder[name], there, new_name, there.get(new_name)))
        self.changes.append(change)
        apply(change, lambda entry: entry)

    def sync(self, top, path):
        place = self.find(top, path)
        synced = top if path == self.root else place and place[0].get(place[1])
        self.changes.append(Change("sync", (), ()))
        for change in self.changes:
            if any(owner is synced for owner in change.owners):
                change.safe_from = min(change.safe_from, len(self.changes))

    def replay(self, end, survives):
        """The disk after `end` changes, of those that were not synced by then what survives(change) says: True, False or "torn"."""
        objects = {}

        def here(entry):
            """This replay's own object for the recorded one."""
            if entry not in objects:
                beginning = self.twins.get(entry)
                objects[entry] = Folder() if isinstance(entry, Folder) else File(beginning.data if beginning else b"")
                if isinstance(entry, Folder) and beginning is not None:
                    objects[entry].update({name: here(child) for name, child in self.entries_at_start(entry)})
            return objects[entry]

        top = here(self.top)
        for change in self.changes[:end]:
            fate = change.safe_from <= end or survives(change)
            if fate:
                apply(change, here, is_torn=fate == "torn")
        return top

    def entries_at_start(self, folder):
        children = {id(beginning): entry for entry, beginning in self.twins.items()}
        return [(name, children[id(child)]) for name, child in self.twins[folder].items()]


def apply(change, here, is_torn=False):
    """Makes a change to what here() gives for its objects. One that finds nothing to change, since another was lost, is lost too."""
    if change.what == "sync":
        return
    if change.is_data:
        data = here(change.owners[0]).data
        if change.what == "truncate":
            size, = change.fields
            data[size:] = b""
            data.extend(bytes(size - len(data)))
            return
        offset, written = change.fields
        if is_torn:
            written = written[:len(written) // 2 // SECTOR * SECTOR]
        data.extend(bytes(max(0, offset + len(written) - len(data))))
        data[offset:offset + len(written)] = written
        return
    folder, name, *rest = change.fields
    folder = here(folder)
    if change.what in ("create", "mkdir"):
        folder[name] = here(rest[0])
    elif name in folder and change.what == "remove":
        del folder[name]
    elif change.what != "remove":
        # What moved is known by itself and not by its name, which may speak of something else where a change before was lost.
        moved, there, new_name, other = rest
        here(there)[new_name] = here(moved)
        if change.what == "exchange":
            folder[name] = here(other)
        elif change.what == "rename":
            folder.pop(name, None)
