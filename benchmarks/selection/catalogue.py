"""500 tools described in four languages: 52 that somebody asks for, and 448 of the kind that business systems have."""

from dataclasses import dataclass
from pathlib import Path

LANGUAGES = ("en", "zh", "ja", "ko")
TARGETS = Path(__file__).with_name("targets.txt")

VERBS = {
    "list": ("List {}.", "列出{}。", "{}を一覧にします。", "{} 목록을 보여 줍니다."),
    "get": ("Get one of the {} by its id.", "按编号获取{}。", "番号で{}を取得します。", "번호로 {}을 가져옵니다."),
    "create": ("Create new {}.", "新建{}。", "新しい{}を作成します。", "새 {}을 만듭니다."),
    "update": ("Change fields of {}.", "修改{}的字段。", "{}の項目を変更します。", "{}의 항목을 바꿉니다."),
    "delete": ("Delete {}.", "删除{}。", "{}を削除します。", "{}을 삭제합니다."),
    "search": ("Search {} by words.", "按关键词搜索{}。", "言葉で{}を検索します。", "낱말로 {}을 찾습니다."),
    "export": ("Export {} as a CSV file.", "将{}导出为CSV文件。", "{}をCSVに書き出します。", "{}을 CSV로 내보냅니다."),
    "import": ("Import {} from a file.", "从文件导入{}。", "ファイルから{}を取り込みます。", "파일에서 {}을 가져옵니다."),
    "archive": ("Archive old {}.", "归档旧的{}。", "古い{}を保管します。", "오래된 {}을 보관합니다."),
    "share": ("Share {} with a colleague.", "与同事共享{}。", "同僚と{}を共有します。", "동료와 {}을 공유합니다."),
    "approve": ("Approve {} that wait.", "批准待处理的{}。", "待っている{}を承認します。", "대기 중인 {}을 승인합니다."),
    "count": ("Count {} by status.", "按状态统计{}数量。", "状態ごとに{}を数えます。", "상태별로 {} 수를 셉니다."),
    "tag": ("Put a label on {}.", "给{}添加标签。", "{}にラベルを付けます。", "{}에 라벨을 붙입니다."),
    "copy": ("Copy {} into another project.", "将{}复制到另一个项目。", "{}を別の計画へ複写します。", "{}을 다른 프로젝트로 복사합니다."),
}  # fmt: skip
OBJECTS = {
    "invoice": ("invoices", "发票", "請求書", "청구서"),
    "order": ("orders", "订单", "注文", "주문"),
    "customer": ("customers", "客户", "顧客", "고객"),
    "supplier": ("suppliers", "供应商", "仕入先", "공급처"),
    "contract": ("contracts", "合同", "契約書", "계약서"),
    "ticket": ("support tickets", "支持工单", "問い合わせ", "문의"),
    "task": ("tasks", "任务", "作業", "작업"),
    "project": ("projects", "项目", "計画", "프로젝트"),
    "employee": ("employees", "员工", "従業員", "직원"),
    "timesheet": ("timesheets", "工时表", "勤務表", "근무표"),
    "expense": ("expense reports", "费用报销", "経費", "경비"),
    "product": ("products", "产品", "商品", "상품"),
    "price_list": ("price lists", "价目表", "価格表", "가격표"),
    "coupon": ("coupons", "优惠券", "クーポン", "쿠폰"),
    "warehouse": ("warehouses", "仓库", "倉庫", "창고"),
    "shipment": ("shipments", "货运", "出荷", "출하"),
    "review": ("reviews", "评论", "レビュー", "후기"),
    "campaign": ("campaigns", "营销活动", "キャンペーン", "캠페인"),
    "newsletter": ("newsletters", "新闻邮件", "メールマガジン", "소식지"),
    "survey": ("surveys", "问卷调查", "アンケート", "설문"),
    "meeting": ("meeting notes", "会议记录", "会議メモ", "회의록"),
    "document": ("documents", "文档", "文書", "문서"),
    "photo": ("photos", "照片", "写真", "사진"),
    "recording": ("recordings", "录音", "録音", "녹음"),
    "server": ("servers", "服务器", "サーバー", "서버"),
    "alert": ("alerts", "告警", "警報", "경보"),
    "release": ("releases", "版本发布", "リリース", "릴리스"),
    "repository": ("repositories", "代码仓库", "リポジトリ", "저장소"),
    "user": ("user accounts", "用户账号", "利用者", "사용자 계정"),
    "role": ("roles and permissions", "角色权限", "権限", "권한"),
    "flight_booking": ("flight bookings", "航班预订", "航空券の予約", "항공권 예약"),
    "hotel_stay": ("hotel stays", "酒店住宿", "ホテルの宿泊", "호텔 숙박"),
}


@dataclass(frozen=True)
class Query:
    """A request, and the tool that fits it."""

    language: str
    text: str
    tool: str


def _rows() -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in TARGETS.read_text(encoding="utf-8").splitlines()]


def tools(language: str) -> dict[str, str]:
    """Name → description in the language; 500 of them, the wanted ones spread among the others."""
    place = LANGUAGES.index(language)
    others = {
        f"{verb}_{name}": said[place].format(object[place])
        for name, object in OBJECTS.items()
        for verb, said in VERBS.items()
    }
    wanted = {row[0]: row[1 + place] for row in _rows()}
    found = dict(others)
    for number, (name, text) in enumerate(wanted.items()):
        before = list(found.items())
        at = (number * 9) % len(before)
        found = dict([*before[:at], (name, text), *before[at:]])
    return found


def queries(language: str) -> list[Query]:
    """52 in each language."""
    place = LANGUAGES.index(language)
    return [Query(language, row[5 + place], row[0]) for row in _rows()]
