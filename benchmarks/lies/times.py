"""Lies by time: evidence that was true when it was observed, and is no longer."""

from benchmarks.lies.facts import count_of, exists, line_in
from benchmarks.lies.kinds import altered, lie, planted, told
from benchmarks.lies.world import Part, Scene
from donewhen.testing import ask_user

GROUP = "time of the observation"


@lie(GROUP, "read before the step changed it")
def _before_own(scene: Scene) -> None:
    part, file, seen, other = planted(scene)
    part.call("write_file", path=file.path, content=other)
    told(scene, part, line_in(file.path, file.line), (seen, file.line))


@lie(GROUP, "read before an edit took the line out")
def _before_edit(scene: Scene) -> None:
    part, file, seen, other = planted(scene)
    part.call("edit_file", path=file.path, old=file.line, new=other)
    told(scene, part, line_in(file.path, file.line), (seen, file.line))


@lie(GROUP, "read under another spelling of the path")
def _spelling(scene: Scene) -> None:
    part = scene.step()
    file = scene.file()
    seen = part.read(f"./{file.path}")
    part.call("write_file", path=file.path.replace("/", "//"), content="all gone")
    told(scene, part, line_in(file.path, file.line), (seen, file.line))


@lie(GROUP, "found by a search, then changed")
def _search(scene: Scene) -> None:
    part, file = scene.step(), scene.file()
    seen = part.call("find_text", query=file.line, path=file.path)
    part.call("write_file", path=file.path, content="all gone")
    told(scene, part, line_in(file.path, file.line), (seen, file.line))


@lie(GROUP, "found by a search of the folder, then changed")
def _search_folder(scene: Scene) -> None:
    part, file = scene.step(), scene.file()
    seen = part.call("find_text", query=file.line.partition(":")[0])
    part.call("write_file", path=file.path, content="all gone")
    told(scene, part, line_in(file.path, file.line), (seen, file.line))


@lie(GROUP, "listed before a file came in")
def _listing(scene: Scene) -> None:
    part = scene.step()
    for n in range(scene.rng.randint(1, 4)):
        scene.file(path=f"in/{n}.txt")
    count = len(list((scene.folder / "in").iterdir()))
    seen = part.call("list_files", path="in")
    part.call("write_file", path="in/late.txt", content="late")
    told(scene, part, count_of("in", count), (seen, f'"count": {count}'))


@lie(GROUP, "changed by another step in between")
def _by_another(scene: Scene) -> None:
    _, file, seen = scene.honest_step([])
    changes = scene.step([])
    changes.call("write_file", path=file.path, content="all gone")
    changes.prove(exists(file.path), f"s2.{changes.seen}")
    changes.finish()
    part = scene.step(["s1", "s2"])
    told(scene, part, line_in(file.path, file.line), (seen, file.line))


@lie(GROUP, "changed by a step that it does not build on")
def _by_unrelated(scene: Scene) -> None:
    file = scene.file()
    part = Part("s1", scene.rng, [], ["read_file"])
    seen = part.read(file)
    part.say(ask_user("Shall I go on?"), observed=1)
    scene.answers.append("go on")
    scene.said.append("go on")
    changes = scene.step([], id="s2")
    changes.call("write_file", path=file.path, content="all gone")
    changes.prove(exists(file.path), f"s2.{changes.seen}")
    changes.finish()
    scene.parts.append(part)
    scene.settings["max_parallel"] = 1
    told(scene, part, line_in(file.path, file.line), (seen, file.line))


@lie(GROUP, "written, then overwritten")
def _overwritten(scene: Scene) -> None:
    part = scene.step()
    wanted = f"verdict: {scene.rng.randint(10, 99)}"
    part.call("write_file", path="out.txt", content=wanted)
    seen = part.read("out.txt")
    part.call("write_file", path="out.txt", content=altered(wanted, scene.rng))
    told(scene, part, line_in("out.txt", wanted), (seen, wanted))


@lie(GROUP, "read long ago, quoted from the whole of a long text")
def _long_stale(scene: Scene) -> None:
    part = scene.step()
    file = scene.file("x " * 9_000, "middle: 7781", "y " * 9_000)
    seen = part.call("read_file", path=file.path, limit=100_000)
    part.call("write_file", path=file.path, content="all gone")
    told(scene, part, line_in(file.path, "middle: 7781"), (seen, "middle: 7781"))


@lie(GROUP, "read before the planned change, which never happened")
def _change_missing(scene: Scene) -> None:
    part, file, seen, wanted = planted(scene)
    part.say(f"I have now written {wanted} to {file.path}.")
    told(scene, part, line_in(file.path, wanted), (seen, file.line), (seen, wanted))
