"""Which file is meant, when the one named is not there or none was named: found where that is clear, else asked."""

import difflib
from collections.abc import Callable

from donewhen.agent.offline.desk import Desk, Stuck
from donewhen.agent.offline.findings import objects
from donewhen.agent.offline.reading import Reply
from donewhen.agent.offline.words import pick, quoted

MOST_LISTED = 500
MOST_OPTIONS = 8


def open_file(desk: Desk, path: str, call: Callable[[str], Reply]) -> tuple[str, Reply]:
    """The reply of a call on a file, after finding out which file is meant if there is none of this name."""
    reply = call(path)
    if reply.ok:
        return path, reply
    desk.used.remove(reply)
    found = meant(desk, path, reply)
    reply = call(found)
    if not reply.ok:
        raise Stuck(reply.text.strip())
    return found, reply


def all_paths(desk: Desk, pattern: str = "*") -> list[str]:
    """The files of the workspace, as list_files gives them."""
    reply = desk.call("list_files", path=".", pattern=pattern, limit=MOST_LISTED)
    desk.used.remove(reply)
    if not reply.ok:
        raise Stuck(reply.text.strip())
    text, _ = desk.whole(reply)
    return [str(entry["path"]) for entry, _ in objects(text, "path") if "bytes" in entry]


def meant(desk: Desk, path: str, reply: Reply) -> str:
    """The file that is meant by a path where a call on it failed. Raises Stuck if it failed for another reason."""
    paths = all_paths(desk)
    if path.removeprefix("./") in paths:
        raise Stuck(reply.text.strip())
    name = path.rpartition("/")[2].casefold()
    same = [p for p in paths if p.rpartition("/")[2].casefold() == name]
    if len(same) == 1:
        return same[0]
    names = {p.rpartition("/")[2].casefold(): p for p in reversed(paths)}
    near = [names[n] for n in difflib.get_close_matches(name, names, n=MOST_OPTIONS, cutoff=0.6)]
    kin = [p for p in paths if "." in name and p.casefold().endswith(name[name.rindex(".") :])]
    options = list(dict.fromkeys([*same, *near, *kin]))[:MOST_OPTIONS]
    if not options:
        raise Stuck(pick(desk.chinese, f"There is no file {quoted(path)} here.", f"这里没有文件 {quoted(path)}。"))
    question = pick(
        desk.chinese,
        f"There is no file {quoted(path)} here. Which one do you mean?",
        f"这里没有文件 {quoted(path)}。你指的是哪一个？",
    )
    if same:
        question = pick(
            desk.chinese,
            f"There are several files named {quoted(name)}. Which one do you mean?",
            f"有多个名为 {quoted(name)} 的文件。你指的是哪一个？",
        )
    return desk.ask(question, options)


def some_table(desk: Desk) -> str:
    """The CSV to work on where none was named: the only one, or the one the user chooses."""
    paths = all_paths(desk, "*.csv")
    if not paths:
        raise Stuck(pick(desk.chinese, "There is no CSV file here.", "这里没有 CSV 文件。"))
    if len(paths) == 1:
        return paths[0]
    return desk.ask(pick(desk.chinese, "Which CSV file should I use?", "要用哪个 CSV 文件？"), paths[:MOST_OPTIONS])


def folder(desk: Desk, path: str, call: Callable[[str], Reply]) -> tuple[str, Reply]:
    """The reply of a call on a folder, after finding out which is meant if there is none of this name."""
    reply = call(path)
    if reply.ok:
        return path, reply
    desk.used.remove(reply)
    parents = {"/".join(parts[:n]) for p in all_paths(desk) for parts in [p.split("/")] for n in range(1, len(parts))}
    name = path.rstrip("/").rpartition("/")[2].casefold()
    names = {p.rpartition("/")[2].casefold(): p for p in sorted(parents, reverse=True)}
    same = sorted(p for p in parents if p.rpartition("/")[2].casefold() == name and p != path)
    near = [names[n] for n in difflib.get_close_matches(name, names, n=MOST_OPTIONS, cutoff=0.6)]
    options = list(dict.fromkeys([*same, *near]))[:MOST_OPTIONS]
    if not options or path in parents:
        raise Stuck(
            pick(desk.chinese, f"There is no folder {quoted(path)} here.", f"这里没有文件夹 {quoted(path)}。")
            if not options
            else reply.text.strip()
        )
    question = pick(
        desk.chinese,
        f"There is no folder {quoted(path)} here. Which one do you mean?",
        f"这里没有文件夹 {quoted(path)}。你指的是哪一个？",
    )
    found = same[0] if len(same) == 1 else desk.ask(question, options)
    reply = call(found)
    if not reply.ok:
        raise Stuck(reply.text.strip())
    return found, reply
