"""A sentence cut into clauses, one per thing to do; and one clause, from which rules take what they understand."""

import re
from dataclasses import dataclass

from donewhen.agent.offline.literals import ANY, PATH, Sentence
from donewhen.agent.offline.vocabulary import either, words

VERBS = """
    count list find show search grep look locate total sum average compute calculate work_out figure_out add
    get tell give determine report write save create put store append export output produce generate compile
    make record read open print display view summari[sz]e describe outline check
"""
OTHER_VERBS = """
    delete remove erase rename move copy translate send email mail post upload download install uninstall run
    execute deploy fix refactor rewrite explain compare analy[sz]e plot draw sort convert commit push build
    test schedule remind book buy order notify zip unzip change replace edit update format tweet call visit
    browse fetch clean merge guess predict improve review organi[sz]e archive encrypt train let draft compose
    do start stop
"""
QUESTIONS = "how_many how_much how_often what which where is_there are_there does do_any how"
OPERATIONS = "total sum average mean min max minimum maximum lowest highest number"
ZH_VERBS = """
    统计 计算 列出 列举 查找 搜索 寻找 找出 找到 找 查看 查询 查 显示 读取 阅读 打开 读 写入 写 保存 存 输出
    导出 生成 创建 新建 追加 总结 概括 摘要 描述 汇总 求 算 数 看 告诉 给出 得出 把 将 按 删除 移动 复制 重命名
    发送 发 翻译 下载 上传 安装 运行 执行 部署 修复 重构 解释 比较 对比 分析 画 绘制 排序 转换 提交 修改 替换
    合并 通知
"""
POLITE = """
    please also kindly just now first second(?:ly)? to can_you could_you would_you will_you i_want(?:_you)?(?:_to)?
    i'd_like(?:_you)?(?:_to)? i_need(?:_you)?(?:_to)? let's help_me
"""
ZH_POLITE = "请 先 再 也 还 麻烦 帮我 帮忙 给我 我想 我要 需要 你 能不能 能否 可以 首先 其次 同时 一下 并 要"

_VERB = words(f"{VERBS} {OTHER_VERBS} {QUESTIONS}").pattern
_POLITE = words(POLITE, ZH_POLITE).pattern
STARTS = either(
    rf"\s*(?:(?:{_POLITE})\s*)*(?:{_VERB}|(?:the )?{words(OPERATIONS).pattern})(?! (?:rows?|files?)$)",
    rf"\s*(?:(?:{_POLITE})\s*)*(?:{words('', ZH_VERBS).pattern})",
)
_ONLY_AN_OPERATION = either(
    rf"\s*(?:(?:{words(POLITE).pattern})\s+)*(?:(?:{words(VERBS).pattern}|what is|what's|what are)\s+)?(?:the\s+)?"
    rf"(?:{words(f'{VERBS} {OPERATIONS}').pattern})?\s*"
)
_GOES_ON = re.compile(
    rf"\s*(?:(?:the|all|every|each|then|in|from|under|of|by|per|grouped)\s+)*(?:{ANY}|[A-Za-z0-9_%-]+)"
    r"(?:\s+(?:files?|columns?|words?|lines?))?"
    r"(?:\s*(?:\b(?:in|of|from|by|per|for each|grouped by|under|within|inside)\b).*|\s*)"
    r"|\s*(?:in|from|under|by|per|grouped|for each|of)\b.*",
    re.IGNORECASE | re.DOTALL,
)
_ZH_GOES_ON = re.compile(
    rf"\s*(?:{ANY}|[\w-]{{1,12}}|\s|的|文件|中|里|列|数量|个数|总数|总和|平均值|最大值|最小值|合计)+"
)
_ONLY_A_FILE = either(rf"\s*(?:in|from|using|with|for|在|从|用)?\s*(?:the file )?[{PATH}]\s*(?:中|里|里面|内)?\s*")
_STRONG = re.compile(
    r"[;；。！!？\n]|\?(?=\s|$)|\.(?=\s|$)"
    r"|[,，]?\s*\b(?:and then|then|after that|afterwards|finally|and finally|next)\b[,，]?"
    r"|[,，]?(?:然后|接着|之后|最后|随后)[,，]?"
)
_WEAK = either(r"([,，、&]|\b(?:and|plus|as well as)\b|并且|并|以及|还有|同时|(?<![总求])和|与)")
_BULLET = re.compile(r"^[ \t]*(?:[-*•]|\d{1,2}[.)、])[ \t]+", re.MULTILINE)


def clauses(text: str) -> list[str]:
    """The clauses of a protected text, in order. Where `and` only joins nouns, it does not cut."""
    found: list[str] = []
    for sentence in _STRONG.split(_BULLET.sub("", text)):
        found += _weak_parts(sentence or "")
    return [clause for clause in found if re.search(rf"\w|{ANY}", clause)]


def _weak_parts(sentence: str) -> list[str]:
    first, *rest = _WEAK.split(sentence)
    parts = [first]
    for separator, part in zip(rest[::2], rest[1::2], strict=True):
        if _new_clause(parts[-1], part, separator):
            parts.append(part)
        else:
            parts[-1] += separator + part
    return parts


def _new_clause(before: str, part: str, separator: str) -> bool:
    if not re.search(rf"\w|{ANY}", part) or not re.search(rf"\w|{ANY}", before):
        return False
    if _ONLY_AN_OPERATION.fullmatch(before):
        return False
    if STARTS.match(part):
        return True
    if _ONLY_A_FILE.fullmatch(before):
        return True
    goes_on = _ZH_GOES_ON if re.search(r"[\u4e00-\u9fff]", part) and separator not in ",，&" else _GOES_ON
    return not goes_on.fullmatch(part)


@dataclass
class Clause:
    """One clause; rules take pieces out of it, and what is left was not understood."""

    sentence: Sentence
    text: str

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Cut out and give back the first match."""
        if found := pattern.search(self.text):
            self.text = f"{self.text[: found.start()]} {self.text[found.end() :]}"
        return found

    def take_all(self, pattern: re.Pattern[str]) -> list[re.Match[str]]:
        """Cut out and give back all matches."""
        found = list(pattern.finditer(self.text))
        self.text = pattern.sub(" ", self.text)
        return found

    def literals(self, span: str) -> list[str]:
        """Values of the stand-ins of one kind, in order, left where they are."""
        return [self.sentence.values[mark] for mark in re.findall(f"[{span}]", self.text)]

    def value(self, mark: str) -> str:
        """A taken piece as written: the literal behind a stand-in, or the words themselves."""
        return self.sentence.values.get(mark.strip(), self.sentence.spell(mark).strip())

    def copy(self) -> "Clause":
        """The clause for another rule to try."""
        return Clause(self.sentence, self.text)

    def left(self, fillers: re.Pattern[str]) -> str:
        """What no rule took and that is no filler: as it was written."""
        rest = fillers.sub(" ", self.text)
        return self.sentence.spell(re.sub(r"[^\w\ue000-\ue9ff%+/#@$.\-]+|(?<!\w)[.\-]+(?!\w)", " ", rest)).strip()
