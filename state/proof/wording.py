"""What a criterion is about, by its words, in the languages most are written in: lists to add to, no grammar.

Each rule that depends on one is mild where a list is wrong: a round is lost, or a judge is left to see it.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from donewhen.state.pattern import pattern


class _AnyOf:
    """Whole words, of which `*` is any ending, or characters of scripts without spaces. Compiled at the first use."""

    def __init__(self, words: str, unspaced: str = "") -> None:
        self._words = words.casefold().split()
        self._unspaced = unspaced.split()

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        spaced = "|".join(re.escape(word).replace("_", " ").replace(r"\*", r"[^\W_]*") for word in self._words)
        wide = "".join(rf"|{word}" for word in self._unspaced)
        return re.compile(rf"(?<![^\W_])(?:{spaced})(?![^\W_]){wide}")

    def within(self, text: str) -> bool:
        """Whether one of them stands in a text, which is folded."""
        return self._pattern.search(text) is not None

    def all_in(self, text: str) -> Iterator[re.Match[str]]:
        """Where they stand in a text."""
        return self._pattern.finditer(text)


_DENIALS = frozenset(
    re.split(
        " ",
        "not no never none neither nor without cannot isnt arent wasnt werent dont doesnt didnt cant couldnt wont "
        "nicht kein keine keinen keiner nie niemals ohne pas jamais aucun aucune sans ne nunca ningún ninguna sin "
        "non mai senza não nem sem niet geen нет не ни без 不 没 沒 无 無 未 非",
    )
)
_NAMES = pattern(r"`[^`]*`|\"[^\"]*\"|“[^”]*”|\S+\.\w{1,6}(?![\w.])")
_ALL = _AnyOf(
    "all every each none no only entire* whole complete* total* sum count number_of how_many largest biggest smallest "
    "highest lowest greatest longest shortest oldest maximum minimum max min overall average mean median unique "
    "alle* jede* kein* nur größte* kleinste* höchste* niedrigste* längste* gesamt* summe anzahl insgesamt "
    "tous toutes chaque aucun* seul* plus_grand* plus_petit* nombre somme moyenne "
    "todos todas cada ningun* ningún solo sólo mayor* menor* suma número promedio tutti tutte todos toda tutta",
    "所有 全部 每 最 唯一 总 只 一共 共有 平均 すべて 全て 最大 最小 合計 のみ 모든 전체 가장",
)
_SUMMED = _AnyOf(
    "total* count* sum* max* min* average mean median passed failed failures error* warnings rows matches results "
    "found none all every no exit* ok summary largest smallest highest lowest only "
    "gesamt* summe anzahl alle keine bestanden insgesamt tous toutes aucun somme nombre todos todas suma ningún",
    "总 共 合计 合計 全部 没有 最",
)
"""Words by which a tool itself says something of the whole."""
_FAILING = _AnyOf(
    "fail* error* gone missing absent delet* remov* denied denies refus* reject* forbidden unauthori* invalid "
    "unavailable unreachable down crash* exception* raises raised reproduc* timeout* timed_out expired non-zero "
    "exit_code whether fehl* scheiter* gelöscht* entfernt* verweiger* abgelehnt* ungültig* unerreichbar* ob "
    "échou* erreur* supprim* refusé* absent* invalide* si fall* error* eliminad* borrad* rechazad* inválid*",
    "失败 失敗 错误 錯誤 删除 不存在 拒绝 拒絶 无效 エラー 削除 是否 かどうか",
)
_STATUS = pattern(r"(?:status|code|http|returns?|answers?|with|mit|liefert|antwortet|返回)\W{0,3}[45]\d\d(?!\d)")
_THERE = _AnyOf(
    "exist* there found present available longer anymore reachable accessible listed vorhanden* mehr gefunden* "
    "existe* trouvé* disponible* plus encontr* está",
    "存在 找到 有 ない",
)
_NOW = _AnyOf(
    "contain* exist* now current* up_to_date there_is there_are match* equal* enthält existiert jetzt aktuell* "
    "contient maintenant contiene ahora",
    "包含 存在 现在 現在 含",
)
_STATE = _AnyOf(
    "hold* has have is_set says shows includ* list* pass* valid empty steht hat existe tiene",
    "有 ある",
)
_THEN = _AnyOf(
    "was were old previous* before original* first former* initial* earlier known noted identified looked "
    "alte* vorher* war waren früher* bisher* bekannt ancien* avant était anterior* antes era",
    "旧 之前 原 以前 前の 元の",
)
_DEED = _AnyOf(
    "sent mailed emailed notified informed refunded paid ordered booked reserved cancelled canceled published "
    "posted uploaded submitted transferred deployed issued scheduled merged pushed gesendet verschickt versandt "
    "geschickt erstattet* erstattung bezahlt bestellt gebucht storniert veröffentlicht hochgeladen benachrichtigt "
    "überwiesen envoyé* remboursé* payé* commandé* réservé* annulé* publié* enviad* reembolsad* pagad* pedid* "
    "reservad* cancelad* publicad* inviat* rimborsat* pagat*",
    "发送 已发 退款 支付 订购 预订 取消 发布 送信 返金 支払 注文 予約 公開",
)
_EDIT = _AnyOf(
    "created written saved updated changed edited modified deleted removed moved renamed added replaced fixed "
    "installed closed set_to geschrieben erstellt angelegt gespeichert aktualisiert geändert gelöscht entfernt "
    "verschoben umbenannt hinzugefügt ersetzt behoben eingetragen créé* écrit* enregistré* modifié* supprimé* "
    "déplacé* renommé* ajouté* mis_à_jour corrigé* cread* escrit* guardad* actualizad* modificad* eliminad* "
    "borrad* movid* renombrad* añadid* corregid*",
    "创建 写入 保存 更新 修改 删除 移动 重命名 添加 修复 作成 変更 削除 移動 追加 修正",
)
_IF = _AnyOf(
    "if when where unless needed necessary whether wenn falls sofern nötig si sinon nécessaire cuando necesario",
    "如果 若 場合 必要",
)
_PEOPLE = _AnyOf(
    "user* customer* person approv* confirm* agree* consent* answer* chose chosen decision nutzer* benutzer* kunde* "
    "bestätig* zugestimmt* antwort* utilisateur* client* confirmé* usuario* cliente* confirmad*",
    "用户 客户 确认 同意 ユーザー 確認",
)
_ANNOUNCED = _AnyOf(
    "i_will i'll i_am_going_to i'm_going_to let_me i'm_on_it will_do ich_werde ich_kümmere lass_mich lassen_sie_mich "
    "je_vais je_m'en laissez-moi laisse-moi voy_a déjame déjeme me_encargo vou deixe-me lo_farò fammi",
    "我会 我將 我将 我来 我這就 我这就 让我 讓我 します いたします 하겠습니다 할게요",
)
_CUT = pattern(
    r"\"(?:truncated|is_truncated|has_more|hasMore|more)\"\s*:\s*true"
    r"|\"(?:next|next_page|next_cursor|next_offset|next_page_token|nextPageToken|nextCursor|cursor)\"\s*:\s*(?!null|\"\"|false)\S"
    r"|more follows|the rest was not kept|(?:characters|bytes|lines) left out|\[\W*truncated\W*\]|\(truncated\)"
    r"|\band (?:[\d,]+|many) more\b|\b[\d,]+ more (?:rows|lines|results|items|files|entries)\b",
    re.IGNORECASE,
)
_RANGE = pattern(
    r"\b(?:showing|shown|displaying|page|first)\W+(?:[\d,]+\s*[-–]\s*)?([\d,]+) of (?:about )?([\d,]+)", re.IGNORECASE
)
_ANNOUNCEMENT, _BEGINS = 200, 30
"""Characters: an announcement is short, and says soon that it is one."""
_ENDS = 1_000
"""Characters at either end of an output in which a tool says that it cut it."""


def denies(words: Iterable[str]) -> bool:
    """Whether there is a denial among these tokens."""
    return not _DENIALS.isdisjoint(words)


def _plain(text: str) -> str:
    return _NAMES.sub(" ", text).casefold()


def about_all(criterion: str) -> bool:
    """Whether it says something of all there is: the largest, none, a total."""
    return _ALL.within(_plain(criterion))


def sums_up(quote: str) -> bool:
    """Whether the words quoted speak of the whole themselves, such as `"count": 437` or `12 passed`."""
    return _SUMMED.within(quote.casefold().replace("_", " "))


def announces(text: str) -> bool:
    """Whether a reply says of itself that something will be done, such as “Sure, I'll rename it.”, and nothing else."""
    said = " ".join(text.casefold().replace("’", "'").split())
    return len(said) <= _ANNOUNCEMENT and "let me know" not in said and _ANNOUNCED.within(said[:_BEGINS])


def about_failure(criterion: str) -> bool:
    """Whether an error may prove it: it says that something is gone or goes wrong, or asks whether."""
    text = _plain(criterion)
    if _STATUS.search(text):
        return True
    for found in _FAILING.all_in(text):
        before = _last_words(text[: found.start()])
        if not denies(before) and not {"0", "zero"}.intersection(before):
            return True
    return any(denies(_last_words(text[: found.start()])) for found in _THERE.all_in(text))


def _last_words(text: str) -> list[str]:
    return [word.replace("'", "").replace("’", "") for word in re.findall(r"[\w'’]+", text)[-3:]] + list(text[-2:])


def about_now(criterion: str) -> bool:
    """Whether it speaks of a state that must still be so, and not of what was seen or was so before."""
    text = _plain(criterion)
    return _NOW.within(text) or (_STATE.within(text) and not _THEN.within(text))


def about_people(criterion: str) -> bool:
    """Whether what a person said can prove it."""
    return _PEOPLE.within(_plain(criterion))


def about_change(criterion: str) -> bool:
    """Whether it says that something was done to the world, without an if."""
    text = _plain(criterion)
    return (_DEED.within(text) or _EDIT.within(text)) and not _IF.within(text)


def about_deed(criterion: str) -> bool:
    """Whether what was done leaves no state of itself to read: sent, paid, ordered."""
    return _DEED.within(_plain(criterion))


def same_change(criterion: str, quote: str) -> bool:
    """Whether both speak of the same change, such as `refunded` and `"status": "refunded"`."""
    return not _changes(_plain(criterion)).isdisjoint(_changes(quote.casefold().replace("_", " ")))


def _changes(text: str) -> set[str]:
    return {found[0][:6] for words in (_DEED, _EDIT) for found in words.all_in(text)}


def says_cut(text: str) -> bool:
    """Whether a tool says of its output that there is more."""
    ends = text if len(text) <= 2 * _ENDS else f"{text[:_ENDS]}\n{text[-_ENDS:]}"
    ranges = [[int(number.replace(",", "")) for number in found.groups()] for found in _RANGE.finditer(ends)]
    return bool(_CUT.search(ends)) or any(shown < there for shown, there in ranges)
