"""The frame of a report page: colours and layout, light and dark, with a headline and its cards."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

STYLE: Final = """
:root{--bg:#fbfbfa;--card:#fff;--ink:#1d2329;--soft:#5d6873;--rule:#e3e6e9;--axis:#9aa4ad;
--blue:#2f6fb2;--teal:#1f8f82;--green:#5a9a3a;--amber:#c98a15;--red:#c2452d;--violet:#7a5bb0;--grey:#8b949d;--pink:#b5548a;
--brown:#8a5a3c;--on:#fff}
@media (prefers-color-scheme:dark){:root{--bg:#14181c;--card:#1c2227;--ink:#e6e9ec;--soft:#9aa5af;--rule:#2d343b;
--axis:#66717b;--blue:#6ea8e0;--teal:#4fc1b3;--green:#93c970;--amber:#e6b450;--red:#ec8069;--violet:#b197e0;
--grey:#7f8a94;--pink:#e08bbb;--brown:#c49a7c;--on:#10151a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1040px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;margin:0}h2{font-size:18px;margin:0 0 4px}
header p,.note,.none,small{color:var(--soft)}header p{margin:2px 0 20px}.note{margin:0 0 10px;font-size:14px}
section{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:20px 22px;margin:18px 0}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px}
.card{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:14px 16px}
.card b{display:block;font-size:24px;line-height:1.2;overflow-wrap:anywhere}
.card span{display:block}.card small{font-size:13px}
svg{display:block;width:100%;height:auto}.wide{overflow-x:auto}.wide svg{max-width:none}
text{fill:var(--ink);font-size:12px}.tick{fill:var(--soft);font-size:11px}.name{font-size:12px}
.incell{fill:var(--on);font-size:11px;pointer-events:none}.onpale{font-size:11px;pointer-events:none}
.mark{opacity:.85}.lane{fill:var(--rule);opacity:.4}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:8px 28px}
h3{font-size:14px;margin:14px 0 6px;font-weight:600}
.rule{stroke:var(--rule)}.axis{stroke:var(--axis)}.line{fill:none;stroke-width:1.5;stroke:var(--teal)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 16px;padding:0;margin:0 0 8px;
color:var(--soft);font-size:13px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;padding:6px 14px 6px 0;white-space:nowrap}
th{color:var(--soft);font-weight:500;border-bottom:1px solid var(--rule)}tr+tr td{border-top:1px solid var(--rule)}
td{font-variant-numeric:tabular-nums}
.s-first,.s-start,.s-move_free,.s-balance{fill:var(--teal);background:var(--teal)}
.s-member_joined,.s-standby_add{fill:var(--blue);background:var(--blue)}
.s-member_left,.s-move_warm{fill:var(--amber);background:var(--amber)}
.s-metadata_changed,.s-warmup_add{fill:var(--violet);background:var(--violet)}
.s-subscription_changed{fill:var(--pink);background:var(--pink)}
.s-followup{fill:var(--green);background:var(--green)}
.s-revocation_done{fill:var(--brown);background:var(--brown)}.s-unknown{fill:var(--grey);background:var(--grey)}
.s-failed,.s-move_cold,.s-lost_owner{fill:var(--red);background:var(--red)}
.s-count{fill:var(--blue);background:var(--blue)}
.c-active{fill:var(--blue);background:var(--blue)}.c-target{fill:var(--amber);background:var(--amber)}
.c-standby{fill:var(--grey);background:var(--grey)}.c-warmup{fill:var(--violet);background:var(--violet)}
"""


def framed(title: str, kind: str, main: str, *, more_style: str = "") -> str:
    """Return a page that loads nothing from a network. ``title`` and ``kind`` are its name in the browser."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)} - {escape(kind)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}{more_style}</style></head><body><main>{main}</main></body></html>\n"
    )


def headline(title: str, subtitle: str, cards: Sequence[tuple[str, str, str]]) -> str:
    """Return the top of a page. A card has a value, its name, and a remark."""
    made = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span><small>{escape(more)}</small></div>'
        for value, name, more in cards
    )
    return f"<header><h1>{escape(title)}</h1><p>{escape(subtitle)}</p></header><div class=cards>{made}</div>"
