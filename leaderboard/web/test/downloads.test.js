import assert from "node:assert/strict";
import { test } from "node:test";
import { bibtex, csv, json, latex, markdown } from "../src/downloads.js";
import { rows, TAB } from "./example.js";

test("CSV holds every row in view; no text becomes a formula", () => {
  const [head, ...lines] = csv(TAB, rows()).trimEnd().split("\n");
  assert.equal(
    head,
    "tab,kind,id,method,backbone,setting,flags,seeds,place,rank_first,rank_last,source,link,Avg,Avg low,Avg high,STS12,STS12 sd,STS12 n",
  );
  assert.equal(lines.length, 5);
  assert.equal(lines[0], "sts-spearman-all,measured,one,Method one,BERT-base,unsup,nli,,1,1,2,,,80,79,81,75,0.4,3108");
  assert.match(lines[2], /,"'=HYPERLINK\(""x""\)",/);
  assert.match(lines[4], /^sts-spearman-all,published,paper:1:2,.*,70,,,,,$/);
});

test("formulas behind blanks and semicolons, and full-width ones, are text", () => {
  for (const method of ["\t=1+1", " @SUM(1)", "a;=1+1", "a; +1", "\uff1d1+1"]) {
    const [row] = rows();
    const line = csv(TAB, [{ ...row, method }]).split("\n")[1];
    assert.match(line, /'[=@+\uff1d]/);
  }
});

test("a negative score is a number, no formula", () => {
  const [row] = rows();
  row.scores.Avg.value = -3.5;
  assert.match(csv(TAB, [row]), /,-3\.5,/);
});

test("JSON says which tab it is of", () => {
  const data = JSON.parse(json(TAB, rows().slice(0, 1)));
  assert.equal(data.tab, "sts-spearman-all");
  assert.equal(data.rows[0].scores.Avg.value, 80);
  assert.ok(!("at" in data.rows[0]));
});

test("BibTeX: one entry a row, keys differ, signs are escaped", () => {
  const all = rows();
  all[0].method = "A & B_{x} 50% #1 \\input{y}";
  const text = bibtex(TAB, [all[0], all[0], all[4]], "2026-11-20T10:00:00+00:00");
  assert.deepEqual(
    [...text.matchAll(/@misc\{([^,]+),/g)].map(([, key]) => key),
    ["one", "one-2", "paper-1-2"],
  );
  assert.match(text, /A \\& B\\_\\\{x\\\} 50\\% \\#1 \\textbackslash\{\}input\\\{y\\\}/);
  assert.match(
    text,
    /Avg 80\.00 \(95 \\% interval 79\.00 to 81\.00\); rank 1 to 2 at 95 \\%; flags: nli; measured by stsbench, board of 2026-11-20\},\n {2}year = \{2026\},\n\}/,
  );
  const measured = { ...all[0], link: "https://example.org/paper", year: 2019 };
  const own = bibtex(TAB, [measured], "2026-11-20T10:00:00+00:00");
  assert.doesNotMatch(own, /year = \{2019\}|url =/); // the score is not the paper's
  assert.match(own, /method: https:\/\/example\.org\/paper/);
  assert.match(
    text,
    /published: Somebody 2021, table 1\},\n {2}year = \{2021\},\n {2}url = \{https:\/\/example\.org\},/,
  );
});

test("Markdown and LaTeX hold rank and interval, and no text becomes markup", () => {
  const all = rows();
  all[0].method = "A|B & <i>_x_</i>";
  const [, , heads, rule, first] = markdown(TAB, all).split("\n");
  assert.equal(heads, "| Rank | Method | Backbone | Avg | STS12 |");
  assert.equal(rule, "| --- | --- | --- | ---: | ---: |");
  assert.equal(first, "| 1–2 | A\\|B & \\<i\\>\\_x\\_\\</i\\> | BERT-base | 80.00 (79.00–81.00) | 75.00 |");
  const lines = latex(TAB, all).split("\n");
  assert.equal(lines[1], "\\begin{tabular}{lllrr}");
  assert.equal(lines[5], "1--2 & A|B \\& <i>\\_x\\_</i> & BERT-base & 80.00 (79.00--81.00) & 75.00 \\\\");
  assert.match(lines.at(-5), /Method one \[Somebody 2021, table 1\] & BERT-base & 70\.00 & /);
});
