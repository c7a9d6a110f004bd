"""Folders that appear whole or not at all."""

import multiprocessing
import os
import signal

import pytest

from rfgp._support import files


def test_a_folder_takes_its_name_in_the_end(tmp_path):
    path = tmp_path / "folder"
    with files.whole_folder(path) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("text")
        assert not path.exists()
    assert (path / "inner" / "file").read_text() == "text" and list(tmp_path.iterdir()) == [path]


def test_an_older_folder_is_replaced(tmp_path):
    path = tmp_path / "folder"
    for text in ("old", "new"):
        with files.whole_folder(path) as folder:
            (folder / text).write_text(text)
    assert [entry.name for entry in path.iterdir()] == ["new"] and list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_older_folder(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").write_text("old")
    with pytest.raises(RuntimeError, match="on the way"), files.whole_folder(path) as folder:
        (folder / "new").write_text("new")
        raise RuntimeError("on the way")
    assert [entry.name for entry in path.iterdir()] == ["old"] and list(tmp_path.iterdir()) == [path]


def killed(path):
    with files.whole_folder(path) as folder:
        (folder / "file").write_text("text")
        os.kill(os.getpid(), signal.SIGKILL)


def test_folders_of_killed_processes_are_cleared(tmp_path):
    path = tmp_path / "folder"
    process = multiprocessing.get_context("fork").Process(target=killed, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL and not path.exists() and len(list(tmp_path.iterdir())) == 1
    with files.whole_folder(path) as folder:
        (folder / "file").write_text("text")
    assert list(tmp_path.iterdir()) == [path]


def test_folders_of_living_processes_stay(tmp_path):
    path = tmp_path / "folder"
    with files.whole_folder(path) as folder:
        with files.whole_folder(path) as other:
            (other / "file").write_text("other")
        assert folder.exists()
        (folder / "file").write_text("last")
    assert (path / "file").read_text() == "last"
