"""A Plan as one self-contained page: the map, a table, and the steps to each container's CPUs.

No script, no requests; the page's Content-Security-Policy forbids both. All foreign text is escaped.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from pinfold.core.explaining.advice import advise
from pinfold.core.explaining.alignment import Level
from pinfold.core.snapshot import pools
from pinfold.render.plan.svg import format_plan_svg
from pinfold.render.plan.table import describe, format_ids, plural, unsound, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pinfold.core.trace import Trace
    from pinfold.planning.plan import Placement, Plan

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE: Final = """\
:root{color-scheme:light dark;--ink:#1f2933;--soft:#5b6875;--line:#d5dce4;--page:#fff;--bad:#b3261e;--warn:#8a5a00}
@media (prefers-color-scheme:dark){:root{--ink:#e4e9ee;--soft:#9aa7b4;--line:#37424e;--page:#0e1318;--bad:#ff8a80;\
--warn:#f0c060}}
body{margin:2rem auto;max-width:72rem;padding:0 1rem;background:var(--page);color:var(--ink);
font:15px/1.5 ui-sans-serif,system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}
h1{font-size:1.4rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
p{margin:.3rem 0}.dim{color:var(--soft)}.bad{color:var(--bad)}.warn{color:var(--warn)}
svg{width:100%;height:auto;margin:1rem 0;border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.35rem .8rem .35rem 0;border-bottom:1px solid var(--line)}
th{font-weight:600;color:var(--soft)}td:first-child,td[colspan]{overflow-wrap:anywhere}td:first-child{min-width:11rem}td.n{white-space:nowrap}
summary{cursor:pointer}ol{margin:.3rem 0;padding-left:1.4rem;color:var(--soft)}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.92em}
code span{white-space:nowrap}@media (max-width:40rem){td:first-child{min-width:6rem}
th,td{padding-right:.5rem}body{font-size:13px}.wide{overflow-x:auto}}
"""
_HEADS: Final = ("Container", "QoS", "CPUs", "Cores", "L3", "NUMA", "Socket")
_SHOWN: Final = ("shared", "reserved", "assignable", "exclusive", "idle")


def format_html(plan: Plan, title: str = "") -> str:
    """Return the page."""
    return "".join(f"{line}\n" for line in _page(plan, title or "Plan"))


def _page(plan: Plan, title: str) -> Iterator[str]:
    yield "<!DOCTYPE html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<title>{_text(title)}</title>"
    yield f"<style>\n{_STYLE}</style></head><body>"
    yield f"<h1>{_text(title)}</h1>"
    yield f'<p class="dim">{_text(describe(plan))}</p>'
    yield _paragraph(f"{plural(len(plan.outcomes), 'pod')}: {verdict(plan)}", "bad" if plan.refused else "")
    if plan.misaligned:
        yield _paragraph(f"{plural(len(plan.misaligned), 'container')} spread over more groups than necessary", "warn")
    yield format_plan_svg(plan)
    yield from (_paragraph(line, "bad") for line in unsound(plan))
    yield "<h2>Containers</h2>"
    yield from _table(_HEADS, (_row(plan, placement) for placement in plan.placements))
    yield "<h2>Pools</h2>"
    policy, topology = plan.admitter.policy, plan.topology
    before, after = pools(policy, plan.before, topology), pools(policy, plan.after, topology)
    shown = [name for name in _SHOWN if name != "idle" or after[name]]
    rows = (
        [f"<td>{name}</td>", *(f"<td>{_ranges(each[name] or '-')}</td>" for each in (before, after))] for name in shown
    )
    yield from _table(("Pool", "Before", "After"), rows)
    yield "</body></html>"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield f'<div class="wide"><table><thead><tr>{"".join(f"<th>{head}</th>" for head in heads)}</tr></thead><tbody>'
    for row in rows:
        yield f"<tr>{''.join(row)}</tr>"
    yield "</tbody></table></div>"


def _row(plan: Plan, placement: Placement) -> Iterator[str]:
    steps = _steps(placement.trace)
    name = f"{_text(placement.pod.name)}/{_text(placement.container.name)}"
    yield f"<td><details><summary>{name}</summary>{steps}</details></td>" if steps else f"<td>{name}</td>"
    yield f'<td class="n">{placement.pod.qos}</td>'
    if placement.refusal is not None:
        yield f'<td colspan="{len(Level) + 1}">{_refusal(plan, placement)}</td>'
    elif placement.cpus is None or placement.alignment is None:
        yield f'<td colspan="{len(Level) + 1}" class="dim">shared</td>'
    else:
        yield f"<td>{_ranges(str(placement.cpus))}</td>"
        for level, span in placement.alignment.levels.items():
            text = str(len(span.ids)) if level is Level.CORE else format_ids(span.ids)
            would = "" if span.is_aligned else f' class="warn" title="minimum {span.fewest}"'
            least = "" if span.is_aligned else f" (minimum&nbsp;{span.fewest})"
            yield f"<td{would}>{_ranges(text)}{least}</td>"


def _refusal(plan: Plan, placement: Placement) -> str:
    refusal = placement.refusal
    if refusal is None or not placement.is_culprit:
        return '<span class="bad">its pod is refused</span>'
    advice = str(advise(plan.ruler, placement.outcome, plan.names))
    kubelet = f'<span class="dim">{_text(f"[{refusal.reason}: {refusal}]")}</span>'
    return f'<span class="bad">{_text(advice)}</span><br>{kubelet}' if advice else kubelet


def _steps(trace: Trace) -> str:
    steps = "".join(f"<li>{_text(str(step))}</li>" for step in trace.steps)
    defects = "".join(f'<li class="bad">{_text(f"defect {name}: {what}")}</li>' for name, what in trace.defects)
    return f"<ol>{steps}{defects}</ol>" if steps or defects else ""


def _ranges(text: str) -> str:
    """Return a list of numbers that breaks between ranges only, and is the same text when it is copied.

    >>> _ranges("1-3,7")
    '<code><span>1-3,</span><wbr><span>7</span></code>'
    """
    ranges = _text(text).replace(",", ",</span><wbr><span>")
    return f"<code><span>{ranges}</span></code>"


def _paragraph(text: str, css: str = "") -> str:
    return f'<p class="{css}">{_text(text)}</p>' if css else f"<p>{_text(text)}</p>"


def _text(text: str) -> str:
    """Return *text* escaped for the page, with invisible characters made visible."""
    return escape("".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text))
