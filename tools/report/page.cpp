#include "tools/report/page.h"

#include "tools/report/html.h"

namespace halfbyte::cli {
namespace {

// What the page may do is said by itself too: a browser then loads nothing, whatever some text managed to say.
constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
)";

constexpr const char* kStyle = R"(<style>
:root { --page: #fff; --ink: #1b1f24; --quiet: #59636e; --line: #d5dae0; --soft: #f5f7f9; --accent: #0b62c4; --heat: 224 120 0; --strength: .8; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171b; --ink: #e8ebee; --quiet: #a0a9b3; --line: #363d45; --soft: #1d2228; --accent: #6cb0ff; --strength: .55; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 8px; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 40px 0 8px; padding-bottom: 4px; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 20px 0 4px; }
p { margin: 8px 0; max-width: 72ch; overflow-wrap: anywhere; }
.summary { font-size: 1.15rem; }
.quiet { color: var(--quiet); font-size: .9rem; }
.wide { overflow-x: auto; margin: 8px 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 12px 4px 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--quiet); }
.n { text-align: right; white-space: nowrap; }
.heat th, .heat td { padding: 4px 8px; text-align: right; border: 1px solid var(--page); white-space: nowrap; }
.heat td { background: rgb(var(--heat) / calc(var(--v, 0) * var(--strength))); }
.name { overflow-wrap: anywhere; min-width: 14ch; font-family: ui-monospace, monospace; font-size: .85rem; }
svg { display: block; width: 100%; max-width: 640px; height: auto; }
svg text { font: 9px system-ui, sans-serif; fill: var(--quiet); }
.axis { stroke: var(--quiet); stroke-width: .7; }
.mark { stroke: var(--ink); stroke-width: .7; stroke-dasharray: 2 2; }
.reach { stroke: var(--quiet); stroke-width: 1; }
.bar, .this { fill: var(--accent); }
.other { fill: var(--page); stroke: var(--accent); stroke-width: 1.5; }
.two { display: grid; gap: 0 32px; grid-template-columns: 1fr; }
.two > * { min-width: 0; }
@media (min-width: 900px) { .two { grid-template-columns: 1fr 1fr; } }
ol { padding-left: 2em; }
li { margin: 0 0 12px; overflow-wrap: anywhere; break-inside: avoid; }
.text { white-space: pre-wrap; }
mark { background: rgb(var(--heat) / .45); color: inherit; padding: 0 2px; border-radius: 2px; }
summary { cursor: pointer; color: var(--accent); }
@media print {
  :root { --page: #fff; --ink: #000; --quiet: #444; --line: #bbb; --accent: #0b62c4; --strength: .8; }
  main { max-width: none; padding: 0; }
  h2 { break-after: avoid; } .wide { overflow: visible; } svg { max-width: 12cm; }
  .heat td, .bar, mark { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
</style>
</head>
)";

}  // namespace

std::string page(const std::string& title, const std::string& summary, const std::vector<Section>& sections) {
  std::string out = kHead;
  out += element("title", escaped(title)) + "\n" + kStyle + "<body>\n<main>\n";
  out += element("h1", escaped(title)) + "\n" + element("p", "class=\"summary\"", escaped(summary)) + "\n";
  for (const Section& section : sections)
    out += element("section", element("h2", escaped(section.title)) + "\n" + section.body) + "\n";
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace halfbyte::cli
