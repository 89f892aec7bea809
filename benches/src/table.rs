//! The rows as llama-bench prints them, and the I2_S : F16 ratios.

use crate::clock::Clock;
use crate::model::BenchModel;
use crate::run::{Row, mean_and_deviation};
use burn_i2s::isa::Isa;
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A Markdown table.
    Md,
    /// Comma-separated values, all quoted, with a header.
    Csv,
    /// An array of objects, one a row.
    Json,
    /// An object a line.
    Jsonl,
}

/// Prints the rows. The ratios follow a Markdown table; beside the other formats, which programs read, they go to
/// `notes`.
///
/// # Errors
/// When `out` or `notes` cannot be written.
pub fn write(
    format: Format,
    isa: Isa,
    models: &[BenchModel],
    rows: &[Row],
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> io::Result<()> {
    let records = || rows.iter().map(|row| record(isa, &models[row.model], row));
    match format {
        Format::Md => {
            markdown(models, rows, out)?;
            return ratios(models, rows, out);
        }
        Format::Csv => {
            for (index, record) in records().enumerate() {
                if index == 0 {
                    writeln!(out, "{}", record.keys().cloned().collect::<Vec<_>>().join(","))?;
                }
                writeln!(out, "{}", record.values().map(quoted).collect::<Vec<_>>().join(","))?;
            }
        }
        Format::Json => {
            let all: Vec<Value> = records().map(Value::Object).collect();
            writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
        }
        Format::Jsonl => {
            for record in records() {
                writeln!(out, "{}", Value::Object(record))?;
            }
        }
    }
    ratios(models, rows, notes)
}

fn markdown(models: &[BenchModel], rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let rate = if rows.iter().any(|row| row.clock != Clock::Wall) { "t/s of CPU time" } else { "t/s" };
    let heads = ["model", "size", "params", "backend", "threads", "test", rate];
    let mut lines = vec![heads.map(str::to_owned)];
    for row in rows {
        let model = &models[row.model];
        let (mean, deviation) = mean_and_deviation(&row.rates());
        lines.push([
            model.description.clone(),
            format!("{:.2} MiB", model.bytes as f64 / (1 << 20) as f64),
            format!("{:.2} M", model.parameters as f64 / 1e6),
            model.backend.name().to_owned(),
            row.threads.to_string(),
            test_name(row),
            format!("{mean:.2} ± {deviation:.2}"),
        ]);
    }
    let widths: [usize; 7] =
        std::array::from_fn(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0));
    for (index, line) in lines.iter().enumerate() {
        let cell = |(column, text): (usize, &String)| {
            let width = widths[column];
            if left(column) { format!(" {text:<width$} |") } else { format!(" {text:>width$} |") }
        };
        writeln!(out, "|{}", line.iter().enumerate().map(cell).collect::<String>())?;
        if index == 0 {
            let rule = |(column, &width): (usize, &usize)| {
                if left(column) {
                    format!(" {} |", "-".repeat(width))
                } else {
                    format!(" {}: |", "-".repeat(width - 1))
                }
            };
            writeln!(out, "|{}", widths.iter().enumerate().map(rule).collect::<String>())?;
        }
    }
    Ok(())
}

/// Whether a column holds words rather than numbers.
fn left(column: usize) -> bool {
    matches!(column, 0 | 3)
}

/// llama-bench's name of a prompt test; several texts a forward are marked as such.
fn test_name(row: &Row) -> String {
    match row.texts {
        1 => format!("pp{}", row.n_prompt),
        texts => format!("pp{} x {texts}", row.n_prompt),
    }
}

/// A line for every I2_S row and F16 row of the same architecture, sizes, threads and prompt length.
fn ratios(models: &[BenchModel], rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let same_model = |a: &BenchModel, b: &BenchModel| {
        (a.config.architecture, a.config.hidden_size, a.config.layers.len())
            == (b.config.architecture, b.config.hidden_size, b.config.layers.len())
    };
    let mut first = true;
    for row in rows.iter().filter(|row| models[row.model].backend.name() == "I2_S") {
        for other in rows.iter().filter(|other| models[other.model].backend.name() == "F16") {
            let (a, b) = (&models[row.model], &models[other.model]);
            let same_test = (row.threads, row.n_prompt, row.texts) == (other.threads, other.n_prompt, other.texts);
            if !same_test || !same_model(a, b) {
                continue;
            }
            if first {
                writeln!(out)?;
                first = false;
            }
            let (of, to) = (mean_and_deviation(&row.rates()).0, mean_and_deviation(&other.rates()).0);
            let threads = if row.threads == 1 { "1 thread".into() } else { format!("{} threads", row.threads) };
            let name = test_name(row);
            let (a, b) = (&a.description, &b.description);
            writeln!(out, "I2_S : F16 = {:.2} ({a} : {b}, {threads}, {name})", of / to)?;
        }
    }
    Ok(())
}

/// A row in llama-bench's field names.
fn record(isa: Isa, model: &BenchModel, row: &Row) -> Map<String, Value> {
    let ns: Vec<f64> = row.samples_ns.iter().map(|&ns| ns as f64).collect();
    let ((avg_ns, stddev_ns), rates) = (mean_and_deviation(&ns), row.rates());
    let (avg_ts, stddev_ts) = mean_and_deviation(&rates);
    let fields = json!({
        "cpu_info": cpu_name(),
        "isa": isa.name(),
        "backends": "CPU",
        "backend": model.backend.name(),
        "model_filename": model.path.display().to_string(),
        "model_type": model.description,
        "model_size": model.bytes,
        "model_n_params": model.parameters,
        "n_threads": row.threads,
        "n_gpu_layers": 0,
        "use_mmap": true,
        "embeddings": true,
        "n_prompt": row.n_prompt,
        "n_texts": row.texts,
        "n_gen": 0,
        "clock": row.clock.name(),
        "test_time": iso_time(row.started),
        "avg_ns": avg_ns.round() as u64,
        "stddev_ns": stddev_ns.round() as u64,
        "avg_ts": avg_ts,
        "stddev_ts": stddev_ts,
        "samples_ns": row.samples_ns,
        "samples_ts": rates,
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// A CSV field: text without its JSON quotes, anything else as JSON writes it.
fn quoted(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// The CPU's name as Linux knows it; empty elsewhere.
pub fn cpu_name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or_else(String::new, |(_, name)| name.trim().to_owned())
}

/// `2025-01-31T12:00:00Z` for seconds since 1970.
fn iso_time(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Days to a date by the proleptic Gregorian calendar, years starting in March so that leap days come last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(iso_time(0), "1970-01-01T00:00:00Z");
        assert_eq!(iso_time(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(iso_time(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(iso_time(1_735_689_599), "2024-12-31T23:59:59Z");
    }

    #[test]
    fn a_csv_field_is_quoted_and_its_quotes_doubled() {
        assert_eq!(quoted(&json!("a \"b\", c")), "\"a \"\"b\"\", c\"");
        assert_eq!(quoted(&json!([1, 2])), "\"[1,2]\"");
    }
}
