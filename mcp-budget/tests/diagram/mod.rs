//! Draws states and the ways between them.

use std::{collections::BTreeMap, fmt::Write};

/// Name, centre, in the order of the table's states. Where everything leads is not drawn.
const NODES: [(&str, f64, f64); 6] = [
    ("idle", 80.0, 130.0),
    ("connecting", 330.0, 130.0),
    ("unproven", 600.0, 130.0),
    ("proven", 850.0, 130.0),
    ("waiting", 330.0, 340.0),
    ("parked", 600.0, 340.0),
];
const STOPPED: usize = NODES.len();

/// How far a way bends to its left, and where along it its label stands; all others are straight.
const BENDS: [((usize, usize), f64, f64); 9] = [
    ((0, 4), -20.0, 0.45),
    ((1, 4), -28.0, 0.5),
    ((4, 1), -28.0, 0.5),
    ((1, 5), 28.0, 0.6),
    ((5, 1), 28.0, 0.35),
    ((2, 0), -50.0, 0.5),
    ((3, 0), -95.0, 0.5),
    ((2, 4), 40.0, 0.3),
    ((3, 4), 150.0, 0.4),
];

/// The diagram as SVG that stands in a page's text and takes its colour.
pub(crate) fn svg(ways: &BTreeMap<(usize, usize), Vec<&'static str>>) -> String {
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 930 440\" width=\"100%\" font-size=\"12\" font-family=\"sans-serif\" \
         fill=\"none\" stroke=\"currentColor\" role=\"img\" aria-label=\"state diagram\">\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"currentColor\" \
         stroke=\"none\"/></marker></defs>\n",
    );
    for ((from, to), events) in ways {
        if *to != STOPPED {
            way(&mut svg, *from, *to, &label(events));
        }
    }
    for (name, x, y) in NODES {
        let _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"96\" height=\"34\" rx=\"8\" stroke-width=\"2\"/>\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" font-size=\"14\" fill=\"currentColor\" \
             stroke=\"none\">{name}</text>",
            x - 48.0,
            y - 17.0,
            y + 5.0,
        );
    }
    svg += "</svg>\n";
    svg
}

fn way(svg: &mut String, from: usize, to: usize, label: &[String]) {
    let ((_, x1, y1), (_, x2, y2)) = (NODES[from], NODES[to]);
    let (bend, along) = BENDS
        .iter()
        .find(|(way, ..)| *way == (from, to))
        .map_or((0.0, 0.5), |(_, bend, along)| (*bend, *along));
    let (dx, dy) = (x2 - x1, y2 - y1);
    let length = dx.hypot(dy);
    // Left of the way as it is seen on a page, where y grows downwards.
    let (nx, ny) = (dy / length, -dx / length);
    let (cx, cy) = (
        (x1 + x2) / 2.0 + 2.0 * bend * nx,
        (y1 + y2) / 2.0 + 2.0 * bend * ny,
    );
    let (sx, sy) = border(x1, y1, cx, cy);
    let (ex, ey) = border(x2, y2, cx, cy);
    let _ = writeln!(
        svg,
        "<path d=\"M{sx:.0} {sy:.0}Q{cx:.0} {cy:.0} {ex:.0} {ey:.0}\" marker-end=\"url(#tip)\"/>",
    );
    let point = |a: f64, b: f64, c: f64| {
        (1.0 - along) * (1.0 - along) * a + 2.0 * along * (1.0 - along) * b + along * along * c
    };
    let (lx, ly) = (point(sx, cx, ex), point(sy, cy, ey));
    let mut y = ly - 7.0 * (label.len() as f64 - 1.0) + 4.0;
    for line in label {
        let _ = writeln!(
            svg,
            "<text x=\"{lx:.0}\" y=\"{y:.0}\" text-anchor=\"middle\" fill=\"currentColor\" \
             stroke=\"#fff\" style=\"paint-order:stroke;stroke:var(--main-background-color,#fff);stroke-width:5px\">\
             {line}</text>",
        );
        y += 14.0;
    }
}

/// Where the line from a node's centre to a point leaves the node.
fn border(x: f64, y: f64, to_x: f64, to_y: f64) -> (f64, f64) {
    let (dx, dy) = (to_x - x, to_y - y);
    let scale = (50.0 / dx.abs().max(1e-9)).min(19.0 / dy.abs().max(1e-9));
    (x + dx * scale.min(1.0), y + dy * scale.min(1.0))
}

/// The events in few words. What happens beside the home session and its owner's closing are named only where
/// nothing else leads that way, and of losses only that they are such, unless they are of few kinds.
fn label(events: &[&str]) -> Vec<String> {
    let losses: Vec<_> = events
        .iter()
        .filter_map(|event| event.strip_prefix("lost: "))
        .collect();
    let mut lines: Vec<_> = events
        .iter()
        .filter(|event| !event.starts_with("lost: "))
        .filter(|event| events.len() == 1 || !event.starts_with("a scoped"))
        .filter(|event| events.len() == 1 || !event.starts_with("closed"))
        .map(ToString::to_string)
        .collect();
    match losses.len() {
        0 => {}
        1..3 => lines.push(format!("lost: {}", losses.join(", "))),
        _ => lines.push("lost".into()),
    }
    lines
}
