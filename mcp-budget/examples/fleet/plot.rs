//! Draws attempts over time.

use std::fmt::Write;

use crate::score::Score;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 92.0;
const TOP: f64 = 30.0;
const PLOT: (f64, f64) = (WIDTH - LEFT - 20.0, HEIGHT - TOP - 110.0);
const COLOURS: [&str; 4] = ["#0a7d33", "#c0392b", "#d68910", "#2e5fa8"];
/// Attempts per hour at the top of the plot, as a power of ten.
const DECADES: f64 = 8.0;

/// Attempts per hour, the highest of each day, on a logarithmic scale.
pub(crate) fn svg(scores: &[Score]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"100%\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"currentColor\" role=\"img\" \
         aria-label=\"attempts over time\">\n\
         <text x=\"{LEFT}\" y=\"18\">Attempts in the worst hour of each day, 10,000 servers, one year</text>\n"
    );
    for decade in 0..=DECADES as u32 {
        let y = height(10f64.powi(decade as i32));
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"currentColor\" stroke-opacity=\"0.15\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT + PLOT.0,
            LEFT - 8.0,
            y + 4.0,
            thousands(10u64.pow(decade)),
        );
    }
    for month in 0..12 {
        let x = LEFT + PLOT.0 * (f64::from(month) + 0.5) / 12.0;
        let y = TOP + PLOT.1 + 16.0;
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
            month + 1
        );
    }
    // Ours is drawn last, over the others.
    for (score, colour) in scores.iter().zip(COLOURS).rev() {
        let days = score.per_hour.chunks(24).enumerate();
        let mut path = String::new();
        for (day, hours) in days {
            let x = LEFT + PLOT.0 * (day as f64 + 0.5) / 365.0;
            let most = hours.iter().max().copied().unwrap_or(0);
            let letter = if day == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{x:.1} {:.1}", height(most as f64));
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        );
    }
    for (n, (score, colour)) in scores.iter().zip(COLOURS).enumerate() {
        let y = HEIGHT - 62.0 + 16.0 * n as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{:.0}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>\
             <text x=\"{:.0}\" y=\"{y:.0}\">{}</text>",
            y - 6.0,
            LEFT + 22.0,
            score.name,
        );
    }
    svg += "</svg>\n";
    svg
}

fn height(attempts: f64) -> f64 {
    TOP + PLOT.1 * (1.0 - attempts.max(1.0).log10() / DECADES)
}

/// A number with commas.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
