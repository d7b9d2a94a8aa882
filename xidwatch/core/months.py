"""Month names as journalctl and dmesg print them: strftime's `%b` in the locales that logs arrive in."""

from __future__ import annotations

_NAMES = (
    "jan feb mar apr may jun jul aug sep oct nov dec",
    "january february march april may june july august september october november december",
    "jan feb mär apr mai jun jul aug sep okt nov dez",
    "januar februar märz april mai juni juli august september oktober november dezember",
    "janv févr mars avril mai juin juil août sept oct nov déc",
    "ene feb mar abr may jun jul ago sep oct nov dic",
    "gen feb mar apr mag giu lug ago set ott nov dic",
    "jan fev mar abr mai jun jul ago set out nov dez",
    "jan feb mrt apr mei jun jul aug sep okt nov dec",
    "jan feb mars april maj juni juli aug sept okt nov des",
    "sty lut mar kwi maj cze lip sie wrz paź lis gru",
    "led úno bře dub kvě čen čec srp zář říj lis pro",
    "янв фев мар апр май июн июл авг сен окт ноя дек",
    "янв февр марта апр мая июня июля авг сент окт нояб дек",
    "січ лют бер кві тра чер лип сер вер жов лис гру",
    "tammi helmi maalis huhti touko kesä heinä elo syys loka marras joulu",
    "oca şub mar nis may haz tem ağu eyl eki kas ara",
    "jan febr márc ápr máj jún júl aug szept okt nov dec",
)
_MONTHS = {name: number for names in _NAMES for number, name in enumerate(names.split(), 1)}


def month_number(word: str) -> int | None:
    """1 to 12 for `Apr`, `févr.`, `авг`, `4月`, `11월`; None for any other word."""
    if word[-1:] in "月월":
        digits = word[:-1].strip()
        return int(digits) if digits.isdecimal() and 1 <= int(digits) <= 12 else None
    return _MONTHS.get(word.lower().rstrip("."))
