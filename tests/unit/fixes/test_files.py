import stat

import pytest

from promptlint.errors import UserError
from promptlint.fixes import files


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


def _edit(path, old, new):
    original = files.read(path)
    files.write_all({path: (original, original.text.replace(old, new))})


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbfa = 'x'\n",
        "# -*- coding: latin-1 -*-\na = 'x'  # caf\xe9\n".encode("latin-1"),
        b"a = 'x'\r\nb = 2\nc = 3\r\n",
        b"a = 'x'",
        "# \u2028 \u00e9 \U0001f600\na = 'x'\n".encode(),
    ],
    ids=["mark", "cookie", "mixed line ends", "no last line end", "beyond ASCII"],
)
def test_only_the_edited_bytes_change(tmp_path, data):
    path = tmp_path / "a.py"
    path.write_bytes(data)
    _edit(path, "'x'", "'yy'")
    assert path.read_bytes() == data.replace(b"'x'", b"'yy'")
    assert _names(tmp_path) == ["a.py"]


def test_permissions_and_links_stay(tmp_path):
    target = tmp_path / "real.py"
    target.write_text("a = 'x'\n")
    target.chmod(0o751)
    link = tmp_path / "link.py"
    link.symlink_to("real.py")
    _edit(link, "'x'", "'y'")
    assert link.is_symlink()
    assert target.read_text() == "a = 'y'\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o751


def test_a_character_that_the_encoding_lacks_is_refused(tmp_path):
    path = tmp_path / "a.py"
    path.write_bytes(b"# coding: ascii\na = 'x'\n")
    with pytest.raises(UserError, match="ascii has no 'é'"):
        _edit(path, "'x'", "'é'")
    assert path.read_bytes() == b"# coding: ascii\na = 'x'\n"


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "a.py"
    path.write_bytes(b"a = '\xff'\n")
    with pytest.raises(UserError, match="not valid utf-8"):
        files.read(path)


def test_a_file_that_changed_meanwhile_stops_all_writes(tmp_path):
    one, two = tmp_path / "a.py", tmp_path / "b.py"
    one.write_text("a = 1\n")
    two.write_text("b = 1\n")
    changes = {path: (files.read(path), "c = 2\n") for path in (one, two)}
    two.write_text("b = 3\n")
    with pytest.raises(UserError, match="changed while"):
        files.write_all(changes)
    assert one.read_text() == "a = 1\n"
    assert _names(tmp_path) == ["a.py", "b.py"]


def test_when_one_file_cannot_be_replaced_the_others_get_their_text_back(tmp_path, monkeypatch):
    one, two = tmp_path / "a.py", tmp_path / "b.py"
    one.write_text("a = 1\n")
    two.write_text("b = 1\n")
    changes = {path: (files.read(path), "c = 2\n") for path in (one, two)}
    replace = type(one).replace

    def failing(self, target):
        if target.name == "b.py":
            raise OSError(28, "No space left on device", str(target))
        return replace(self, target)

    monkeypatch.setattr(type(one), "replace", failing)
    with pytest.raises(UserError, match="No space left"):
        files.write_all(changes)
    assert one.read_text() == "a = 1\n"
    assert two.read_text() == "b = 1\n"
    assert _names(tmp_path) == ["a.py", "b.py"]


def test_an_interrupted_write_leaves_no_file_half_done(tmp_path, monkeypatch):
    one, two = tmp_path / "a.py", tmp_path / "b.py"
    one.write_text("a = 1\n")
    two.write_text("b = 1\n")
    changes = {path: (files.read(path), "c = 2\n") for path in (one, two)}
    replace = type(one).replace

    def interrupted(self, target):
        if target.name == "b.py":
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(type(one), "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write_all(changes)
    assert (one.read_text(), two.read_text()) == ("a = 1\n", "b = 1\n")
    assert _names(tmp_path) == ["a.py", "b.py"]


def test_a_file_that_changes_at_the_last_moment_is_left_to_who_changed_it(tmp_path, monkeypatch):
    one, two = tmp_path / "a.py", tmp_path / "b.py"
    one.write_text("a = 1\n")
    two.write_text("b = 1\n")
    changes = {path: (files.read(path), "c = 2\n") for path in (one, two)}
    replace = type(one).replace

    def meanwhile(self, target):
        if target.name == "a.py":
            two.write_text("b = 3\n")
        return replace(self, target)

    monkeypatch.setattr(type(one), "replace", meanwhile)
    with pytest.raises(UserError, match=r"b\.py: changed while"):
        files.write_all(changes)
    assert (one.read_text(), two.read_text()) == ("a = 1\n", "b = 3\n")


def test_what_cannot_be_written_is_named(tmp_path, monkeypatch):
    path = tmp_path / "a.py"
    path.write_text("a = 1\n")

    def full(**given):
        raise OSError(28, "No space left on device", str(tmp_path / ".a.py.x.tmp"))

    monkeypatch.setattr("tempfile.mkstemp", full)
    with pytest.raises(UserError, match=r"a\.py: cannot be written: No space left"):
        _edit(path, "1", "2")
