//! Pictures of the dashboards for the docs: what Prometheus answers to the panels' queries, drawn here and photographed by
//! Chromium. Grafana draws them otherwise; that is said on each.

use super::board::{Board, Chosen, Panel};
use super::now;
use super::prometheus::{Prometheus, Series};
use crate::support::{process, sdk};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Of a column and of a row of Grafana's grid, in pixels.
const CELL: (f64, f64) = (56.0, 30.0);
const COLORS: [&str; 12] = [
    "#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#37872d", "#8ab8ff", "#ffcb7d", "#e02f44",
    "#c4162a", "#a352cc",
];
const STYLE: &str = "body{margin:0;background:#111217;color:#ccccdc;font:12px Liberation Sans,sans-serif;position:relative}\
    .p{position:absolute;box-sizing:border-box;background:#181b1f;border:1px solid #25272d;border-radius:3px;padding:6px 8px;\
    overflow:hidden}.t{font-weight:bold;margin-bottom:4px;white-space:nowrap}.l{white-space:nowrap;overflow:hidden;\
    font-size:11px;color:#9fa1ac}.l i{display:inline-block;width:10px;height:3px;margin:0 4px 3px 8px}.s{display:flex;\
    height:calc(100% - 18px);gap:4px}.s div{flex:1;display:flex;flex-direction:column;align-items:center;\
    justify-content:center;border-radius:3px}.s b{font-size:23px}.s small{font-size:11px}h1{position:absolute;\
    margin:0;left:8px;top:8px;font-size:17px}.n{position:absolute;right:8px;top:11px;color:#9fa1ac}.r{position:absolute;\
    font-weight:bold;padding:6px}table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:2px 6px;\
    border-bottom:1px solid #25272d}text{fill:#9fa1ac;font-size:10px}";

/// Draws one dashboard into `dashboard-<name>.png`.
pub(super) fn picture(prometheus: &Prometheus, board: &Board, seconds: usize, folder: &Path) {
    let Some(chromium) = sdk::chromium() else { return };
    let mut page = String::new();
    let mut height = 0.0_f64;
    let top = 36.0;
    for panel in board.json["panels"].as_array().expect("panels") {
        let at = |key: &str| panel["gridPos"][key].as_f64().expect("a place");
        let (left, y) = (at("x") * CELL.0 + 4.0, top + at("y") * CELL.1);
        let size = (at("w") * CELL.0 - 6.0, at("h") * CELL.1 - 6.0);
        height = height.max(y + size.1 + 8.0);
        let title = escaped(panel["title"].as_str().unwrap_or_default());
        if panel["type"] == "row" {
            write!(page, "<div class=r style='left:{left}px;top:{y}px'>{title}</div>").expect("memory");
            continue;
        }
        let inside = inside(prometheus, &Panel { board: &board.name, json: panel }, size, seconds);
        let place = format!("left:{left}px;top:{y}px;width:{}px;height:{}px", size.0, size.1);
        write!(page, "<div class=p style='{place}'><div class=t>{title}</div>{inside}</div>").expect("memory");
    }
    let title = escaped(board.json["title"].as_str().unwrap_or_default());
    let note = "drawn from the panels' queries by make dashboards, not by Grafana";
    let html = format!(
        "<!doctype html><meta charset=utf-8><style>{STYLE}</style><body style='height:{height}px'><h1>{title}</h1>\
         <div class=n>{note}</div>{page}"
    );
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let file = dir.path().join("board.html");
    fs::write(&file, html).expect("the folder is ours");
    fs::create_dir_all(folder).expect("the folder is ours");
    let image = folder.join(format!("dashboard-{}.png", board.name));
    let mut command = process::command(chromium);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--disable-background-networking",
    ]);
    command.arg(format!("--user-data-dir={}", dir.path().join("profile").display()));
    command.arg(format!("--window-size={},{}", CELL.0 * 24.0 + 8.0, height.ceil()));
    command.arg(format!("--screenshot={}", image.display())).arg(format!("file://{}", file.display()));
    process::run(&mut command, b"").success();
}

fn inside(prometheus: &Prometheus, panel: &Panel<'_>, size: (f64, f64), seconds: usize) -> String {
    let range = format!("{seconds}s");
    let chosen = Chosen::all(&range);
    let end = now();
    let over = (end - seconds as f64, end);
    let is_line = panel.json["type"] == "timeseries";
    let mut all: Vec<(String, Series)> = Vec::new();
    for query in panel.queries() {
        let expr = chosen.fill(&query.expr);
        let found = if is_line { prometheus.range(&expr, over, step(seconds as f64)) } else { prometheus.now(&expr) };
        all.extend(found.into_iter().map(|series| (legend(&query.legend, &series), series)));
    }
    let defaults = &panel.json["fieldConfig"]["defaults"];
    if all.is_empty() {
        return format!("<div class=s><div>{}</div></div>", escaped(panel.no_value().unwrap_or("no data")));
    }
    match panel.json["type"].as_str() {
        Some("stat") => stats(&all, defaults, panel.no_value()),
        Some("table") => table(&all, defaults),
        _ => {
            let is_stacked = defaults["custom"]["stacking"]["mode"] == "normal";
            lines(&mut all, defaults["unit"].as_str().unwrap_or("none"), size, over, is_stacked)
        }
    }
}

/// As many points as there are pixels for them.
fn step(seconds: f64) -> f64 {
    (seconds / 240.0).max(1.0)
}

fn legend(template: &str, series: &Series) -> String {
    let mut text = template.to_owned();
    for (name, value) in &series.labels {
        text = text.replace(&format!("{{{{{name}}}}}"), value);
    }
    let text = regex::Regex::new(r"\{\{\w+\}\}").expect("a pattern").replace_all(&text, "").trim().to_owned();
    if text.is_empty() && !series.labels.is_empty() { series.labels[0].1.clone() } else { text }
}

fn stats(all: &[(String, Series)], defaults: &Value, no_value: Option<&str>) -> String {
    let mut html = "<div class=s>".to_owned();
    for (name, series) in all {
        let value = series.values.last().map_or(f64::NAN, |(_, value)| *value);
        let mapped = &defaults["mappings"][0]["options"][format!("{value}")];
        let text = match mapped["text"].as_str() {
            Some(text) => text.to_owned(),
            None if value.is_nan() => no_value.unwrap_or("–").to_owned(),
            None => number(value, defaults),
        };
        let mut steps = defaults["thresholds"]["steps"].as_array().into_iter().flatten();
        let step = steps.rfind(|step| step["value"].as_f64().is_none_or(|from| value >= from));
        let color = mapped["color"].as_str().or_else(|| step.and_then(|step| step["color"].as_str()));
        let back = match color {
            Some("green") => "#1a6b34",
            Some("yellow") => "#8a6d00",
            Some("red") => "#8f1b2e",
            _ => "none",
        };
        write!(html, "<div style='background:{back}'><b>{}</b><small>{}</small></div>", escaped(&text), escaped(name))
            .expect("memory");
    }
    html + "</div>"
}

fn table(all: &[(String, Series)], defaults: &Value) -> String {
    let mut names: Vec<&str> =
        all.iter().flat_map(|(_, series)| series.labels.iter().map(|(n, _)| n.as_str())).collect();
    names.retain(|name| !["__name__", "job"].contains(name));
    names.sort_unstable();
    names.dedup();
    let mut html = "<table><tr>".to_owned();
    names.iter().for_each(|name| write!(html, "<th>{name}</th>").expect("memory"));
    html += "<th></th></tr>";
    for (_, series) in all.iter().take(14) {
        html += "<tr>";
        names.iter().for_each(|name| write!(html, "<td>{}</td>", escaped(series.label(name))).expect("memory"));
        let value = series.values.last().map_or(f64::NAN, |(_, value)| *value);
        write!(html, "<td>{}</td></tr>", number(value, defaults)).expect("memory");
    }
    html + "</table>"
}

fn lines(all: &mut [(String, Series)], unit: &str, size: (f64, f64), over: (f64, f64), is_stacked: bool) -> String {
    let step = step(over.1 - over.0);
    let (width, height) = (size.0 - 18.0, size.1 - 62.0);
    let (left, bottom) = (54.0, 16.0);
    if is_stacked {
        // Each stands on those before it. Prometheus answers at the same times for all, but leaves out what is not there.
        let mut floor: std::collections::BTreeMap<i64, f64> = std::collections::BTreeMap::new();
        for (time, value) in all.iter_mut().flat_map(|(_, series)| &mut series.values) {
            let below = floor.entry((*time * 1000.0) as i64).or_default();
            *below += if value.is_finite() { *value } else { 0.0 };
            *value = *below;
        }
    }
    let values = all.iter().flat_map(|(_, series)| &series.values).map(|(_, value)| *value);
    let top = nice(values.filter(|value| value.is_finite()).fold(0.0, f64::max));
    let x = |time: f64| left + (width - left) * (time - over.0) / (over.1 - over.0);
    let y = |value: f64| (height - bottom - 9.0) * (1.0 - value / top) + 9.0;
    let mut svg = format!("<svg width={width} height={height}>");
    let defaults = serde_json::json!({ "unit": unit });
    for i in 0..=4 {
        let value = top * f64::from(i) / 4.0;
        let at = y(value);
        write!(svg, "<path d='M{left} {at}H{width}' stroke='#2c2f36'/>").expect("memory");
        write!(svg, "<text x={} y={} text-anchor=end>{}</text>", left - 5.0, at + 3.0, number(value, &defaults))
            .expect("memory");
        let time = over.0 + (over.1 - over.0) * f64::from(i) / 4.0;
        let (minutes, seconds) = ((time / 60.0) as u64 % 60, time as u64 % 60);
        write!(
            svg,
            "<text x={} y={height} text-anchor={}>{:02}:{minutes:02}:{seconds:02}</text>",
            x(time),
            ["start", "middle", "middle", "middle", "end"][i as usize],
            (time / 3600.0) as u64 % 24
        )
        .expect("memory");
    }
    let mut key = String::new();
    for (i, (name, series)) in all.iter().enumerate().rev() {
        let color = COLORS[i % COLORS.len()];
        let (mut path, mut is_broken, mut last) = (String::new(), true, f64::NEG_INFINITY);
        for (time, value) in &series.values {
            // Where there is no sample, nothing is known: no line leads over it.
            is_broken |= *time - last > 1.5 * step;
            last = *time;
            if !value.is_finite() {
                is_broken = true;
                continue;
            }
            write!(path, "{}{:.1} {:.1}", if is_broken { "M" } else { "L" }, x(*time), y(*value)).expect("memory");
            is_broken = false;
        }
        let filling = match (is_stacked, series.values.first(), series.values.last()) {
            (true, Some((first, _)), Some((last, _))) if !path.is_empty() => {
                format!(
                    "<path d='{path}L{:.1} {:.1}L{:.1} {:.1}Z' fill='{color}' fill-opacity=.45 />",
                    x(*last),
                    y(0.0),
                    x(*first),
                    y(0.0)
                )
            }
            _ => String::new(),
        };
        write!(svg, "{filling}<path d='{path}' fill=none stroke='{color}' stroke-width=1.5 />").expect("memory");
        key = format!("<i style='background:{color}'></i>{}{key}", escaped(name));
    }
    format!("{svg}</svg><div class=l>{key}</div>")
}

/// A round number not below this one.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0];
    steps.iter().map(|step| step * power).find(|step| *step >= value * 1.02).unwrap_or(power * 12.0)
}

/// A value as a person reads it.
fn number(value: f64, defaults: &Value) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let scaled = |steps: &[(f64, &str)]| {
        let (by, unit) = steps.iter().find(|(by, _)| value.abs() >= *by).or(steps.last()).expect("a step");
        format!("{}{unit}", short(value / by))
    };
    match defaults["unit"].as_str() {
        Some("s") => {
            scaled(&[(86400.0, " d"), (3600.0, " h"), (60.0, " min"), (1.0, " s"), (1e-3, " ms"), (1e-6, " µs")])
        }
        Some("percentunit") => format!("{} %", short(value * 100.0)),
        Some("reqps") => format!("{}/s", short(value)),
        Some("bytes") => scaled(&[(1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1.0, " B")]),
        Some("Bps") => scaled(&[(1e9, " GB/s"), (1e6, " MB/s"), (1e3, " kB/s"), (1.0, " B/s")]),
        Some("dateTimeAsIso") => {
            let seconds = (value / 1000.0) as u64 % 86400;
            format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
        }
        _ if defaults["decimals"] == 0 => format!("{value:.0}"),
        _ => short(value),
    }
}

fn short(value: f64) -> String {
    let text = match value.abs() {
        0.0 => return "0".to_owned(),
        x if x >= 100.0 => format!("{value:.0}"),
        x if x >= 10.0 => format!("{value:.1}"),
        x if x >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[test]
fn numbers_are_written_for_people() {
    let with = |unit: &str, value: f64| number(value, &serde_json::json!({ "unit": unit }));

    assert_eq!(
        (with("s", 0.0025), with("s", 90.0), with("s", 0.0)),
        ("2.5 ms".into(), "1.5 min".into(), "0 µs".into())
    );
    assert_eq!((with("percentunit", 0.123), with("bytes", 1.5e6)), ("12.3 %".into(), "1.5 MB".into()));
    assert_eq!((nice(0.0), nice(0.97), nice(7.0)), (1.0, 1.0, 8.0));
}
