"""Files that are written and read with the rights of this user lie where no other can exchange them."""

import grp
import os
import pwd
import stat
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from testbed.machine.files import (
    append_text,
    directory_lock,
    lock_file,
    make_directory,
    read_whole,
    remove,
    write_whole,
)
from testbed.machine.walk import is_alone, place
from tests.other_user import NO_FILES, OTHER, doing, done, given, need_root, plant, yard
from topologies.errors import MachineError

Act = Callable[[Path], object]


def locked(folder: Path) -> None:
    """Have a directory to oneself."""
    with directory_lock(folder):
        pass


ACTS: dict[str, Act] = {
    "write": lambda folder: write_whole(folder / "run.json", "{}"),
    "append": lambda folder: append_text(folder / "run.json", "{}\n"),
    "read": lambda folder: read_whole(folder / "run.json"),
    "lock": locked,
    "lock file": lambda folder: os.close(lock_file(folder / "run.json")),
}
of_each = pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)


@pytest.fixture
def ground() -> Iterator[Path]:
    """Make a directory that all can enter."""
    with yard() as path:
        yield path


@pytest.fixture
def theirs(ground: Path) -> Path:
    """Make a directory of another user."""
    need_root()
    (ground / "theirs").mkdir()
    return given(ground / "theirs")


def made(folder: Path) -> Path:
    """Make a directory with a file of this user."""
    folder.mkdir(mode=0o755)
    (folder / "run.json").write_text("{}")
    return folder


@of_each
def test_what_belongs_to_another_user_is_refused_and_a_copy_is_not(act: Act, theirs: Path) -> None:
    (theirs / "run.json").touch()
    with pytest.raises(MachineError, match=rf"{theirs} belongs to user {OTHER}, who .*; give a copy of your"):
        act(theirs)
    assert [path.name for path in theirs.iterdir()] == ["run.json"]
    assert (theirs / "run.json").stat().st_size == 0
    subprocess.run(["cp", "-r", theirs, theirs.parent / "copy"], check=True)
    act(theirs.parent / "copy")


@of_each
def test_a_directory_of_ones_own_in_another_users_is_used(act: Act, theirs: Path) -> None:
    act(made(theirs / "mine"))


@of_each
@pytest.mark.parametrize("mode", [0o757, 0o777, 0o1777])
def test_a_directory_that_others_may_write_is_refused_until_the_advice_is_followed(
    act: Act, mode: int, ground: Path
) -> None:
    shared = made(ground / "shared")
    shared.chmod(mode)
    with pytest.raises(MachineError, match=f"other users may write {shared}, and could") as refused:
        act(shared)
    if mode & stat.S_ISVTX:
        assert str(refused.value).endswith(
            f"; begin anew with --out in another directory, such as {shared}/NAME"
        )
        act(made(shared / "NAME"))
    else:
        assert f"chmod go-w {shared}" in str(refused.value)
        shared.chmod(mode & ~0o022)
        act(shared)


@pytest.fixture
def own_group(ground: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a directory of a user behind sudo that his group may write, which is his alone."""
    need_root()
    people_are(monkeypatch, {"ann": OTHER})
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    shared = made(ground / "shared")
    given(shared / "run.json")
    yield given(shared, 0o775)
    is_alone.cache_clear()


def people_are(
    monkeypatch: pytest.MonkeyPatch, primary: dict[str, int], members: tuple[str, ...] = ()
) -> None:
    """Have the system know users by their primary groups, and who else is in the first one's group."""
    is_alone.cache_clear()
    users = [
        pwd.struct_passwd((name, "x", OTHER - number, group, "", "/", "/bin/sh"))
        for number, (name, group) in enumerate(primary.items())
    ]
    first = grp.struct_group((users[0].pw_name, "x", users[0].pw_gid, [*members]))
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    monkeypatch.setattr(pwd, "getpwuid", {user.pw_uid: user for user in users}.__getitem__)
    monkeypatch.setattr(grp, "getgrgid", {first.gr_gid: first}.__getitem__)


@of_each
def test_a_group_may_write_if_it_is_this_users_alone(
    act: Act, own_group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    act(own_group)
    people_are(monkeypatch, {"ann": OTHER}, members=("ann",))
    act(own_group)


@of_each
@pytest.mark.parametrize("who", ["a member", "a primary group", "another name", "no name", "group 0"])
def test_a_group_that_is_somebody_elses_too_may_not_write(
    who: str, act: Act, own_group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if who == "a member":
        people_are(monkeypatch, {"ann": OTHER}, members=("ann", "bob"))
    elif who == "a primary group":
        people_are(monkeypatch, {"ann": OTHER, "bob": OTHER})
    elif who == "another name":
        people_are(monkeypatch, {"staff": OTHER, "bob": OTHER - 1})
        os.chown(own_group, OTHER - 1, OTHER)
        monkeypatch.setenv("SUDO_UID", str(OTHER - 1))
    elif who == "no name":
        os.chown(own_group, OTHER, OTHER - 1)
    else:
        monkeypatch.undo()
        os.chown(own_group, 0, 0)
    own_group.chmod(0o775)
    with pytest.raises(MachineError, match=f"other users may write {own_group}"):
        act(own_group)


RIGHTS = st.integers(0, 7)
NOBODY = 2**32 - 1


@for_all(user=RIGHTS, group=RIGHTS, named=RIGHTS, mask=RIGHTS, of_file=st.booleans())
def test_what_a_list_of_access_lets_another_user_write_is_refused(
    user: int, group: int, named: int, mask: int, of_file: bool
) -> None:
    need_root()
    entries = [
        (0x01, 7, NOBODY),
        (0x02, user, OTHER),
        (0x04, group, NOBODY),
        (0x08, named, OTHER),
        (0x10, mask, NOBODY),
        (0x20, 0, NOBODY),
    ]
    with yard() as ground:
        folder = made(ground / "folder")
        place = folder / "run.json" if of_file else folder
        packed = [struct.pack("<HHI", *entry) for entry in entries]
        try:
            os.setxattr(place, "system.posix_acl_access", struct.pack("<I", 2) + b"".join(packed))
        except OSError:
            pytest.skip("this file system keeps no lists of access")
        writes = (lambda: place.write_text("his")) if of_file else (place / "new").touch
        if user & mask & 2 and (of_file or user & mask & 1):
            assert done(writes)
            with pytest.raises(MachineError, match=f"other users may write {place}"):
                append_text(folder / "run.json", "")
            place.chmod(place.stat().st_mode & ~0o022)  # as advised
        if not mask & 2:
            append_text(folder / "run.json", "")


def test_a_list_of_access_of_a_group_that_is_this_users_alone_is_looked_at(own_group: Path) -> None:
    entries = [(1, 7, NOBODY), (2, 7, OTHER - 1), (4, 7, NOBODY), (0x10, 7, NOBODY), (0x20, 5, NOBODY)]
    packed = [struct.pack("<HHI", *entry) for entry in entries]
    append_text(own_group / "run.json", "")
    try:
        os.setxattr(own_group, "system.posix_acl_access", struct.pack("<I", 2) + b"".join(packed))
    except OSError:
        pytest.skip("this file system keeps no lists of access")
    with pytest.raises(MachineError, match=f"other users may write {own_group}"):
        append_text(own_group / "run.json", "")


@pytest.mark.parametrize("name", ["SUDO_UID", "SUDO_GID"])
@pytest.mark.parametrize("text", ["abc", "", "1.5", "-5", "99999999999", "4294967295", "1_0", " 7", "\u0663"])
def test_a_user_behind_sudo_that_is_no_number_is_a_sentence(
    name: str, text: str, ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_root()
    monkeypatch.setenv("SUDO_UID", "0")
    monkeypatch.setenv(name, text)
    with pytest.raises(
        MachineError, match=f"{name} is .*, which is not the number of a user or a group; unset"
    ):
        write_whole(made(ground / "folder") / "new", "")
    assert [path.name for path in (ground / "folder").iterdir()] == ["run.json"]


@of_each
@pytest.mark.parametrize("target", ["relative", "absolute"])
def test_a_link_is_followed_where_nobody_else_can_have_put_it(act: Act, target: str, ground: Path) -> None:
    real = made(ground / "real")
    (ground / "link").symlink_to("real" if target == "relative" else real)
    act(ground / "link")


@of_each
@pytest.mark.parametrize("who", ["theirs", "sticky", "group"])
def test_a_link_that_another_user_can_exchange_is_refused(
    act: Act, who: str, theirs: Path, ground: Path
) -> None:
    real, above = made(ground / "real"), theirs
    if who != "theirs":
        above = ground / "above"
        above.mkdir()
        above.chmod(0o1777 if who == "sticky" else 0o775)
        os.chown(above, 0, OTHER if who == "group" else 0)
    (above / "link").symlink_to(real)
    with pytest.raises(MachineError, match=r"leads over the symbolic link link, .*; give the directory that"):
        act(above / "link")
    assert (real / "run.json").read_text() == "{}"
    assert [path.name for path in real.iterdir()] == ["run.json"]


def test_nothing_is_made_behind_a_link_of_another_user(theirs: Path, ground: Path) -> None:
    (ground / "real").mkdir()
    (theirs / "link").symlink_to(ground / "real")
    given(theirs / "link")
    with pytest.raises(MachineError, match="symbolic link"):
        make_directory(theirs / "link" / "a" / "b")
    assert not make_directory(theirs / "link")
    assert not any((ground / "real").iterdir())


@pytest.mark.parametrize("kind", [*NO_FILES, "another's"])
@pytest.mark.parametrize("name", ["append", "read", "lock file"])
def test_a_file_that_is_not_a_plain_one_of_this_user_is_refused_and_replaced(
    kind: str, name: str, ground: Path
) -> None:
    folder, secret = ground / "folder", ground / "secret"
    folder.mkdir()
    secret.write_text("root alone")
    file = folder / "run.json"
    if kind == "another's":
        need_root()
        file.touch()
        given(file)
    else:
        plant(kind, file, secret)
    with pytest.raises((MachineError, OSError), match=r"not a plain file|Is a directory|belongs to"):
        ACTS[name](folder)
    if kind != "directory":
        write_whole(file, "mine")
        assert file.read_text() == "mine"
    assert secret.read_text() == "root alone"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027, 0o077])
def test_what_is_made_is_this_users_alone_to_write_and_keeps_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        make_directory(tmp_path / "a" / "b")
        write_whole(tmp_path / "a" / "b" / "whole", "")
        append_text(tmp_path / "a" / "b" / "rows", "")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    folder, file = 0o755 & ~umask, 0o644 & ~umask
    assert modes == {"a": folder, "b": folder, "whole": file, "rows": file}


def test_under_sudo_all_that_was_made_is_handed_back(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_root()
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    monkeypatch.setenv("SUDO_GID", str(OTHER))
    (ground / "home").mkdir()
    home = given(ground / "home")
    assert make_directory(home / "results" / "now")
    write_whole(home / "results" / "now" / "run.json", "{}")
    append_text(home / "results" / "now" / "rows", "1\n")
    os.close(lock_file(home / "results" / "now" / "lock"))
    owners = {path.name: path.stat()[stat.ST_UID] for path in home.rglob("*")}
    assert owners == dict.fromkeys(("results", "now", "run.json", "rows", "lock"), OTHER)
    assert read_whole(home / "results" / "now" / "run.json") == b"{}"
    monkeypatch.delenv("SUDO_UID")
    with pytest.raises(MachineError, match="belongs to"):
        read_whole(home / "results" / "now" / "run.json")


@pytest.mark.parametrize("how", ["removed", "replaced", "renamed", "a link", "another's link"])
@pytest.mark.parametrize("name", ["write", "append", "read", "make", "remove"])
def test_a_directory_that_is_held_is_the_only_one_of_its_name(how: str, name: str, tmp_path: Path) -> None:
    held, aside = made(tmp_path / "held"), tmp_path / "aside"
    act = {
        "make": lambda folder: make_directory(folder / "points" / "one"),
        "remove": lambda folder: remove(folder / "run.json"),
    }.get(name, ACTS.get(name, locked))
    with directory_lock(held):
        held.rename(aside)
        if how == "removed":
            (aside / "run.json").unlink()
            aside.rmdir()
        elif how == "replaced":
            held.mkdir()
            (held / "run.json").write_text("other")
        elif "link" in how:
            tmp_path.chmod(0o1777 if how == "another's link" else 0o700)
            (tmp_path / "elsewhere").mkdir()
            held.symlink_to(tmp_path / "elsewhere")
        there = sorted(tmp_path.rglob("*"))
        with pytest.raises(MachineError, match=f"{held} was removed, or another directory took its name"):
            act(held)
        assert sorted(tmp_path.rglob("*")) == there
    if how == "replaced":
        assert (held / "run.json").read_text() == "other"
        act(held)


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("target", ["directory", "file", "nothing", "the same"])
@pytest.mark.parametrize("name", ["write", "append", "read", "lock file", "make", "remove"])
def test_below_a_directory_that_is_held_no_link_is_followed(
    depth: int, target: str, name: str, tmp_path: Path
) -> None:
    held, victim = made(tmp_path / "held"), made(tmp_path / "victim")
    folder = held.joinpath(*"ab"[:depth])
    folder.mkdir(parents=True, exist_ok=True)
    to = {"directory": victim, "file": victim / "run.json", "the same": made(held / "real")}
    (folder / "link").symlink_to(to.get(target, tmp_path / "nothing"))
    act = {
        "make": lambda folder: make_directory(folder / "points"),
        "remove": lambda folder: remove(folder / "run.json"),
    }.get(name, ACTS.get(name, locked))
    there = sorted(tmp_path.rglob("*"))
    with directory_lock(held):
        with pytest.raises(MachineError, match=f"{folder / 'link'} is a link, or not a directory; remove it"):
            act(folder / "link")
        assert sorted(tmp_path.rglob("*")) == there
        (folder / "link").unlink()
        act(made(folder / "link"))


def exchange(run: Path, others: list[Path]) -> None:
    """Put others in the place of a directory, and it back, for ever."""
    while True:
        run.rename(run.with_name("away"))
        for other in others:
            other.rename(run)
            run.rename(other)
        run.with_name("away").rename(run)


def test_nothing_is_written_through_or_read_that_another_user_exchanges_meanwhile(
    theirs: Path, ground: Path
) -> None:
    run, false, link, secret = theirs / "run", theirs / "false", theirs / "link", ground / "secret"
    for folder in (false, secret):
        folder.mkdir()
        (folder / "rows").write_text("not to be read\n")
    link.symlink_to(secret)
    for path in (false, link, *false.iterdir()):
        given(path)
    make_directory(run)
    append_text(run / "rows", "mine\n")

    def tried(act: Callable[..., object], *what: object) -> bytes:
        try:
            found = act(*what)
        except (MachineError, OSError):
            ends.append("refused")
            return b""
        ends.append("done")
        return found if isinstance(found, bytes) else b""

    ends: list[str] = []
    with doing(lambda: exchange(run, [false, link])):
        for number in range(100_000):
            tried(write_whole, run / "whole", "mine\n")
            tried(append_text, run / "rows", "mine\n")
            found = {
                *tried(read_whole, run / "whole").splitlines(),
                *tried(read_whole, run / "rows").splitlines(),
            }
            assert found <= {b"mine"}
            if number >= 2000 and len({*ends}) == 2:
                break
    assert {*ends} == {"refused", "done"}
    kept = [path for path in theirs.iterdir() if path.lstat().st_uid == OTHER and not path.is_symlink()]
    assert len(kept) == 1, "the false one, whatever its name was when he was killed"
    for folder in (secret, *kept):
        assert [path.name for path in folder.iterdir()] == ["rows"]
        assert (folder / "rows").read_text() == "not to be read\n"


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a directory."""
    before = os.open(".", os.O_RDONLY)
    os.chdir(folder)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


NAMES = ("walk-a", "walk-b", "walk-c")
"""Of what is nowhere else, since some paths lead out of their tree."""
TARGETS = st.lists(st.sampled_from([*NAMES, "..", "."]), min_size=1, max_size=4).map("/".join)
TREES = st.lists(
    st.tuples(TARGETS, st.one_of(st.just("folder"), st.just("file"), TARGETS.map(lambda to: f">{to}"))),
    max_size=12,
)


@for_all(tree=TREES, wanted=TARGETS, absolute=st.booleans())
def test_it_leads_where_the_kernel_leads(tree: list[tuple[str, str]], wanted: str, absolute: bool) -> None:
    with TemporaryDirectory() as name, inside(Path(name)):
        for new, kind in tree:
            with suppress(OSError):  # a name is taken, or leads nowhere
                grow(Path(new), kind, Path(name))
        path = Path(name, wanted) if absolute else Path(wanted)
        assert found_by(walked, path) == found_by(opened, path)


def grow(path: Path, kind: str, base: Path) -> None:
    """Make a directory, a file, or a link, of which every second one is absolute, within a directory."""
    if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(base)):
        return
    if kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.touch(exist_ok=False)
    else:
        path.symlink_to(f"{base}/{kind[1:]}" if len(kind) % 2 else kind[1:])


def found_by(way: Callable[[Path], int], path: Path) -> object:
    """Return the directory that is found at a path, or the kernel's error."""
    try:
        descriptor = way(path)
    except OSError as error:
        return error.errno
    status = os.fstat(descriptor)
    os.close(descriptor)
    return status.st_dev, status.st_ino


def walked(path: Path) -> int:
    """Walk to a directory."""
    with place(path) as descriptor:
        return os.dup(descriptor)


def opened(path: Path) -> int:
    """Have the kernel walk to it."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
