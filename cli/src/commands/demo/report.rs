//! The demo as a page of its own: HTML without scripts and external resources.

use super::history::{Ask, History, JobHistory, Race};
use super::narrator::Verdict;
use super::timeline::{Mark, Span, spans};
use meridian_shared::counted::counted;

const STYLE: &str = "
body { font: 14px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem }
h2 { font-size: 1.15rem; margin-top: 2rem }
h3 { font-size: 1rem; margin: 1rem 0 .2rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0 }
th, td { border-bottom: 1px solid #ddd }
.row { display: flex; align-items: center; height: 1.3rem }
.row b { width: 9rem; flex: none; font-weight: 400 }
.track { position: relative; flex: 1; height: 1rem; background: #f3f4f6 }
.track i { position: absolute; top: 0; bottom: 0; overflow: hidden; text-align: center }
.track i { font-style: normal; font-size: .7rem; line-height: 1rem }
.axis .track { background: none }
.axis i { text-align: left; color: #57606a; overflow: visible }
.queued { background: #c9d1d9 }
.out-of-stock { background: #e5534b }
.quota { background: #dbab0a }
.limit { background: #b8860b }
.nodes-start { background: #54aeff }
.runs { background: #2da44e }
.lost { background: #82071e }
.pool { background: #b4e1bf }
.legend i { display: inline-block; width: .9rem; height: .9rem }
.legend i { margin: 0 .3rem 0 1rem; vertical-align: -.1rem }
.kept { color: #1a7f37; font-weight: 600 }
.broken { color: #cf222e; font-weight: 600 }
";

/// Seconds between two numbers of the axis.
const AXIS_SECONDS: u32 = 10;

/// Writes the report as one self-contained page.
pub(super) fn html(history: &History, verdicts: &[Verdict], all_kept: bool) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    page.push_str(&format!("<title>Meridian demo</title>\n<style>{STYLE}</style></head><body>\n"));
    let (class, conclusion) =
        if all_kept { ("kept", "Every promise was kept") } else { ("broken", "Not every promise was kept") };
    page.push_str(&format!(
        "<h1>Meridian demo: one queue, three regions</h1>\n\
         <p><span class=\"{class}\">{conclusion}</span> in {:.1} s. GPUs, nodes and jobs are simulated; \
         manager, agents, leases and races are real.</p>\n",
        history.ended
    ));
    page.push_str(&timeline(history));
    page.push_str(&races(history));
    page.push_str(&promises(verdicts));
    page.push_str(&reasons(history));
    page.push_str("</body></html>\n");
    page
}

/// Text for an element or a quoted attribute.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn timeline(history: &History) -> String {
    let mut text = String::from("<h2>Timeline</h2>\n<p class=\"legend\">");
    for mark in Mark::SHOWN {
        text.push_str(&format!("<i class=\"{}\"></i>{}", class(mark), mark.words()));
    }
    text.push_str("<i class=\"pool\"></i>T4 nodes that are requested or exist</p>\n");
    let end = history.ended.max(1.0);
    let numbers = (0..).map(|n| n * AXIS_SECONDS).take_while(|number| f64::from(*number) < end);
    let axis: String = numbers
        .map(|number| format!("<i style=\"left:{:.2}%\">{number}s</i>", f64::from(number) * 100.0 / end))
        .collect();
    text.push_str(&row("axis", "", &axis));
    for (region, pool) in &history.pools {
        text.push_str(&format!("<h3>{}</h3>\n", escaped(region)));
        for job in history.jobs_in(region) {
            let bars: String = spans(job, region, end).iter().map(|span| bar(span, end)).collect();
            text.push_str(&row("", &job.title, &bars));
        }
        let changes = pool.changes();
        let ends = changes.iter().skip(1).map(|(at, _)| *at).chain([end]);
        let steps = changes.iter().zip(ends).filter(|((_, number), _)| *number > 0);
        let bars: String = steps
            .map(|((from, number), until)| {
                let place = place(*from, until, end);
                format!(
                    "<i class=\"pool\" style=\"{place}\" title=\"{}\">{number}</i>",
                    counted(number, "node")
                )
            })
            .collect();
        text.push_str(&row("", "T4 nodes", &bars));
    }
    text
}

fn row(class: &str, label: &str, track: &str) -> String {
    format!("<div class=\"row {class}\"><b>{}</b><div class=\"track\">{track}</div></div>\n", escaped(label))
}

fn bar(span: &Span, end: f64) -> String {
    let (class, place) = (class(span.mark), place(span.from, span.until, end));
    let title = format!("{:.1} s to {:.1} s: {}", span.from, span.until, span.note);
    format!("<i class=\"{class}\" style=\"{place}\" title=\"{}\"></i>", escaped(&title))
}

fn place(from: f64, until: f64, end: f64) -> String {
    format!("left:{:.2}%;width:{:.2}%", from * 100.0 / end, (until - from).max(0.0) * 100.0 / end)
}

fn class(mark: Mark) -> String {
    mark.words().replace(' ', "-")
}

fn table(headers: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let cells = |tag: &str, cells: &mut dyn Iterator<Item = String>| {
        let cells: String = cells.map(|cell| format!("<{tag}>{cell}</{tag}>")).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let head = cells("th", &mut headers.iter().map(|header| escaped(header)));
    let body: String = rows.into_iter().map(|row| cells("td", &mut row.into_iter())).collect();
    format!("<table>\n{head}{body}</table>\n")
}

fn races(history: &History) -> String {
    let row = |job: &JobHistory, race: &Race| {
        let losers: Vec<String> =
            race.losers.iter().map(|(region, answer)| format!("{region} ({})", answer.words())).collect();
        let open = if race.open_after.is_empty() { "no".to_owned() } else { race.open_after.join(", ") };
        let seconds = format!("{:.1} s", race.took);
        [format!("{} ({})", job.title, job.name), race.winner.clone(), seconds, losers.join(", "), open]
            .map(|cell| escaped(&cell))
            .to_vec()
    };
    let rows = history.jobs.iter().flat_map(|job| job.races.iter().map(move |race| row(job, race)));
    let headers = ["Job", "Won by", "After", "Withdrawn elsewhere", "Still open afterwards"];
    format!("<h2>Races</h2>\n{}", table(&headers, rows))
}

fn promises(verdicts: &[Verdict]) -> String {
    let row = |verdict: &Verdict| {
        let (class, result) = if verdict.kept { ("kept", "kept") } else { ("broken", "BROKEN") };
        let result = format!("<span class=\"{class}\">{result}</span>");
        vec![result, escaped(verdict.promise), escaped(&verdict.observed)]
    };
    format!("<h2>Promises</h2>\n{}", table(&["Result", "Promise", "Observed"], verdicts.iter().map(row)))
}

fn reasons(history: &History) -> String {
    let row = |job: &JobHistory, ask: &Ask| {
        let until = ask.until.map_or("end".to_owned(), |until| format!("{until:.1} s"));
        let estimate = ask.estimate.map_or(String::new(), |seconds| format!("ready in {seconds:.1} s"));
        let end: &str = ask.end.into();
        let time = format!("{:.1} s to {until}", ask.from);
        [job.title.clone(), ask.region.clone(), time, ask.reason.clone(), estimate, end.to_owned()]
            .map(|cell| escaped(&cell))
            .to_vec()
    };
    let rows = history.jobs.iter().flat_map(|job| job.asks.iter().map(move |ask| row(job, ask)));
    let headers = ["Job", "Region", "Time", "Reason", "Estimate", "End"];
    format!("<h2>Reasons</h2>\n{}", table(&headers, rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::demo::timeline::tests::history;

    #[test]
    fn the_page_stands_alone_and_escapes_what_others_wrote() {
        let mut seen = history();
        seen.jobs[0].title = "<script>alert('x')</script>".into();
        seen.jobs[0].races = vec![Race {
            winner: "eu".into(),
            took: 5.0,
            losers: Vec::new(),
            open_after: vec!["\"us\"".into()],
        }];
        let verdicts = [Verdict { promise: "a & b", kept: false, observed: "1 < 2".into() }];
        let page = html(&seen, &verdicts, false);
        for text in [
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;",
            "&quot;us&quot;",
            "a &amp; b",
            "1 &lt; 2",
            "&lt;OutOfStock&gt;",
            "Not every promise was kept",
            "left:6.67%;width:33.33%",
        ] {
            assert!(page.contains(text), "{text} is not in {page}");
        }
        for text in ["<script", "http", "src=", "@import"] {
            assert!(!page.contains(text), "{text} is in {page}");
        }
    }
}
