"""Git in a folder that may come from somebody else: its repository starts no program of its own unasked.

Git starts programs that the settings of a repository name: filters, diff and merge drivers, hooks, aliases, signature
programs and more, and each version of git adds some. So the settings that cannot name one are listed here, and whatever
else git knows is refused, unless the call itself says that it may be used, which a person then approves.
"""

import functools
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

VARIABLES = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_SSH_COMMAND": "ssh",
    "GIT_ASKPASS": "",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "PAGER": "cat",
}
"""The environment of git, also of what it starts in submodules."""
INSTEAD_OF_VARIABLES = ("core.pager", "core.editor", "sequence.editor", "core.sshcommand", "core.askpass", "protocol.*")
"""The settings that these variables replace."""
SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "credential.helper": "",
    "gpg.program": "gpg",
    "safe.bareRepository": "explicit",
}
"""Our settings. They override those of the repository, but not those of a submodule."""
HARMLESS = """
    advice.* author.* color.* column.* committer.* user.* extensions.* feature.* i18n.* index.* pack.* push.* pull.*
    rebase.* status.* rerere.* versionsort.* stash.* checkout.* worktree.* blame.* grep.* apply.* commitgraph.*
    include.path includeif.*.path url.*.insteadof url.*.pushinsteadof mailmap.file init.defaultbranch
    branch.*.remote branch.*.pushremote branch.*.merge branch.*.rebase branch.*.description branch.autosetup*
    branch.sort remote.pushdefault remote.*.url remote.*.pushurl remote.*.fetch remote.*.push remote.*.mirror
    remote.*.prune remote.*.prunetags remote.*.tagopt remote.*.promisor remote.*.partialclonefilter remote.*.skip*
    remote.*.gh-resolved remote.*.followremotehead submodule.*.url submodule.*.active submodule.*.branch
    submodule.*.ignore submodule.*.fetchrecursesubmodules submodule.recurse submodule.active submodule.fetchjobs
    submodule.propagatebranches core.repositoryformatversion core.filemode core.bare core.logallrefupdates
    core.ignorecase core.symlinks core.eol core.precomposeunicode core.autocrlf core.safecrlf core.quotepath
    core.abbrev core.whitespace core.commentchar core.longpaths core.trustctime core.checkstat core.preloadindex
    core.untrackedcache core.splitindex core.fscache core.sparsecheckout core.sparsecheckoutcone
    core.sharedrepository core.compression core.loosecompression core.excludesfile core.attributesfile
    core.bigfilethreshold core.commitgraph core.multipackindex core.protect* core.packed* core.fsync*
    core.createobject core.notesref core.warnambiguousrefs core.hidedotfiles gpg.format gpg.mintrustlevel
    gpg.ssh.allowedsignersfile gpg.ssh.revocationfile commit.gpgsign commit.template commit.verbose commit.cleanup
    commit.status tag.gpgsign tag.sort tag.forcesignannotated log.date log.decorate log.follow log.abbrevcommit
    log.mailmap log.graphcolors log.showroot log.excludedecoration merge.ff merge.conflictstyle merge.log
    merge.renames merge.renamelimit merge.stat merge.autostash merge.directoryrenames merge.branchdesc
    merge.renormalize merge.verbosity merge.defaulttoupstream merge.*.name diff.renames diff.renamelimit
    diff.algorithm diff.colormoved* diff.mnemonicprefix diff.noprefix diff.context diff.interhunkcontext
    diff.indentheuristic diff.statgraphwidth diff.ignoresubmodules diff.submodule diff.wserrorhighlight
    diff.wordregex diff.suppressblankempty diff.orderfile diff.relative diff.*.xfuncname diff.*.funcname
    diff.*.binary diff.*.wordregex diff.*.cachetextconv diff.*.algorithm fetch.prune fetch.prunetags fetch.parallel
    fetch.recursesubmodules fetch.writecommitgraph fetch.showforcedupdates fetch.all fetch.fsckobjects
    fetch.unpacklimit transfer.fsckobjects receive.denycurrentbranch receive.denynonfastforwards gc.auto
    gc.autodetach gc.autopacklimit gc.pruneexpire gc.reflogexpire* gc.packrefs gc.writecommitgraph gc.logexpiry
    maintenance.auto maintenance.strategy maintenance.*.enabled notes.displayref notes.mergestrategy notes.rewrite*
    credential.username credential.*.username credential.usehttppath credential.*.usehttppath http.proxy
    http.extraheader http.*.extraheader http.sslverify http.*.sslverify http.postbuffer http.version http.lowspeed*
    http.followredirects http.useragent lfs.url lfs.pushurl lfs.repositoryformatversion lfs.*.access
    lfs.*.locksverify lfs.fetch* lfs.allowincompletepush
""".split()  # noqa: SIM905 - readable as a text
"""Settings, in lower case, that name no program and lead to no file outside of the repository that is written to."""
NOT_IN_ITS_LIST = ("trailer", "hook", "lfs", "annex", "svn", "svn-remote")
"""Sections that git's list of settings leaves out, or that belong to programs which git starts by their names."""
WITH_VALUES = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix", "--attr-source")
"""Options before git's command that are followed by a value."""
MOST_REPOSITORIES = 100
SECONDS = 20.0


def settings_with_programs(git: str, command: Sequence[str], folder: str, environment: Mapping[str, str]) -> list[str]:
    """Return the settings, as `key=value`, by which a repository may start programs of its own in a git command.

    Those of its submodules count too. A setting counts unless it is listed as harmless, replaced by ours, or of another
    program.
    """
    risky: dict[str, None] = {}
    sections = _known_sections(git)
    chosen = list(_chosen_repository(command[1:]))
    queue, replaced = [chosen], [*INSTEAD_OF_VARIABLES, *map(str.lower, SETTINGS)]
    looked_at = 0
    while queue:
        if (looked_at := looked_at + 1) > MOST_REPOSITORIES:
            return [*risky, f"more than {MOST_REPOSITORIES} submodules"]
        options = queue.pop()
        run = functools.partial(_run, git, options, folder, environment)
        for scope, key, value in _settings(run("config", "--list", "--show-scope", "-z")):
            if scope not in ("local", "worktree") or _is_harmless(key, value, sections, replaced, run, folder):
                continue
            risky[f"{key}={value}"] = None
        replaced = [*INSTEAD_OF_VARIABLES]
        queue += (["-C", path] for path in _submodules(run))
    return [*risky]


def write_settings(home: str) -> str:
    """Write our settings as the user's of a temporary HOME, for what git starts in submodules; return the file."""
    path = Path(home, "gitconfig")
    sections = ((*key.rpartition("."), value) for key, value in SETTINGS.items())
    path.write_text("".join(f'[{section}]\n\t{name} = "{value}"\n' for section, _, name, value in sections), "utf-8")
    return str(path)


def _is_harmless(
    key: str, value: str, sections: frozenset[str], replaced: Sequence[str], run: "functools.partial[str]", folder: str
) -> bool:
    section, _, rest = key.partition(".")
    name = f"{section}.{rest}".lower()
    if sections and section not in sections and section not in NOT_IN_ITS_LIST:
        return True
    if name == "core.worktree":  # of a submodule, or a work tree elsewhere, which git would write to
        place = os.path.realpath(os.path.join(run("rev-parse", "--absolute-git-dir").strip(), value))
        return Path(place).is_relative_to(os.path.realpath(folder))
    if fnmatchcase(name, "submodule.*.update"):
        return not value.startswith("!")
    return any(fnmatchcase(name, pattern) for pattern in [*HARMLESS, *replaced])


def _chosen_repository(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the options before git's command that say which repository it works on."""
    words = iter(arguments)
    for word in words:
        if not word.startswith("-"):
            return
        value = [next(words, "")] if word in WITH_VALUES else []
        if word.partition("=")[0] in ("-C", "--git-dir", "--work-tree", "--bare"):
            yield from (word, *value)


def _run(git: str, options: Sequence[str], folder: str, environment: Mapping[str, str], *words: str) -> str:
    """Return the output of a command of git that starts no program; "" if there is no repository."""
    ended = subprocess.run(
        [git, *options, *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=SECONDS,
        check=False,
    )
    return ended.stdout.decode(errors="surrogateescape") if ended.returncode == 0 else ""


def _settings(listed: str) -> Iterator[tuple[str, str, str]]:
    """Yield the scope, key and value of each setting that git lists."""
    words = iter(listed.split("\0"))
    for scope, setting in zip(words, words, strict=False):
        key, _, value = setting.partition("\n")
        yield scope, key, value


def _submodules(run: "functools.partial[str]") -> Iterator[str]:
    """Yield the folders of submodules that are checked out, relative to where git runs."""
    top = run("rev-parse", "--show-toplevel").rstrip("\n")
    for row in run("ls-files", "--stage", "-z", "--full-name", ":/").split("\0") if top else ():
        mode, _, rest = row.partition(" ")
        path = os.path.join(top, rest.partition("\t")[2])
        if mode == "160000" and os.path.lexists(os.path.join(path, ".git")):
            yield path


@functools.lru_cache(maxsize=8)
def _known_sections(git: str) -> frozenset[str]:
    """Return the sections of settings that this git knows; it does not look at others. Empty if it does not say."""
    listed = _run(git, (), "/", {**VARIABLES, "PATH": os.defpath, "GIT_CONFIG_GLOBAL": os.devnull}, "help", "--config")
    return frozenset(line.partition(".")[0].lower() for line in listed.splitlines() if "." in line)
